"""GPipe: all forward passes, then all backward passes (Huang et al. 2019).

In each phase, the first micro-batch takes the sum of the stage times. Each further one takes the
time of the slowest stage. Messages only add delays between stages. So the closed form is exact for
any stages and messages, equal or not.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from operator import add

from parcost import Case, Mask, Op, PipelineShape, Real, Schedule, hookimpl
from parcost.numeric import maximum
from parcost_plugins.schedules.stage_times import one_chunk


class GPipe(Schedule):
    """The simplest schedule, with all micro-batches in flight on every stage."""

    name = "gpipe"
    frameworks: Mapping[str, str] = {
        "PyTorch": "torch/distributed/pipelining/schedules.py: ScheduleGPipe"
    }
    hop_by_boundary = True

    def limits(self, shape: PipelineShape) -> str | None:
        """Return the reason why the schedule does not support *shape*, None if it does."""
        return one_chunk(shape.chunks)

    def order(self, stages: int, micro_batches: int, chunks: int) -> list[list[Op]]:  # noqa: ARG002
        """Return all F, then all BW, on each device."""
        batches = range(micro_batches)
        return [
            [Op("F", j, s) for j in batches] + [Op("BW", j, s) for j in batches]
            for s in range(stages)
        ]

    def closed_form(self, case: Case) -> tuple[Real, Mask]:
        """Return the makespan in seconds; the formula applies to any stages and messages."""
        return next(_ends(case, case.F)) + next(_ends(case, case.backward)), True

    def spans(self, case: Case) -> tuple[Sequence[Real], Sequence[Real]]:
        """Return the start of the first forward and the end of the last backward per stage."""
        turn, starts = next(_ends(case, case.F)), map(add, case.before(case.F), case.messages)
        return list(starts), [turn + end for end in _ends(case, case.backward)]


def _ends(case: Case, seconds: Sequence[Real]) -> Iterator[Real]:
    """Yield the seconds from each run to the end of the last micro-batch on the last stage."""
    before, hops, more = case.before(seconds), case.messages, case.micro_batches - 1
    whole, across = before[-1] + seconds[-1], hops[-1]
    slowest = list(accumulate(reversed(seconds), maximum))[::-1]
    for time, hop, longest in zip(before, hops, slowest, strict=True):
        yield (whole - time) + (across - hop) + more * longest


_GPIPE = GPipe()


@hookimpl
def schedules() -> list[GPipe]:
    """Return the schedule of this module."""
    return [_GPIPE]
