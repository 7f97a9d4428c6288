"""Sensitivity of a layout: its step time and memory if one axis alone has another value."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from attrs import frozen

from parcost.engine.shapes import rooms_of
from parcost.language.diagnostics import Severity
from parcost.language.errors import SpecError
from parcost.language.numbers import quantity
from parcost.numeric import all_of

if TYPE_CHECKING:
    from parcost.contract.searches import Axis
    from parcost.engine.scenario import Scenario
    from parcost.search.result import SearchedLayout


@frozen(kw_only=True, eq=False)
class Neighbour:
    """A layout with one other value; *says* is its result in words, or why it is invalid.

    *same*: step time and memory are exactly equal.
    """

    path: str
    value: Any
    seconds: float | None
    runs: bool
    says: str
    same: bool = False


def neighbours(
    scenario: Scenario, axes: Sequence[Axis], at: Mapping[str, Any], layout: SearchedLayout
) -> Iterator[Neighbour]:
    """Yield the neighbours of *layout*; *at* are its values.

    On an axis of numbers they are the next smaller and larger value, on an axis of words all
    others.
    """
    for axis in axes:
        for value in _others(axis, at[axis.attribute]):
            yield _neighbour(scenario, {**at, axis.attribute: value}, axis.attribute, layout)


def _others(axis: Axis, own: Any) -> Sequence[Any]:
    values = axis.values
    if not all(isinstance(value, (int, float)) for value in values):
        return [value for value in values if value != own]
    below = [value for value in values if value < own]
    above = [value for value in values if value > own]
    return [*([max(below)] if below else []), *([min(above)] if above else [])]


def _neighbour(
    scenario: Scenario, values: Mapping[str, Any], path: str, layout: SearchedLayout
) -> Neighbour:
    def made(
        says: str, step: float | None = None, *, runs: bool = False, same: bool = False
    ) -> Neighbour:
        value = values[path]
        return Neighbour(path=path, value=value, seconds=step, runs=runs, says=says, same=same)

    try:
        result = scenario.replace(values).evaluate().result
    except SpecError as error:
        return made(error.diagnostics[0].message)
    errors = [d.message for d in result.diagnostics if d.severity is Severity.ERROR]
    if result.outcome is None:
        return made(errors[0] if errors else "not legal")
    step = float(result.outcome.step_seconds)
    change = f"{step / layout.seconds - 1.0:+.2%}"
    if not all_of(result.feasible):
        bytes_ = float(result.outcome.memory_bytes)
        rooms = rooms_of(result.study, result.study.faults)
        if all(bytes_ <= room for room in rooms):  # a verdict, and not for want of memory
            return made(f"{change}, but {errors[0] if errors else 'refused'}", step)
        return made(f"{change}, but needs {quantity(bytes_, 'GiB')}", step)
    limits = [
        limit for _, goal in result.study.contributions("search_goals") for limit in goal.limits
    ]
    for limit in limits:
        if not all_of(limit.holds(step, float(result.outcome.memory_bytes))):
            return made(f"{change}, but breaks {limit.says}", step)
    if step == layout.seconds:
        same = float(result.outcome.memory_bytes) == layout.bytes_
        return made("the same" if same else "as fast", step, runs=True, same=same)
    return made(change, step, runs=True)
