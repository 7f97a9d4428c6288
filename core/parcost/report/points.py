"""Values of a result at single points of a sweep."""

from __future__ import annotations

from typing import Any


def at(value: Any, point: int) -> Any:
    """Return the value of a number or array at one point, as a plain number."""
    if not hasattr(value, "ndim") or value.ndim == 0:
        return value.item() if hasattr(value, "item") else value
    return value[point].item()
