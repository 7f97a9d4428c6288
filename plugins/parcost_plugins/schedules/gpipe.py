"""GPipe: all forward passes, then all backward passes (Huang et al. 2019).

Each phase is a line of stages that a train of equal micro-batches moves through: the
first takes the sum of the stages, the rest follow at the pace of the slowest. Messages
only put the stages further apart. So the closed form is exact for any stages and hops,
equal or not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate
from operator import add

from parcost import Case, Mask, Op, PipelineShape, Real, Schedule, hookimpl
from parcost.numeric import maximum
from parcost_plugins.schedules.stage_times import backward_times, one_chunk


class GPipe(Schedule):
    """The simplest schedule, with every micro-batch alive on every stage."""

    name = "gpipe"
    frameworks: Mapping[str, str] = {
        "PyTorch": "torch/distributed/pipelining/schedules.py: ScheduleGPipe"
    }
    hop_by_boundary = True

    def limits(self, shape: PipelineShape) -> str | None:
        """Return why there is no such schedule, if there is none."""
        return one_chunk(shape.chunks)

    def order(self, stages: int, micro_batches: int, chunks: int) -> list[list[Op]]:  # noqa: ARG002
        """Return all F, then all BW, on each device."""
        batches = range(micro_batches)
        return [
            [Op("F", j, s) for j in batches] + [Op("BW", j, s) for j in batches]
            for s in range(stages)
        ]

    def closed_form(self, case: Case) -> tuple[Real, Mask]:
        """Return the makespan."""
        turn = _arrival(case.times.F, case.hops, case.micro_batches)
        return turn + _arrival(backward_times(case.times), case.hops, case.micro_batches), True

    def spans(self, case: Case) -> tuple[Sequence[Real], Sequence[Real]]:
        """Return when each stage starts its first forward and ends its last backward pass."""
        forward, backward, hops = case.times.F, backward_times(case.times), case.hops
        m = case.micro_batches
        turn = _arrival(forward, hops, m)
        starts = [0.0, *accumulate(map(add, forward, hops))]
        ends = [turn + _arrival(backward[s:], hops[s:], m) for s in range(case.stages)]
        return starts, ends


def _arrival(stages: Sequence[Real], hops: Sequence[Real], micro_batches: Real) -> Real:
    """Return when the last micro-batch has passed a line of *stages*, *hops* apart."""
    first, slowest = stages[0], stages[0]
    for time, hop in zip(stages[1:], hops, strict=True):
        first, slowest = first + hop + time, maximum(slowest, time)
    return first + (micro_batches - 1) * slowest


_GPIPE = GPipe()


@hookimpl
def schedules() -> list[GPipe]:
    """Offer the schedule."""
    return [_GPIPE]
