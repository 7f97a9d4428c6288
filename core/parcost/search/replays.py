"""Exact replays of selected layouts of one structure and schedule, as one evaluation."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce as reduce_by
from typing import TYPE_CHECKING, Any

import attrs
import numpy as np

from parcost.engine.reduce import reduce, reduce_step
from parcost.engine.schedule_calls import schedule_blame
from parcost.search.mesh import Places
from parcost.search.scores import ScoredLayouts
from parcost.search.term_arrays import at_points, select_terms

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
    return reduce_by(np.minimum, (at_points(size, where[-1]) for size in sizes), np.inf)


def outcome_of(scored: ScoredLayouts, where: Sequence[NDArray[np.intp]]) -> Outcome:
    """Return the outcome of layouts as arrays; its lines are sums of terms."""
    with schedule_blame(scored.structure.whole, scored.pipeline.schedule):
        return reduce(*_picked_terms(scored, where))


def _picked_terms(
    scored: ScoredLayouts, where: Sequence[NDArray[np.intp]]
) -> tuple[Pipeline, Schedule, Stamped, Stamped]:
    """Return the arguments of the reducer for layouts: pipeline, schedule, terms and memory."""
    places = Places(where)
    micro_batches = at_points(scored.pipeline.micro_batches, where[-1])
    pipeline = attrs.evolve(scored.pipeline, micro_batches=micro_batches)
    terms, memory = (select_terms(stamped, places) for stamped in (scored.terms, scored.memory))
    return pipeline, scored.schedule, terms, memory
