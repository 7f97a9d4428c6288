"""Axes and colors shared by charts, as parts of Vega-Lite specifications."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from parcost_plugins.vocabulary.causes import OTHER

_BYTE_LABEL = (
    "datum.value < 1 ? format(datum.value, '~g') + ' B' : "
    "format(datum.value / pow(1024, floor(log(datum.value) / log(1024) + 1e-9)), '~r') + ' ' + "
    "['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB'][floor(log(datum.value) / log(1024) + 1e-9)]"
)
_TIME_TICKS = tuple(float(f"1e{power}") for power in range(-9, 7))
_TIME_LABEL = (
    "datum.value < 1e-6 ? format(datum.value * 1e9, '~r') + ' ns' : "
    "datum.value < 0.999e-3 ? format(datum.value * 1e6, '~r') + ' µs' : "
    "datum.value < 0.999 ? format(datum.value * 1e3, '~r') + ' ms' : "
    "format(datum.value, '~r') + ' s'"
)
_TIME_UNITS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (0.0, "ns"))
_TIME_FACTORS = {"s": "1", "ms": "1e3", "µs": "1e6", "ns": "1e9"}


#: A logarithmic axis of buffer sizes, labeled in B, KiB, MiB and so on.
BUFFER_AXIS = {
    "title": "size of the buffer",
    "values": [float(8**power) for power in range(18)],  # 1 B to 2 PiB
    "labelExpr": _BYTE_LABEL,
}


def log_time_axis(title: str) -> dict[str, Any]:
    """Return a logarithmic axis of seconds; each label has its unit."""
    return {"title": title, "values": list(_TIME_TICKS), "labelExpr": _TIME_LABEL}


def time_axis(title: str, longest: float) -> dict[str, Any]:
    """Return a linear axis from 0 to about *longest* seconds, in a suitable unit."""
    unit = next(name for least, name in _TIME_UNITS if longest >= least)
    return {
        "title": f"{title} ({unit})",
        "tickCount": 8,
        "labelExpr": f"format(datum.value * {_TIME_FACTORS[unit]}, '~r')",
    }


def number_axis(title: str, unit: str) -> dict[str, Any]:
    """Return an axis of numbers in base *unit*: large ones with a unit are abbreviated."""
    if unit in ("B", "GiB"):
        return {"title": title, "labelExpr": _BYTE_LABEL}
    if unit == "s":
        return {"title": title, "labelExpr": _TIME_LABEL}
    return {
        "title": f"{title} ({unit})" if unit else title,
        "format": "~s" if unit else ",.12~g",
    }


def colored_cause(cause: str) -> str:
    """Return *cause* if it has a color, else ``other``."""
    return cause if getattr(cause, "color", "") else OTHER


def cause_scale(causes: Iterable[str]) -> dict[str, Any]:
    """Return the color scale of :func:`colored_cause`."""
    colors = {cause: getattr(cause, "color", "") for cause in map(colored_cause, causes)}
    return {"domain": list(map(str, colors)), "range": list(colors.values())}
