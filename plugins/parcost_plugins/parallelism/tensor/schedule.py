"""Whether a schedule puts weight gradients off."""

from __future__ import annotations

from typing import Any

from parcost import Study

_orders: dict[tuple[int, int, int], tuple[Any, bool]] = {}


def puts_off_weight_gradients(study: Study) -> bool:
    """Say whether the schedule ever has input and weight gradients apart.

    Its order for a few micro-batches tells. A schedule is known by its identity, and
    kept so that its identity stays its own.
    """
    cut = study.pipeline
    _, schedule = study.plugins.offers("schedules")[cut.schedule]
    key = (id(schedule), cut.stages, cut.chunks)
    if key not in _orders:
        limits = getattr(schedule, "limits", lambda *_: None)
        some = range(2 * cut.stages, 6 * cut.stages + 3)
        m = next((m for m in some if not limits(cut.stages, m, cut.chunks)), 0)
        order = schedule.order(cut.stages, m, cut.chunks) if m else []
        _orders[key] = (schedule, any(op[0] == "W" for ops in order for op in ops))
    return _orders[key][1]
