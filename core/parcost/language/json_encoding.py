"""Plain data as JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from math import isfinite
from typing import Any, NewType

#: A text that is JSON.
Json = NewType("Json", str)


_encode = json.JSONEncoder(  # in ASCII, which takes two thirds of the time
    allow_nan=False, separators=(",", ":"), check_circular=False
).encode


def encode(value: Any) -> Json:
    """Return plain data as JSON without spaces."""
    return Json(_encode(value))


def plain_data(value: Any) -> Any:
    """Return *value* in the types of JSON; None for infinity and NaN.

    >>> plain_data((1, float("inf"), "x", {"a": 2.5}))
    [1, None, 'x', {'a': 2.5}]
    """
    if value.__class__ is float:  # most are
        return value if isfinite(value) else None
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return value if isfinite(value) else None
        case Mapping():
            return {str(k): plain_data(v) for k, v in value.items()}
        case _ if hasattr(value, "tolist"):
            return plain_data(value.tolist())
        case list() | tuple():
            return [plain_data(v) for v in value]
        case _ if getattr(value, "label", ""):
            return value.label
    return str(value)
