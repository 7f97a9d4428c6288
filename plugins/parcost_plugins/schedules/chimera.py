"""Chimera: two pipelines in opposite directions (Li and Hoefler 2021).

A unit has p micro-batches. Half of them enter at the first device and half at the last. Every
virtual stage is held twice. The passes of one direction fill the gaps of the other, without
conflict. More micro-batches form further units, each 2 p slots later. The first passes of a unit
fill the gaps at the end of the previous unit.
"""

from __future__ import annotations

from collections.abc import Iterator

from parcost import Case, Mask, Op, PipelineShape, Real, Schedule, hookimpl
from parcost.numeric import where
from parcost_plugins.schedules.stage_times import is_uniform, multiples, one_chunk


class Chimera(Schedule):
    """Units of p micro-batches on p devices, p even."""

    name = "chimera"
    copies = 2

    def limits(self, shape: PipelineShape) -> str | None:
        """Return the reason why the schedule does not support *shape*, None if it does."""
        stages, micro_batches, chunks = shape.stages, shape.micro_batches, shape.chunks
        if why := one_chunk(chunks):
            return why
        if stages % 2:
            return f"devices are used in mirrored pairs: pp = {multiples(stages, 2)}"
        if micro_batches % stages:
            fitting = multiples(micro_batches, stages)
            return f"micro-batches pass in units of pp = {stages}: use {fitting} micro-batches"
        return None

    def order(self, stages: int, micro_batches: int, chunks: int) -> list[list[Op]]:  # noqa: ARG002
        """Return the passes of each device by slot."""
        return [[op for _, op in sorted(_slots(d, stages, micro_batches))] for d in range(stages)]

    def closed_form(self, case: Case) -> tuple[Real, Mask]:
        """Return the makespan in seconds, and the mask where the formula applies.

        It applies if F takes as long as B + W, or if there are as many micro-batches as stages:
        then B + W may take longer.
        """
        hop, stages, micro_batches = case.hop, case.stages, case.micro_batches
        f, b = case.F[0], case.backward[0]
        slots = (2 * micro_batches + stages - 2) * f
        seconds = where(f == b, slots, stages * f + (2 * stages - 2) * b)
        mask = (hop == 0) & (b >= f) & ((f == b) | (micro_batches == stages))
        return seconds, mask & is_uniform(case.F, case.backward)


def _slots(d: int, stages: int, micro_batches: int) -> Iterator[tuple[int, Op]]:
    """Yield the passes of device *d* with their slots."""
    half = stages // 2
    for first in range(0, micro_batches, stages):
        for s, begin in ((d, first), (stages - 1 - d, first + half)):
            for j in range(half):
                slot = 2 * first + 2 * j
                yield slot + s, Op("F", begin + j, s)
                yield slot + 2 * stages - 1 - s, Op("BW", begin + j, s)


_CHIMERA = Chimera()


@hookimpl
def schedules() -> list[Chimera]:
    """Return the schedule of this module."""
    return [_CHIMERA]
