"""Data parallelism on a roofline: FLOPs of a step for each byte of its gradients."""

from __future__ import annotations

from collections.abc import Iterator

from parcost import Figure
from parcost.numeric import minimum, ratio
from parcost_plugins.figures.naming import figures_of
from parcost_plugins.vocabulary import Estimate

_TRAFFIC = 2.0  # a ring all-reduce over many replicas sends every gradient twice


def ridges(e: Estimate) -> Iterator[Figure]:
    """Yield what a step computes for a byte, and where the machine would be fed."""
    if e.parameters is None:
        return
    say = figures_of(e)
    flops = 6.0 * e.sequence * e.batch / e.dp / (e.tp * e.pp)
    sent = _TRAFFIC * e.weight / e.shards
    intensity = ratio(flops, sent)
    yield say(
        "intensity",
        "FLOPs for a byte of gradients",
        intensity,
        "",
        "6 N tokens / (2 N e)",
        note="FLOP/B, whatever N is",
        e=(e.weight, "B"),
    )
    rate = e.outer if e.outer is not None else e.inner
    if e.peak is None or rate is None:
        return
    ridge = e.peak / rate
    inputs = {"C": (intensity, ""), "R": (ridge, "")}
    yield say(
        "ridge",
        "FLOPs for a byte at which the link keeps up",
        ridge,
        "",
        "peak / B",
        peak=(e.peak, "FLOP/s"),
        B=(rate, "B/s"),
    )
    yield say(
        "fed",
        "share of the peak that the link can feed",
        minimum(1.0, ratio(intensity, ridge)),
        "%",
        "min(1, C / R)",
        **inputs,
    )
    at_ridge = ratio(e.batch * ridge, intensity)
    yield say("batch_at_ridge", "batch at the ridge", at_ridge, "", "batch R / C", **inputs)
    yield say(
        "batch_for_target",
        "batch that feeds the target share of the peak",
        e.target * at_ridge,
        "",
        "target batch R / C",
        target=(e.target, ""),
        **inputs,
    )
