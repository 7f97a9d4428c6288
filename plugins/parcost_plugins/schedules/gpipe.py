"""GPipe: all forward passes, then all backward passes."""

from __future__ import annotations

from parcost import Op, hookimpl


class GPipe:
    """Every stage keeps every micro-batch alive, and the bubble is (p - 1) of each pass."""

    name = "gpipe"

    def limits(self, stages: int, micro_batches: int, chunks: int) -> str | None:  # noqa: ARG002
        """Return why there is no such schedule, if there is none."""
        return None if chunks == 1 else "it has one model chunk per device"

    def order(self, stages: int, micro_batches: int, chunks: int) -> list[list[Op]]:  # noqa: ARG002
        """Return all F, then all BW, on each device; one virtual stage each."""
        return [
            [Op(kind, j, s) for kind in ("F", "BW") for j in range(micro_batches)]
            for s in range(stages)
        ]


_GPIPE = GPipe()


@hookimpl
def schedules() -> list[GPipe]:
    """Offer the schedule."""
    return [_GPIPE]
