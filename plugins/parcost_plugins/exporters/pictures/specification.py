"""Charts as whole specifications of Vega-Lite: with data, tooltips and the look of a page."""

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
_INK = {"light": ("#1b1f24", "#57606a", "#d8dee4"), "dark": ("#e6edf3", "#9da7b1", "#30363d")}


def theme(name: str) -> dict[str, Any]:
    """Return the look of pictures on a page that is ``light`` or ``dark``."""
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
        "labelLimit": 220,
    }
    legend = {"labelColor": ink, "titleColor": faint, "titleFontWeight": "normal", "orient": "top"}
    return {
        "background": "transparent" if name == "dark" else "white",
        "font": _FONT,
        "view": {"stroke": None},
        "axis": axis,
        "legend": {**legend, "labelLimit": 260, "symbolLimit": 40, "columns": 5},
        "title": {"color": ink, "subtitleColor": faint, "anchor": "start", "fontSize": 15},
        "range": {"category": list(PALETTE), "ramp": {"scheme": "cividis"}},
        "text": {"color": ink},
        "rule": {"color": ink},
        "bar": {"stroke": "#ffffff" if name == "light" else "#0d1117", "strokeWidth": 0.5},
    }


def specification(chart: ChartData, width: int | str) -> dict[str, Any]:
    """Return a chart with its data; each mark shows the columns of its row."""
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
