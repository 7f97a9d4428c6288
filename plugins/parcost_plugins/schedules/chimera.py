"""Chimera: two pipelines in opposite directions (Li and Hoefler 2021).

Half of the micro-batches of a unit of p enter at the first device and half at the last,
and every virtual stage is held twice. The passes of one direction fall into the gaps of
the other: a unit has a slot for each, and no two of them meet. More micro-batches are
units one behind the other.
"""

from __future__ import annotations

from parcost import Mask, Op, Real, Times, hookimpl
from parcost_plugins.schedules.nearest import alike, fused, multiples, one_chunk


class Chimera:
    """Units of as many micro-batches as there are devices, an even number."""

    name = "chimera"
    copies = 2

    def limits(self, stages: int, micro_batches: int, chunks: int) -> str | None:
        """Return why there is no such schedule, if there is none."""
        if why := one_chunk(chunks):
            return why
        if stages % 2:
            return f"devices mirror one another in pairs: pp = {multiples(stages, 2)}"
        if micro_batches % stages:
            fitting = multiples(micro_batches, stages)
            return f"micro-batches pass in units of pp = {stages}: {fitting} micro-batches do"
        return None

    def order(self, stages: int, micro_batches: int, chunks: int) -> list[list[Op]]:  # noqa: ARG002
        """Return the passes of each device by slot, unit by unit."""
        return [
            [op for unit in range(0, micro_batches, stages) for op in _unit(d, stages, unit)]
            for d in range(stages)
        ]

    def closed_form(
        self,
        times: Times,
        hop: Real,
        stages: int,
        micro_batches: Real,
        chunks: int,  # noqa: ARG002
    ) -> tuple[Real, Mask]:
        """Return the makespan of one unit on equal stages, backward the longer pass."""
        both = fused(times)
        f, b = times.F[0], both[0]
        seconds = stages * f + (2 * stages - 2) * b
        mask = (hop == 0) & (micro_batches == stages) & (b >= f)
        return seconds, mask & alike(times.F, both)


def _unit(d: int, stages: int, first: int) -> list[Op]:
    """Return what device *d* does with the micro-batches from *first* on."""
    slots: list[tuple[int, Op]] = []
    for direction, s in enumerate((d, stages - 1 - d)):
        for j in range(stages // 2):
            batch = first + direction * (stages // 2) + j
            slots.append((s + 2 * j, Op("F", batch, s)))
            slots.append((2 * stages - 1 - s + 2 * j, Op("BW", batch, s)))
    return [op for _, op in sorted(slots)]


_CHIMERA = Chimera()


@hookimpl
def schedules() -> list[Chimera]:
    """Offer the schedule."""
    return [_CHIMERA]
