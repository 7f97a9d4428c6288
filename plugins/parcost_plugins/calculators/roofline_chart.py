"""The roofline of a machine as a picture: a roof for its memory and each level of its fabric."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from parcost import Chart, Real, formula
from parcost.numeric import is_array
from parcost_plugins.vocabulary import Roofline

_WIDER = 10.0  # times the ridges that the axis reaches to either side


def ridge_chart(
    asked: Roofline, label: str, peak: Real, rates: list[tuple[str, Real]], source: str
) -> Iterator[Chart]:
    """Yield the picture of one machine; no picture for a sweep."""
    if is_array(peak, *(rate for _, rate in rates)):
        return
    yield Chart(
        name="ridges",
        title=f"Attainable FLOP/s by level: {label}",
        place=40,
        notes=[
            f"Left of a ridge point the limit is bandwidth, right of it the {asked.compute} peak.",
            "Large marks: ridge points.",
        ],
        spec=_SPEC,
        columns={
            "level": "level",
            "intensity": "FLOP/B",
            "rate": "reached",
            "formula": "formula",
        },
        rows=list(_rows(peak, rates, source)),
    )


def _rows(peak: Real, rates: list[tuple[str, Real]], source: str) -> Iterator[dict[str, Any]]:
    """Yield the corners of each roof: its left end, its ridge and its right end."""
    ridges = [peak / rate for _, rate in rates]
    left, right = min(ridges) / _WIDER, max(ridges) * _WIDER
    for (name, rate), ridge in zip(rates, ridges, strict=True):
        for intensity in (left, ridge, right):
            roof = formula(
                "min(F, I B)",
                F=(peak, "FLOP/s"),
                I=(intensity, "FLOP/B"),
                B=(rate, "B/s"),
                source=source,
            )
            yield {
                "level": name,
                "place": "ridge" if intensity == ridge else "end",
                "at": intensity,
                "intensity": (intensity, ""),
                "tera": roof.value / 1e12,
                "rate": (roof.value, "FLOP/s"),
                "formula": roof,
            }


_SPEC = {
    "height": 260,
    "encoding": {
        "x": {
            "field": "at",
            "type": "quantitative",
            "scale": {"type": "log", "nice": False},
            "axis": {"title": "FLOP per byte sent or read", "format": ",.12~g", "tickCount": 6},
        },
        "y": {
            "field": "tera",
            "type": "quantitative",
            "scale": {"type": "log", "nice": False},
            "axis": {"title": "rate (TFLOP/s)", "format": ",.12~g", "tickCount": 6},
        },
        "color": {"field": "level", "type": "nominal", "legend": {"title": None}},
    },
    "layer": [
        {"mark": "line"},
        {
            "mark": {"type": "point", "filled": True, "opacity": 1},
            "encoding": {
                "size": {
                    "field": "place",
                    "type": "ordinal",
                    "scale": {"domain": ["ridge", "end"], "range": [110, 24]},
                    "legend": None,
                }
            },
        },
    ],
}
