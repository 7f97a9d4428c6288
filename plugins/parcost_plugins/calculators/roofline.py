"""The communication roofline of a machine: the FLOPs per byte at the ridge.

The ridge of a link with bandwidth B and a peak F is at F / B FLOPs per byte. Every level of a
fabric has a ridge, and so has the memory. Peaks are dense and bandwidths are per direction, as
everywhere in parcost. A sparse peak / the bandwidth of both directions gives the same ridge.
"""

from __future__ import annotations

from collections.abc import Iterator

from parcost import Chart, Check, Curve, Figure, Real, Section, Study, formula, hookimpl
from parcost.numeric import maximum
from parcost_plugins.calculators.rulebook import RULES
from parcost_plugins.vocabulary import Level, Roofline

_NOTE = (
    "{compute} peak / bandwidth in one direction; work with fewer FLOPs per byte is limited by "
    "the level"
)
_SOURCE = "Williams, Waterman, Patterson 2009, with a link in place of the memory"


@hookimpl
def calculations(study: Study) -> Iterator[Figure | Section | Check]:
    """Return the ridges of every ``roofline`` block."""
    for asked in study.all(Roofline):
        peak: Real | None = getattr(asked.device, asked.compute)
        label = _label(asked)
        yield _peak_check(asked, label)
        if peak is None:
            continue
        rates = list(_rates(asked))
        yield from (_ridge(label, name, peak, rate) for name, rate in rates)
        yield Section(
            title=f"Ridge points of {label}",
            columns=("level", "bandwidth of a device", "ridge point, FLOP/B"),
            rows=[(name, (rate, "B/s"), peak / rate) for name, rate in rates],
            notes=[_NOTE.format(compute=asked.compute)],
        )


@hookimpl
def charts(study: Study) -> Iterator[Chart]:
    """Return a picture of each machine: its roofs over FLOPs per byte."""
    for asked in study.all(Roofline):
        peak: Real | None = getattr(asked.device, asked.compute)
        if peak is not None:
            from parcost_plugins.calculators.roofline_chart import ridge_chart

            yield from ridge_chart(asked, _label(asked), peak, list(_rates(asked)), _SOURCE)


def _label(asked: Roofline) -> str:
    label: str = vars(asked)["label"]
    return label


def _peak_check(asked: Roofline, label: str) -> Check:
    device = asked.device
    offered = [n for n in ("fp32", "tf32", "fp16", "bf16", "fp8", "fp4") if getattr(device, n)]
    return RULES.check(
        "roofline-no-peak",
        getattr(device, asked.compute) is not None,
        f"{label}.compute",
        help=f"choose a type that it has: {', '.join(offered)}",
        compute=asked.compute,
    )


def _ridge(label: str, name: str, peak: Real, rate: Real) -> Figure:
    return Figure(
        name=f"{label}.{name}",
        title=f"{label}: ridge point of {name}",
        value=formula("F / B", F=(peak, "FLOP/s"), B=(rate, "B/s"), source=_SOURCE),
        unit="",
        note="FLOP/B",
    )


def _rates(asked: Roofline) -> Iterator[tuple[str, Real]]:
    """Yield the memory and each level, each with its bandwidth per device."""
    yield "memory", asked.device.memory_bandwidth
    below: Real = 1.0
    for level in asked.fabric.levels:
        ports = 1.0 if level.ports is None else level.ports / below
        if level.kind == "mesh" and level.size is not None:
            ports = ports * maximum(level.size - 1.0, 1.0)  # a link to each of the others
        yield vars(level)["label"], _bandwidth(level) * ports
        if level.size is not None:
            below = below * level.size


def _bandwidth(level: Level) -> Real:
    rate = level.bandwidth
    if isinstance(rate, Curve):
        longest: float = rate.sizes[-1] / rate.seconds[-1]
        return longest * level.efficiency
    return rate * level.efficiency
