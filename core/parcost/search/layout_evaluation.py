"""The evaluation of one layout as an ordinary study."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from attrs import frozen

from parcost.language.diagnostics import Severity
from parcost.language.numbers import spec_text
from parcost.numeric import all_of
from parcost.search.attributes import find, is_text
from parcost.search.failures import objective_of
from parcost.search.result import SearchedLayout

if TYPE_CHECKING:
    from parcost.contract.searches import Limit
    from parcost.engine.scenario import Scenario
    from parcost.report.result import Result


@frozen(kw_only=True, eq=False)
class LayoutEvaluation:
    """The evaluation of a layout; *layout* is None if it is invalid or outside of the limits.

    *large*: it does not fit in memory. *broken* is the first limit that it exceeds.
    """

    result: Result
    layout: SearchedLayout | None = None
    large: bool = False
    broken: Limit | None = None

    @property
    def rule_errors(self) -> Sequence[str]:
        """The ids of the rules that reject the layout, including rules about the outcome."""
        errors = (d.id for d in self.result.diagnostics if d.severity is Severity.ERROR)
        return list(dict.fromkeys(errors)) if self.layout is None else []


def evaluate_layout(
    scenario: Scenario, values: Mapping[str, Any], objective: str
) -> LayoutEvaluation:
    """Return the evaluation of *scenario* with these *values*.

    Raises:
        SpecError: The scenario cannot be bound, or there is no such objective.
    """
    result = scenario.replace(settings(scenario, values)).evaluate().result
    study, outcome = result.study, result.outcome
    if outcome is None:
        return LayoutEvaluation(result=result)
    if not all_of(result.feasible):
        return LayoutEvaluation(result=result, large=True)
    seconds, bytes_ = float(outcome.step_seconds), float(outcome.memory_bytes)
    limits = [limit for _, goal in study.contributions("search_goals") for limit in goal.limits]
    broken = [limit for limit in limits if not all_of(limit.holds(seconds, bytes_))]
    if broken:
        return LayoutEvaluation(result=result, broken=broken[0])
    wanted = objective_of(study, objective)
    cost = float(wanted.cost(seconds))
    value = float(wanted.value(cost))
    layout = SearchedLayout(
        values=values, cost=cost, value=value, seconds=seconds, bytes_=bytes_, result=result
    )
    return LayoutEvaluation(result=result, layout=layout)


def settings(scenario: Scenario, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the overrides that set *scenario* to a layout; strings get quotes."""
    said = {path: spec_text(value) for path, value in values.items()}
    study = scenario.first
    for path, value in said.items():
        if isinstance(value, str) and is_text(*find(study, path)):
            said[path] = f'"{value.strip(chr(34))}"'
    return said
