"""Sensitivity of the best layout: step time and memory if only one axis has another value."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from attrs import frozen

from parcost.engine.shapes import memory_limits_of
from parcost.language.diagnostics import Severity
from parcost.language.errors import SpecError
from parcost.language.numbers import percent, quantity
from parcost.search.layout_evaluation import evaluate_layout, settings

if TYPE_CHECKING:
    from parcost.contract.searches import Axis
    from parcost.search.result import SearchResult


@frozen(kw_only=True, eq=False)
class Neighbour:
    """A layout with one other value; *says* is its result in words, or why it is invalid.

    *same* is true if step time and memory are exactly equal.
    """

    path: str
    value: Any
    says: str
    seconds: float | None = None
    runs: bool = False
    same: bool = False


def neighbours(found: SearchResult, axes: Sequence[Axis]) -> Iterator[Neighbour]:
    """Yield the neighbours of the best layout.

    On an axis of numbers these are the next smaller and larger value. On an axis of words they are
    all others.
    """
    at = settings(found.scenario, found.best[0].values)
    for axis in axes:
        for value in _others(axis, at[axis.attribute]):
            yield _neighbour(found, {**at, axis.attribute: value}, axis.attribute)


def _others(axis: Axis, own: Any) -> Sequence[Any]:
    values = axis.values
    if not all(isinstance(value, (int, float)) for value in values):
        return [value for value in values if value != own]
    below = [value for value in values if value < own]
    above = [value for value in values if value > own]
    return [*([max(below)] if below else []), *([min(above)] if above else [])]


def _neighbour(found: SearchResult, values: Mapping[str, Any], path: str) -> Neighbour:
    value, best = values[path], found.best[0]
    try:
        evaluation = evaluate_layout(found.scenario, values, found.objective.name)
    except SpecError as error:
        return Neighbour(path=path, value=value, says=error.first_message)
    result, outcome = evaluation.result, evaluation.result.outcome
    errors = [d.message for d in result.diagnostics if d.severity is Severity.ERROR]
    if outcome is None:
        return Neighbour(path=path, value=value, says=errors[0] if errors else "not legal")
    step, bytes_ = float(outcome.step_seconds), float(outcome.memory_bytes)
    says, same = percent(step / best.seconds - 1.0, 2, signed=True), False
    if evaluation.large:
        rooms = memory_limits_of(result.study, result.study.faults)
        if all(bytes_ <= room for room in rooms):  # a verdict, and not for want of memory
            says += f", but {errors[0] if errors else 'rejected'}"
        else:
            says += f", but needs {quantity(bytes_, 'GiB')}"
    elif evaluation.broken is not None:
        says += f", but breaks {evaluation.broken.says}"
    elif step == best.seconds:
        same = bytes_ == best.bytes_
        says = "the same" if same else "as fast"
    runs = evaluation.layout is not None
    return Neighbour(path=path, value=value, says=says, seconds=step, runs=runs, same=same)
