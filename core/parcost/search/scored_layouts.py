"""Layouts of one structure with bounds or scores, as arrays, and faults of their schedules."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from attrs import frozen

from parcost.contract.pipelines import Pipeline
from parcost.contract.plugin import Fault
from parcost.contract.searches import Limit, Objective
from parcost.contract.study import Schedule
from parcost.language.numbers import spec_text
from parcost.search.failures import objective_of
from parcost.search.space import Structure
from parcost.search.stage_loads import StructureLoads
from parcost.search.timing import ScheduleTimes

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from parcost.contract.plugin import Plugin
    from parcost.engine.replay import Hop


@frozen(kw_only=True, eq=False)
class LayoutCriteria:
    """The limits and objectives for the layouts of a structure; sizes are in bytes."""

    capacities: Sequence[Any]
    usable: Sequence[Any]
    limits: Sequence[Limit]
    objectives: Mapping[str, Objective]
    structure: Structure

    def objective(self, name: str) -> Objective:
        """Return the objective of that name.

        Raises:
            SpecError: No objective has the name.
        """
        return self.objectives.get(name) or objective_of(self.structure.study, name)


@frozen(kw_only=True, eq=False)
class ScoredLayouts:
    """The layouts of one structure under one schedule: arrays that broadcast to the space.

    *seconds* is the step time or, where not *exact*, a lower bound; *least* is the first lower
    bound. If the schedule is a choice, it is value *index* of the choice at position *choice*.
    *place* is the position of the structure in its group. *points* are the indices of its points in
    these arrays. *loads* and *hop* (the seconds of messages) contain only legal layouts; *numbers*
    has the position of each layout in them. *terms* returns the terms of a hook at some layouts.
    """

    structure: Structure
    place: int
    points: NDArray[np.intp]
    criteria: LayoutCriteria
    schedule: Schedule
    choice: int | None
    index: int
    pipeline: Pipeline
    legal: NDArray[np.bool_]
    seconds: Any
    exact: Any
    bytes_: Any
    least: Any = 0.0
    loads: StructureLoads | None = None
    hop: Hop = 0.0
    numbers: Any = ()
    terms: Callable[[str, Sequence[Any]], Sequence[tuple[Plugin, Any]]] | None = None


def values_at(scored: ScoredLayouts, index: Sequence[int]) -> dict[str, Any]:
    """Return the values of a layout by attribute, in the notation of the language."""
    structure = scored.structure
    values = {name: spec_text(value) for name, value in structure.values.items()}
    for name, numbers in structure.degrees.items():
        number = float(numbers[index[-1]])
        values[name] = int(number) if number.is_integer() else number
    for k, choice in enumerate(structure.choices):
        at = scored.index if k == scored.choice else index[k]
        values[choice.name] = spec_text(choice.values[at])
    return values


def report_missing_bound(scored: ScoredLayouts, timed: ScheduleTimes) -> None:
    """Record an error of the schedule if a method returned NaN; 0 is used as the bound instead."""
    if timed.undefined:
        message = f"{timed.undefined} of schedule `{timed.schedule.name}` is not a number for some "
        _report_fault(scored.structure, timed.pipeline, message + "layouts")


def _report_fault(structure: Structure, pipeline: Pipeline, message: str) -> None:
    """Record, once, an error in the schedule of *pipeline*."""
    plugin = structure.whole.plugins.offers("schedules")[pipeline.schedule][0]
    if all((f.plugin, f.message) != (plugin, message) for f in structure.faults):
        structure.faults.append(Fault(plugin=plugin, hook="schedules", message=message))


def report_wrong_bound(scored: ScoredLayouts) -> None:
    """Record an error: a replayed step is shorter than its lower bound.

    Layouts may have been excluded wrongly.
    """
    schedule = scored.schedule
    kind = type(schedule)
    methods = ["`closed_form`"] * (kind.closed_form is not Schedule.closed_form)
    methods += ["`lower_bound`"] * (kind.lower_bound is not Schedule.lower_bound)
    said = " or ".join(methods) or "the bound of its order"
    message = f"a step by schedule `{schedule.name}` takes less time than the bound from {said}"
    _report_fault(scored.structure, scored.pipeline, message)
