"""Exact replays of selected layouts of one structure and schedule, as one evaluation."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce as reduce_by
from typing import TYPE_CHECKING, Any

import attrs
import numpy as np

from parcost.engine.memory import peak_bytes
from parcost.engine.pipeline_run import PipelineRun
from parcost.engine.reduce import reduce
from parcost.engine.replay import Hop, PipelinePlan
from parcost.engine.schedule_calls import name_schedule_plugin
from parcost.engine.step_costs import WHENS, added_seconds
from parcost.search.mesh import Places
from parcost.search.scored_layouts import ScoredLayouts
from parcost.search.term_arrays import at_points, select_terms

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from parcost.contract.outcome import Outcome
    from parcost.contract.pipelines import Pipeline
    from parcost.contract.study import Schedule
    from parcost.engine.reduce import Stamped
    from parcost.numeric import Real
    from parcost.search.stage_loads import StructureLoads


def replay_layouts(
    scored: ScoredLayouts, where: Sequence[NDArray[np.intp]]
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.bool_]]:
    """Return the step time (s) and memory (bytes) of layouts, and which of them fit.

    *where* has the index of the layouts in each dimension of the space.
    """
    with name_schedule_plugin(scored.structure.whole, scored.pipeline.schedule):
        step = _replay(scored, where)
    count = len(where[0])
    seconds, bytes_ = (
        np.broadcast_to(np.asarray(value, dtype=np.float64), (count,)) for value in step
    )
    return seconds, bytes_, np.isfinite(seconds) & (bytes_ <= memory_limit_of(scored, where))


def _replay(scored: ScoredLayouts, where: Sequence[NDArray[np.intp]]) -> tuple[Real, Real]:
    """Return the step time in seconds and the peak memory in bytes of layouts."""
    assert scored.loads is not None
    assert scored.terms is not None
    layouts = scored.numbers[tuple(where)]
    loads, hop = scored.loads.select(layouts), _select_hop(scored.hop, layouts)
    memory = scored.terms("memory", where)
    return replay_step(_select_pipeline(scored, where), scored.schedule, loads, hop, memory)


def replay_step(
    pipeline: Pipeline, schedule: Schedule, loads: StructureLoads, hop: Hop, memory: Stamped
) -> tuple[Real, Real]:
    """Return the step time in seconds and the peak memory in bytes, without a ledger.

    They equal the results of :func:`parcost.engine.reduce.reduce` within rounding: a ledger sums
    the same seconds in another order.
    """
    plan = PipelinePlan(schedule, pipeline)
    if len({tuple(order.split) for _, order in plan.orders}) > 1:  # some separate W from B
        m: Any = pipeline.micro_batches
        found = np.empty((2, len(m)))
        for value, _ in plan.orders:
            at = np.flatnonzero(m == value)
            one = attrs.evolve(pipeline, micro_batches=value)
            held = select_terms(memory, Places((at,)))
            step = replay_step(one, schedule, loads.select(at), _select_hop(hop, at), held)
            found[0, at], found[1, at] = step
        return found[0], found[1]
    by_stage, times = loads.by_stage(plan)
    onces = any(loads.stages.onces.values())
    run = PipelineRun(
        plan=plan,
        loads=[by_stage[x] for x in plan.stage],
        kinds=[loads.kinds[x] for x in plan.stage],
        times=times,
        hop=hop,
        timeline=plan.timeline(times, hop, spans=onces),
    )
    seconds = added_seconds(*(loads.group(when, run) for when in WHENS))
    return seconds, peak_bytes(memory, plan)


def _select_hop(hop: Hop, layouts: NDArray[np.intp]) -> Hop:
    if isinstance(hop, tuple):
        return tuple(at_points(each, layouts) for each in hop)
    found: Real = at_points(hop, layouts)
    return found


def memory_limit_of(scored: ScoredLayouts, where: Sequence[NDArray[np.intp]]) -> Any:
    """Return the memory limit of layouts in bytes."""
    return _least(scored.criteria.capacities, where)


def usable_memory_of(scored: ScoredLayouts, where: Sequence[NDArray[np.intp]]) -> Any:
    """Return the usable memory of a device in bytes, by layout."""
    return _least(scored.criteria.usable, where)


def _least(sizes: Sequence[Any], where: Sequence[NDArray[np.intp]]) -> Any:
    return reduce_by(np.minimum, (at_points(size, where[-1]) for size in sizes), np.inf)


def outcome_of(scored: ScoredLayouts, where: Sequence[NDArray[np.intp]]) -> Outcome:
    """Return the outcome of the layouts *where* as arrays; a ledger line may sum several terms."""
    assert scored.terms is not None
    terms, memory = (scored.terms(hook, where) for hook in ("terms", "memory"))
    with name_schedule_plugin(scored.structure.whole, scored.pipeline.schedule):
        return reduce(_select_pipeline(scored, where), scored.schedule, terms, memory)


def _select_pipeline(scored: ScoredLayouts, where: Sequence[NDArray[np.intp]]) -> Pipeline:
    micro_batches = at_points(scored.pipeline.micro_batches, where[-1])
    return attrs.evolve(scored.pipeline, micro_batches=micro_batches)
