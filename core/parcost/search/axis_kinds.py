"""Kinds of axes: structural (bound value by value), degrees (numbers in arrays), or choices.

An axis is structural if other attributes, requirements or the schedule depend on it. So is an axis
that determines the number of virtual stages. The binder knows the attributes from which others are
computed, and binds each value of such an axis. For other axes, plugins are called with each value.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

import numpy as np
from attrs import astuple, evolve, field, frozen

from parcost.contract.queries import key_of
from parcost.contract.schema import Field, block_type
from parcost.language.errors import SpecError
from parcost.search.attributes import choice_of, find
from parcost.search.conditions import condition_names
from parcost.search.variants import Variants

if TYPE_CHECKING:
    from parcost.contract.searches import Axis
    from parcost.contract.study import Schedule
    from parcost.engine.scenario import Scenario
    from parcost.engine.study import SpecStudy


@frozen(kw_only=True, eq=False)
class AxisKinds:
    """Axes sorted by kind; *cuts* change only the virtual stages (stages, chunks, layer split)."""

    structural: list[Axis] = field(factory=list)
    cuts: list[Axis] = field(factory=list)
    degrees: list[Axis] = field(factory=list)
    choices: list[Axis] = field(factory=list)

    @classmethod
    def sort(cls, scenario: Scenario, study: SpecStudy, axes: Sequence[Axis]) -> AxisKinds:
        """Return *axes* sorted by kind."""
        found, hidden = cls(), condition_names(scenario)
        _validate(scenario, study, axes)
        numbers: list[Axis] = []  # on which no other attribute depends
        words: list[Axis] = []
        for axis in axes:
            block, attribute = find(study, axis.attribute)
            field_ = block_type(type(block)).fields[attribute]
            used = scenario.binder.is_used(block, attribute)
            if attribute in hidden or field_.kind == "reference":  # others may refer to it as well
                found.structural.append(axis)
            elif not used:
                (numbers if _is_number(field_) else words).append(axis)
            elif not _is_number(field_) or _sets_limits(scenario, axis):
                found.structural.append(axis)
            else:
                found.degrees.append(axis)
        variants = Variants(study, [choice_of(scenario, study, axis) for axis in numbers])
        limits = variants.choices_that_decide(_limits)
        for k, axis in enumerate(numbers):
            (found.structural if k in limits else found.degrees).append(axis)
        variants = Variants(study, [choice_of(scenario, study, axis) for axis in words])
        alone, cuts = (
            variants.choices_that_decide(probe_questions),
            variants.choices_that_decide(_stages),
        )
        options = variants.choices_that_decide(_options_of_schedules)
        for k, axis in enumerate(words):
            if k in alone or (k in options and k not in cuts):
                found.structural.append(axis)
            else:
                (found.cuts if k in cuts else found.choices).append(axis)
        for kind in (found.structural, found.cuts, found.degrees, found.choices):
            kind.sort(key=axes.index)
        return found


def _is_number(field_: Field) -> bool:
    return field_.kind == "quantity" and not field_.structural


def _settings(study: SpecStudy, axis: Axis) -> Sequence[Any]:
    """Return the values of *axis* as settings of a scenario: numbers in base units, or text."""
    block, attribute = find(study, axis.attribute)
    if _is_number(block_type(type(block)).fields[attribute]):
        return axis.values
    return [f"{value}" for value in axis.values]


def _validate(scenario: Scenario, study: SpecStudy, axes: Sequence[Axis]) -> None:
    """Bind every value of every axis, the values of several axes at once.

    Raises:
        SpecError: An attribute cannot have a value.
    """
    for row in zip_longest(*(_settings(study, axis) for axis in axes)):
        values = {a.attribute: v for a, v in zip(axes, row, strict=True) if v is not None}
        try:
            _ = scenario.replace(values).first
        except SpecError:  # which of them, or only all of them together
            for path, value in values.items():
                _ = scenario.replace({path: value}).first


def _sets_limits(scenario: Scenario, axis: Axis) -> bool:
    """Return whether the text of a search limit depends on the numbers of *axis*."""
    said = [_limits(scenario.replace({axis.attribute: value}).first) for value in axis.values]
    return any(one != said[0] for one in said)


def _limits(study: SpecStudy) -> Sequence[str]:
    return [limit.says for _, goal in study.contributions("search_goals") for limit in goal.limits]


#: What tells answers apart that have to be the same for all layouts of a structure.
PROBES: Mapping[str, Callable[[Any], Any]] = {
    "capacities": np.asarray,
    "usable_memory": np.asarray,
    "search_goals": lambda goal: tuple(
        (limit.says, key_of(np.asarray(limit.holds(1.0, 1.0)))) for limit in goal.limits
    ),
    "objectives": lambda o: (o.name, key_of(np.asarray(o.value(o.cost(1.0))))),
}


def probe_questions(study: SpecStudy) -> list[str]:
    """Return sample answers of *study* to hooks whose answers must be the same for all layouts."""
    return [
        f"{key_of(probe(answer))}"
        for hook, probe in PROBES.items()
        for _, answer in study.contributions(hook)
    ]


def _options_of_schedules(study: SpecStudy) -> Sequence[Any]:
    """Return every schedule with its options from *study*."""
    return [study.query(_schedule, name) for name in study.plugins.offers("schedules")]


def _schedule(study: SpecStudy, name: str) -> Schedule:
    return study.schedule_named(name)


def _stages(study: SpecStudy) -> tuple[Any, ...]:
    cut = evolve(study.pipeline, schedule="")
    return tuple(str(value) for value in astuple(cut, recurse=False))
