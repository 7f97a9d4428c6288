"""Exact replays of selected layouts of one structure and schedule, as one evaluation."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce as reduce_by
from typing import TYPE_CHECKING, Any

import attrs
import numpy as np

from parcost.contract.validation import declarations
from parcost.engine.reduce import reduce, reduce_step
from parcost.engine.schedule_calls import schedule_blame
from parcost.records import replace_values
from parcost.search.scores import ScoredLayouts

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from parcost.contract.outcome import Outcome
    from parcost.contract.pipelines import Pipeline
    from parcost.contract.study import Schedule
    from parcost.engine.reduce import Stamped


def replay_layouts(
    scored: ScoredLayouts, where: Sequence[NDArray[np.intp]]
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.bool_]]:
    """Return the step time (s) and memory (bytes) of layouts, and which of them fit.

    *where* has their index in each dimension of the space.
    """
    with schedule_blame(scored.structure.whole, scored.pipeline.schedule):
        step = reduce_step(*_picked_terms(scored, where))
    count = len(where[0])
    seconds, bytes_ = (
        np.broadcast_to(np.asarray(value, dtype=np.float64), (count,)) for value in step
    )
    return seconds, bytes_, np.isfinite(seconds) & (bytes_ <= room_of(scored, where))


def room_of(scored: ScoredLayouts, where: Sequence[NDArray[np.intp]]) -> Any:
    """Return the memory limit of layouts in bytes."""
    return _least(scored.judge.rooms, where)


def usable_of(scored: ScoredLayouts, where: Sequence[NDArray[np.intp]]) -> Any:
    """Return the usable memory of a device in bytes, by layout."""
    return _least(scored.judge.usable, where)


def _least(sizes: Sequence[Any], where: Sequence[NDArray[np.intp]]) -> Any:
    picked = _PointSelection(where)
    return reduce_by(np.minimum, (picked.flat(size) for size in sizes), np.inf)


def outcome_of(scored: ScoredLayouts, where: Sequence[NDArray[np.intp]]) -> Outcome:
    """Return the outcome of layouts as arrays; its lines are sums of terms."""
    with schedule_blame(scored.structure.whole, scored.pipeline.schedule):
        return reduce(*_picked_terms(scored, where))


def _picked_terms(
    scored: ScoredLayouts, where: Sequence[NDArray[np.intp]]
) -> tuple[Pipeline, Schedule, Stamped, Stamped]:
    """Return the arguments of the reducer for layouts: pipeline, schedule, terms and memory."""
    picked = _PointSelection(where)
    pipeline = attrs.evolve(
        scored.pipeline, micro_batches=picked.flat(scored.pipeline.micro_batches)
    )
    terms = [(plugin, picked.term(term)) for plugin, term in scored.terms]
    memory = [(plugin, picked.term(term)) for plugin, term in scored.memory]
    return pipeline, scored.schedule, terms, memory


class _PointSelection:
    """Selects layouts from arrays over a space."""

    def __init__(self, where: Sequence[NDArray[np.intp]]) -> None:
        self.where = where

    def number(self, value: Any) -> Any:
        """Return the elements of an array over the space at each layout."""
        if getattr(value, "ndim", 0) < len(self.where):
            return self.flat(value)
        index = tuple(
            np.zeros_like(at) if size == 1 else at
            for at, size in zip(self.where, value.shape, strict=True)
        )
        return value[index]

    def flat(self, value: Any) -> Any:
        """Return the elements of an array over combinations of degrees at each layout."""
        if getattr(value, "ndim", 0) == 0 or value.shape[-1] == 1:
            return value.item() if getattr(value, "size", 0) == 1 else value
        return value[self.where[-1]]

    def term(self, term: Any) -> Any:
        """Return a term with its numbers at each layout."""
        type_: Any = type(term)
        declared = declarations(type_)
        values = zip(declared.varying, declared.numbers(term), strict=True)
        numbers: dict[str, Any] = {
            name: self.number(value) for name, value in values if getattr(value, "ndim", 0)
        }
        if declared.series:
            series = getattr(term, declared.series)
            numbers[declared.series] = tuple(self.number(value) for value in series)
        return replace_values(term, numbers) if numbers else term
