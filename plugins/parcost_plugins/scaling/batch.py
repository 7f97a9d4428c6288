"""Efficiency over the batch size: compute grows with it, traffic does not.

The intensity is FLOPs per sent byte, and the ridge point is peak / bandwidth of the machine. Their
ratio is r. The efficiency is min(r, 1) if communication overlaps with compute, else r / (1 + r).
The batch at the ridge is the critical batch, in samples.
"""

from __future__ import annotations

from collections.abc import Iterator

from parcost import Figure, Sheet, block_name
from parcost_plugins.vocabulary import BatchScaling

ROOFLINE = "Williams et al. 2009, roofline, with the link in the place of memory"


def figures(scaling: BatchScaling) -> Iterator[Figure]:
    """Yield intensity, ridge, efficiency and the critical batch."""
    sheet = Sheet(
        block_name(scaling),
        source=ROOFLINE,
        F=(scaling.flops, "FLOP"),
        b=scaling.batch,
        n=(scaling.traffic, "B"),
        peak=(scaling.peak, "FLOP/s"),
        B=(scaling.bandwidth, "B/s"),
        t=scaling.target,
    )
    yield sheet("intensity", "compute / traffic", "FLOP/B", "F b / n")
    yield sheet("ridge", "compute / traffic at which both take equal time", "FLOP/B", "peak / B")
    sheet.symbols["r"] = sheet.formula("intensity / ridge")
    samples = "samples, per device"
    yield sheet(
        "critical_batch",
        "batch at the ridge point",
        "",
        "ratio(b, r), r intensity over ridge point",
        note=samples,
    )
    yield sheet("efficiency", "efficiency with overlap", "%", "min(r, 1)")
    yield sheet(
        "efficiency_exposed",
        "efficiency without overlap",
        "%",
        "r / (1 + r)",
    )
    yield sheet(
        "batch_for_target",
        "batch for the target with overlap",
        "",
        "t critical_batch",
        note=samples,
    )
    yield sheet(
        "batch_for_target_exposed",
        "batch for the target without overlap",
        "",
        "t critical_batch / (1 - t)",
        note=samples,
    )
