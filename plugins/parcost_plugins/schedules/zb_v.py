"""ZB-V: zero bubble with two chunks in the shape of a V (Qi et al. 2024).

Device r holds virtual stage r on the way down and ``2 p - 1 - r`` on the way up. So micro-batches
turn at the last device without a message. Every device has the same memory, at most that of the
first stage of 1F1B.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from parcost import Case, Mask, Op, PipelineShape, Real, Schedule, hookimpl
from parcost_plugins.schedules.stage_times import is_uniform, two_chunks

_KINDS: dict[str, Literal["F", "B", "W"]] = {"F": "F", "B": "B", "W": "W"}


class ZBV(Schedule):
    """Forward, input and weight gradients of two chunks, in a fixed order."""

    name = "zb_v"
    frameworks: Mapping[str, str] = {
        "PyTorch": "torch/distributed/pipelining/schedules.py: ScheduleZBVZeroBubble"
    }

    def limits(self, shape: PipelineShape) -> str | None:
        """Return the reason why the schedule does not support *shape*, None if it does."""
        if shape.stages == 1:
            return "one stage has no bubble to fill: take pp = 2 or more, or one_f_one_b"
        return two_chunks(shape.chunks)

    def order(self, stages: int, micro_batches: int, chunks: int) -> list[list[Op]]:  # noqa: ARG002
        """Return the passes of each device, in order.

        The pattern needs 2 p - 1 micro-batches; with fewer, passes of missing micro-batches are
        skipped.
        """
        return [
            [op for op in _device(r, stages, micro_batches) if op.micro_batch < micro_batches]
            for r in range(stages)
        ]

    def period(self, stages: int, chunks: int) -> int:  # noqa: ARG002
        """Return the number of micro-batches of a round."""
        return 1

    def closed_form(self, case: Case) -> tuple[Real, Mask]:
        """Return the makespan in seconds, and a mask of where the formula applies: all passes of
        all stages equal.
        """
        hop, stages, micro_batches, chunks = case.hop, case.stages, case.micro_batches, case.chunks
        f = case.F[0]
        mask = (hop == 0) & (micro_batches >= 2 * stages - 1)
        equal = is_uniform([*case.F, *case.B, *case.W])
        return (3 * chunks * micro_batches + stages - 1) * f, mask & equal


def _device(r: int, stages: int, micro_batches: int) -> list[Op]:
    enough = max(micro_batches, 2 * stages - 1)
    stage = {0: r, 1: 2 * stages - 1 - r}
    left = {(kind, chunk): [*range(enough)] for kind in _KINDS.values() for chunk in stage}
    ops: list[Op] = []

    def next_passes(kind: Literal["F", "B", "W"], chunk: int) -> list[Op]:
        batches = left[kind, chunk]
        return [Op(kind, batches.pop(0), stage[chunk])] if batches else []

    def append_passes(times: int, *passes: str) -> None:
        """Add the next of *passes*, *times* times, as long as any are left."""
        for each in passes * times:
            ops.extend(next_passes(_KINDS[each[0]], int(each[1])))

    append_passes(2 * (stages - r) - 1, "F0")
    append_passes(r, "F1", "F0")
    append_passes(stages - r, "F1", "B1", "W1")
    while left["F", 0] or left["F", 1]:
        append_passes(1, "F0", "B0", "W0", "F1", "B1", "W1")
    append_passes(r, "B0", "B1")
    append_passes(stages - r, "B0", "W0")
    append_passes(enough, "W1")
    append_passes(enough, "W0")
    return ops


_ZB_V = ZBV()


@hookimpl
def schedules() -> list[ZBV]:
    """Return the schedule of this module."""
    return [_ZB_V]
