"""Whether a schedule defers weight gradients."""

from __future__ import annotations

from typing import Any

from parcost import PipelineShape, Study, stage_number

_orders: dict[tuple[int, int, int], tuple[Any, bool]] = {}


@stage_number
def defers_weight_gradients(study: Study) -> bool:
    """Return whether the schedule ever separates input and weight gradients.

    Determined from its order for a few numbers of micro-batches, and cached by the identity of the
    schedule.
    """
    cut = study.pipeline
    _, schedule = study.plugins.offers("schedules")[cut.schedule]
    key = (id(schedule), cut.stages, cut.chunks)
    if key not in _orders:
        some = (
            PipelineShape(stages=cut.stages, micro_batches=m, chunks=cut.chunks)
            for m in range(2 * cut.stages, 6 * cut.stages + 3)
        )
        m = next((shape.micro_batches for shape in some if not schedule.limits(shape)), 0)
        order = schedule.order(cut.stages, m, cut.chunks) if m else []
        _orders[key] = (schedule, any(op[0] == "W" for ops in order for op in ops))
    return _orders[key][1]
