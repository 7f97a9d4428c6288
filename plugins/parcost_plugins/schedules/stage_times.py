"""Suggestions of valid values, and tests for equal stages."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from parcost import Mask, Real
from parcost.numeric import maximum, minimum


def multiples(value: int, unit: int, least: int = 0) -> str:
    """Return the multiples of *unit* nearest to *value* that are at least *least*.

    >>> multiples(10, 4), multiples(3, 4), multiples(10, 4, 16)
    ('8 or 12', '4', '16')
    """
    floor = -(-max(least, unit) // unit) * unit
    below, above = value // unit * unit, -(-value // unit) * unit
    return " or ".join(str(n) for n in sorted({max(below, floor), max(above, floor)}))


def one_chunk(chunks: int) -> str | None:
    """Return the reason why a schedule with one chunk per device rejects *chunks*, or None."""
    return None if chunks == 1 else "it has one model chunk per device: chunks = 1"


def two_chunks(chunks: int) -> str | None:
    """Return the reason why a V-shaped schedule rejects *chunks*, or None."""
    why = "it has two model chunks per device, one on the way down and one on the way up"
    return None if chunks == 2 else f"{why}: chunks = 2"


def is_uniform(*columns: Sequence[Real]) -> Mask:
    """Return whether each of *columns* has equal values on all stages."""
    mask: Mask = True
    for column in columns:
        for time in column[1:]:
            if time is not column[0]:
                mask = mask & (time == column[0])
    return mask


def maximum_of(values: Iterable[Real]) -> Real:
    """Return the largest of *values*, elementwise."""
    first, *rest = values
    for value in rest:
        first = maximum(first, value)
    return first


def minimum_of(values: Iterable[Real]) -> Real:
    """Return the smallest of *values*, elementwise."""
    first, *rest = values
    for value in rest:
        first = minimum(first, value)
    return first
