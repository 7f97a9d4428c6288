"""Charts as whole specifications of Vega-Lite: with data, tooltips and the style of a page."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from parcost.contract.entries import ChartData

#: Colours that people with colour blindness tell apart (Okabe and Ito 2008).
PALETTE = (
    "#0072B2",
    "#E69F00",
    "#009E73",
    "#CC79A7",
    "#56B4E9",
    "#D55E00",
    "#B8A500",
    "#8C8C8C",
)
_FONT = "system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', sans-serif"
_LEGENDS = ("color", "shape", "strokeDash", "opacity")
_LETTER, _SYMBOL = 6.2, 34.0  # pixels, of a legend
_MOST_COLUMNS = 5
_INK = {"light": ("#1b1f24", "#57606a", "#d8dee4"), "dark": ("#e6edf3", "#9da7b1", "#30363d")}


def theme(name: str) -> dict[str, Any]:
    """Return the style of pictures on a page that is ``light`` or ``dark``."""
    ink, faint, line = _INK[name]
    axis = {
        "labelColor": faint,
        "titleColor": ink,
        "gridColor": line,
        "domainColor": faint,
        "tickColor": faint,
        "labelFontSize": 11,
        "titleFontSize": 12,
        "titleFontWeight": "normal",
        "labelLimit": 320,
        "labelSeparation": 6,
    }
    even = {"labelOverlap": "greedy", "labelFlush": False, "labelBound": False}
    legend = {"labelColor": ink, "titleColor": faint, "titleFontWeight": "normal", "orient": "top"}
    return {
        "background": "transparent" if name == "dark" else "white",
        "font": _FONT,
        "view": {"stroke": None},
        "axis": axis,
        "axisQuantitative": even,
        "legend": {**legend, "symbolLimit": 40},
        "title": {"color": ink, "subtitleColor": faint, "anchor": "start", "fontSize": 15},
        "range": {"category": list(PALETTE), "ramp": {"scheme": "cividis"}},
        "text": {"color": ink},
        "rule": {"color": ink},
        "bar": {"stroke": "#ffffff" if name == "light" else "#0d1117", "strokeWidth": 0.5},
    }


def legend_entry_width(chart: ChartData) -> int:
    """Return the width in pixels of the widest entry of a legend."""
    layers = [chart.spec, *chart.spec.get("layer", ())]
    used = [layer.get("encoding", {}).get(channel, {}) for layer in layers for channel in _LEGENDS]
    fields = {
        channel["field"] for channel in used if "field" in channel and channel.get("legend", 1)
    }
    texts = (row.get(field) for row in chart.rows for field in fields)
    longest = max((len(text) for text in texts if isinstance(text, str)), default=0)
    return round(_SYMBOL + _LETTER * longest)


def legend_style(entry_width: float, width: float) -> dict[str, Any]:
    """Return the style of a legend that fits into *width* pixels without cutting an entry."""
    columns = max(1, min(_MOST_COLUMNS, int(width // entry_width)))
    return {"columns": columns, "labelLimit": max(width - _SYMBOL, _SYMBOL)}


def specification(chart: ChartData, width: int | str) -> dict[str, Any]:
    """Return the whole Vega-Lite specification of a chart; tooltips show the columns of a row."""
    tooltip = [
        {"field": name, "title": title, "type": "nominal"} for title, name in chart.columns.items()
    ]
    encoding: Mapping[str, Any] = chart.spec.get("encoding", {})
    description = {"field": "description", "type": "nominal"}
    return {
        "$schema": "https://vega.github.io/schema/vega-lite/v6.json",
        "width": width,
        **chart.spec,
        "data": {"values": list(chart.rows)},
        "encoding": {**encoding, "tooltip": tooltip, "description": description},
    }
