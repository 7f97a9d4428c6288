"""Parts of a JSON text.

Most of a report consists of formulas, which repeat words and numbers from line to line. So their
parts are encoded directly and memoised, instead of copied into plain data first.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from json.encoder import encode_basestring_ascii
from math import isfinite
from typing import Any

from parcost.language.json_encoding import Json, encode, plain_data

NULL = Json("null")
_KEPT = 4096


def members(pairs: Mapping[str, Json]) -> Json:
    """Return a JSON object with these members.

    >>> members({"name": text("step"), "value": number(1.5), "note": NULL})
    '{"name":"step","value":1.5,"note":null}'
    """
    return Json("{" + ",".join([f"{text(name)}:{value}" for name, value in pairs.items()]) + "}")


def array(items: Iterable[Json]) -> Json:
    """Return a JSON array of these items."""
    return Json("[" + ",".join(items) + "]")


def number(value: Any) -> Json:
    """Return a JSON number, or a list for an array; null for infinity and NaN.

    >>> number(2.0), number(-0.0), number(float("inf"))
    ('2.0', '-0.0', 'null')
    """
    if value.__class__ is not float:
        return encode(plain_data(value))
    if value:
        return _float_text(value) if isfinite(value) else NULL
    return Json(repr(value))  # 0.0 and -0.0 are equal, and spelled apart


@lru_cache(_KEPT)
def text(value: str) -> Json:
    """Return a JSON string."""
    return Json(encode_basestring_ascii(value))


@lru_cache(_KEPT)
def _float_text(value: float) -> Json:
    return Json(repr(value))
