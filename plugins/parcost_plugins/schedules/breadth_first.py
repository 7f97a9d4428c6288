"""Looped breadth-first: every micro-batch passes through a chunk before the next chunk starts.

Lamy-Poirier 2023. Chunk c of device r is virtual stage ``c p + r``. All forward passes of a chunk
precede those of the next; backward is in reverse. The bubble equals interleaving, and all
micro-batches are in flight. Gradients of a chunk are ready early: those of all but one of v chunks,
while other chunks still compute.
"""

from __future__ import annotations

from collections.abc import Mapping

from parcost import Case, Mask, Op, PipelineShape, Real, Schedule, hookimpl
from parcost_plugins.schedules.stage_times import is_uniform


class BreadthFirst(Schedule):
    """Every micro-batch passes through a chunk before the next chunk; with one chunk it is
    GPipe.
    """

    name = "breadth_first"
    frameworks: Mapping[str, str] = {
        "PyTorch": "torch/distributed/pipelining/schedules.py: ScheduleLoopedBFS"
    }

    def limits(self, shape: PipelineShape) -> str | None:
        """Return the reason why the schedule does not support *shape*, None if it does."""
        if shape.chunks == 1:
            return "with one chunk per device it is gpipe: choose chunks = 2, or gpipe"
        return None

    def order(self, stages: int, micro_batches: int, chunks: int) -> list[list[Op]]:
        """Return all F by chunk, then all BW by chunk in reverse, on each device."""
        batches = range(micro_batches)
        return [
            [Op("F", j, c * stages + r) for c in range(chunks) for j in batches]
            + [Op("BW", j, c * stages + r) for c in reversed(range(chunks)) for j in batches]
            for r in range(stages)
        ]

    def closed_form(self, case: Case) -> tuple[Real, Mask]:
        """Return the makespan in seconds, and a mask of where the formula applies: for equal
        virtual stages.

        The first device waits after a chunk if the first micro-batch of the next chunk has not
        returned. Otherwise only the path down and back counts, once.
        """
        hop, stages, micro_batches, chunks = case.hop, case.stages, case.micro_batches, case.chunks
        f, both = case.F[0], case.backward[0]
        seconds = (micro_batches * chunks + stages - 1) * (f + both) + 2 * (stages - 1) * hop
        ahead = micro_batches - stages
        mask = (ahead * f >= stages * hop) & (ahead * both >= stages * hop)
        return seconds, mask & is_uniform(case.F, case.backward)


_BREADTH_FIRST = BreadthFirst()


@hookimpl
def schedules() -> list[BreadthFirst]:
    """Return the schedule of this module."""
    return [_BREADTH_FIRST]
