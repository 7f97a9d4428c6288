"""Efficiency against the batch: compute grows with it, traffic does not.

Intensity is FLOP per byte sent; the ridge is that of the machine, peak over bandwidth.
Their ratio r is the efficiency up to 1 where traffic hides under compute, and r / (1 + r)
where it does not. The batch at the ridge is the critical one: a number of samples.
"""

from __future__ import annotations

from collections.abc import Iterator

from parcost import Figure, Formula, Real
from parcost.numeric import minimum, where
from parcost.numeric import ratio as share
from parcost_plugins.scaling.saying import figure, plain
from parcost_plugins.vocabulary import BatchScaling

ROOFLINE = "Williams et al. 2009, roofline, with the link in the place of memory"


def figures(scaling: BatchScaling) -> Iterator[Figure]:
    """Yield intensity, ridge, efficiency and the batches that matter."""
    intensity = scaling.flops * scaling.batch / scaling.traffic
    ridge = scaling.peak / scaling.bandwidth
    ratio = intensity / ridge
    critical = share(scaling.batch, ratio)
    yield figure(
        scaling,
        "intensity",
        "compute over traffic",
        intensity,
        "FLOP/B",
        Formula(
            text="F b / n",
            inputs={
                "F": (scaling.flops, "FLOP"),
                "b": (scaling.batch, ""),
                "n": (scaling.traffic, "B"),
            },
            source=ROOFLINE,
        ),
    )
    yield figure(
        scaling,
        "ridge",
        "compute over traffic at which both take as long",
        ridge,
        "FLOP/B",
        Formula(
            text="peak / B",
            inputs={"peak": (scaling.peak, "FLOP/s"), "B": (scaling.bandwidth, "B/s")},
            source=ROOFLINE,
        ),
    )
    yield figure(
        scaling,
        "critical_batch",
        "batch at the ridge",
        critical,
        "",
        plain("b / r, r intensity over ridge", ROOFLINE, b=scaling.batch, r=ratio),
        "samples, per device",
    )
    yield from _efficiency(scaling, ratio, critical)


def _efficiency(scaling: BatchScaling, ratio: Real, critical: Real) -> Iterator[Figure]:
    target = scaling.target
    yield figure(
        scaling,
        "efficiency",
        "efficiency where traffic hides under compute",
        minimum(ratio, 1.0),
        "%",
        plain("min(r, 1)", ROOFLINE, r=ratio),
    )
    yield figure(
        scaling,
        "efficiency_exposed",
        "efficiency where traffic hides under nothing",
        ratio / (1.0 + ratio),
        "%",
        plain("r / (1 + r)", ROOFLINE, r=ratio),
    )
    yield figure(
        scaling,
        "batch_for_target",
        "batch for the target where traffic hides",
        target * critical,
        "",
        plain("t b*", target=target, critical=critical),
        "samples, per device",
    )
    left = where(target < 1.0, 1.0 - target, 0.0)
    yield figure(
        scaling,
        "batch_for_target_exposed",
        "batch for the target where traffic hides under nothing",
        _never(target * critical, left),
        "",
        plain("t b* / (1 - t)", target=target, critical=critical),
        "samples, per device",
    )


def _never(part: Real, left: Real) -> Real:
    """Return *part* / *left*; no batch is large enough where nothing is left."""
    return where(left > 0, part / where(left > 0, left, 1.0), float("inf"))
