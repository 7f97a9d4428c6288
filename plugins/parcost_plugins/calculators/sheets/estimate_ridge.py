"""Data parallelism on a roofline: FLOPs of a step for each byte of its gradients."""

from __future__ import annotations

from collections.abc import Iterator

from parcost import Figure, Sheet
from parcost_plugins.vocabulary import Estimate


def ridges(e: Estimate, sheet: Sheet) -> Iterator[Figure]:
    """Yield the FLOPs per gradient byte of a step, and the batch that reaches the machine's ridge.

    A ring all-reduce over many replicas sends every gradient twice.
    """
    if e.parameters is None:
        return
    yield sheet(
        "intensity",
        "FLOPs per byte of gradients",
        "",
        "ratio(6 s samples / (tp pp), 2 w / shards)",
        note="FLOP/B, independent of N",
    )
    rate = e.outer if e.outer is not None else e.inner
    if e.peak is None or rate is None:
        return
    yield sheet(
        "ridge",
        "FLOPs per byte at the ridge point of the link",
        "",
        "peak / B",
        B=(rate, "B/s"),
    )
    yield sheet(
        "fed",
        "largest share of the peak, limited by the link",
        "%",
        "min(1, intensity / ridge)",
    )
    yield sheet("batch_at_ridge", "batch at the ridge point", "", "ratio(batch ridge, intensity)")
    yield sheet(
        "batch_for_target",
        "batch for the target share of the peak",
        "",
        "target batch_at_ridge",
        target=e.target,
    )
