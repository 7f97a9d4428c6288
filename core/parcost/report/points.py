"""Numbers and arrays of a result, point by point."""

from __future__ import annotations

from typing import Any


def at(value: Any, point: int) -> Any:
    """Return a number or array at one point, as a plain number."""
    if not hasattr(value, "ndim") or value.ndim == 0:
        return value.item() if hasattr(value, "item") else value
    return value[point].item()
