"""The problems of a study that are found without an evaluation: syntax, names, units, rules."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from parcost.batch.rejections import attempt
from parcost.batch.scenarios import only_defines
from parcost.language.diagnostics import Diagnostic, Severity
from parcost.report.rejection import Rejection

if TYPE_CHECKING:
    from parcost.engine.scenario import Scenario


def problems(path: str, scenario: Scenario | Rejection) -> tuple[Sequence[Diagnostic], int]:
    """Return the problems of a spec, and the exit code if any of them is an error."""
    return _problems(path, scenario, _checked)


def problems_of_binding(path: str, scenario: Scenario | Rejection) -> Sequence[Diagnostic]:
    """Return those of the problems of a spec that need no rule: syntax, names, units."""
    return _problems(path, scenario, lambda bound: bound.warnings)[0]


def _problems(
    path: str,
    scenario: Scenario | Rejection,
    find: Callable[[Scenario], Sequence[Diagnostic]],
) -> tuple[Sequence[Diagnostic], int]:
    if isinstance(scenario, Rejection):
        return scenario.diagnostics, scenario.exit_code
    checked = attempt(path, partial(find, scenario))
    if not isinstance(checked, Rejection):
        return checked, 3 if any(d.id == "plugin-fault" for d in checked) else 1
    if only_defines(scenario):  # the importing file has the rest
        return [d for d in checked.diagnostics if d.id != "missing-block"], checked.exit_code
    return checked.diagnostics, checked.exit_code


def _checked(scenario: Scenario) -> Sequence[Diagnostic]:
    """Return the problems of a study that can be bound, and of its search."""
    found = scenario.check()
    study = scenario.first
    if any(map(is_error, found)) or not study.trains:
        return found
    goals = [goal for _, goal in study.contributions("search_goals")]
    if all(study.where(f"{goal.subject}.axes") is None for goal in goals):
        return found  # nothing is said, and looking into a search takes long to import
    from parcost.search.goals import unknown_axes, unknown_objective

    return [*found, *unknown_axes(scenario), *unknown_objective(scenario)]


def is_error(diagnostic: Diagnostic) -> bool:
    """Return whether *diagnostic* is more than a warning."""
    return diagnostic.severity is Severity.ERROR


def key(diagnostic: Diagnostic) -> tuple[object, ...]:
    """Return what two diagnostics share that say the same of the same place."""
    spans = ((label.span.source.name, label.span.start) for label in diagnostic.labels)
    return (diagnostic.id, diagnostic.message, diagnostic.place, *spans)
