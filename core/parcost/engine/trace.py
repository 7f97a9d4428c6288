"""The activities of every device over time, from a replay that keeps all ops."""

from __future__ import annotations

from collections.abc import Sequence

from parcost.contract.pipelines import Activity, Times
from parcost.contract.study import Replay
from parcost.engine.orders import Order
from parcost.engine.replay import Hop, PipelinePlan, play
from parcost.numeric import is_array


def replay_activities(run: Replay) -> tuple[Sequence[Sequence[Activity]], Order]:
    """Return the activities of each device, and the order, of a pipeline without other parts of a
    step.

    Raises:
        ValueError: The run has several candidates.
        SpecError: The schedule does not support the pipeline.
    """
    values = [*run.times.F, *run.times.B, *run.times.W, run.hop, run.pipeline.micro_batches]
    if is_array(*values):
        raise ValueError("a sweep has no single timeline: evaluate one of its points")
    plan = PipelinePlan(run.schedule, run.pipeline)
    return activities(plan, run.times, run.hop), plan.orders[0][1].whole


def activities(
    plan: PipelinePlan, times: Times, hop: Hop, releases: Sequence[float] = ()
) -> Sequence[Sequence[Activity]]:
    """Return the activities of each device of *plan* with these times.

    No copy of a virtual stage starts before its *releases*.
    """
    cut = plan.pipeline
    assert not is_array(cut.micro_batches)
    ((_, order),) = plan.orders
    program = order.whole.compile(keep=True)
    state, durations = play(program, times, hop, releases or [0.0] * len(plan.device))
    found: list[list[Activity]] = [[] for _ in plan.held]
    for d, entry, slot, takes in program.entries:
        before = found[d][-1].end if found[d] else 0.0
        start = max(state[slot] - durations[takes], before)  # before it by a rounding at most
        found[d].append(Activity(entry, start, state[slot]))
    return found
