"""1F1B: fill with as many forward passes as there are stages behind, then alternate."""

from __future__ import annotations

from parcost import Op, hookimpl


class OneFOneB:
    """As long as GPipe, with at most p - s micro-batches alive on stage s."""

    name = "one_f_one_b"

    def limits(self, stages: int, micro_batches: int, chunks: int) -> str | None:  # noqa: ARG002
        """Return why there is no such schedule, if there is none."""
        return None if chunks == 1 else "it has one model chunk per device"

    def order(self, stages: int, micro_batches: int, chunks: int) -> list[list[Op]]:  # noqa: ARG002
        """Return warm-up, steady state and cool-down of each device."""
        return [_stage(s, stages, micro_batches) for s in range(stages)]


def _stage(s: int, stages: int, m: int) -> list[Op]:
    warm_up = min(stages - 1 - s, m)
    ops = [Op("F", j, s) for j in range(warm_up)]
    for i in range(m - warm_up):
        ops += [Op("F", warm_up + i, s), Op("BW", i, s)]
    return ops + [Op("BW", i, s) for i in range(m - warm_up, m)]


_ONE_F_ONE_B = OneFOneB()


@hookimpl
def schedules() -> list[OneFOneB]:
    """Offer the schedule."""
    return [_ONE_F_ONE_B]
