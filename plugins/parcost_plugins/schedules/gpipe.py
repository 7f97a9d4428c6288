"""GPipe: all forward passes, then all backward passes (Huang et al. 2019).

Each phase is a line of stages that a train of equal micro-batches moves through: the
first takes the sum of the stages, the rest follow at the pace of the slowest. Messages
only put the stages further apart. So the closed form is exact for any stages and hops,
equal or not.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from operator import add

from parcost import Case, Mask, Op, PipelineShape, Real, Schedule, hookimpl
from parcost.numeric import maximum
from parcost_plugins.schedules.stage_times import one_chunk


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
        return next(_ends(case, case.F)) + next(_ends(case, case.backward)), True

    def spans(self, case: Case) -> tuple[Sequence[Real], Sequence[Real]]:
        """Return when stages start their first forward and end their last backward pass."""
        turn, starts = next(_ends(case, case.F)), map(add, case.before(case.F), case.messages)
        return list(starts), [turn + end for end in _ends(case, case.backward)]


def _ends(case: Case, seconds: Sequence[Real]) -> Iterator[Real]:
    """Yield when the last micro-batch has passed all stages from each run to the last."""
    before, hops, more = case.before(seconds), case.messages, case.micro_batches - 1
    whole, across = before[-1] + seconds[-1], hops[-1]
    slowest = list(accumulate(reversed(seconds), maximum))[::-1]
    for time, hop, longest in zip(before, hops, slowest, strict=True):
        yield (whole - time) + (across - hop) + more * longest


_GPIPE = GPipe()


@hookimpl
def schedules() -> list[GPipe]:
    """Offer the schedule."""
    return [_GPIPE]
