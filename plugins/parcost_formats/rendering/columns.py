"""Columns of numbers: all rows have one unit, or prefixes of one kind (powers of 10 or 2)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from parcost.language.numbers import PREFIXES, ROUNDS_UP, count_digits, prefix_kinds, quantity


def column(values: Sequence[Any], unit: str) -> list[str]:
    """Return *values*, in base units, with prefixes of one kind: MiB and GiB, but never MiB and MB.

    Another kind of prefix is used if it makes every text shorter.

    >>> column([80 * 2**30, 25e6], "B"), column([1e9, 25e6], "B")
    (['80 GiB', '23.84 MiB'], ['1 GB', '25 MB'])
    """
    best, *others = (
        [quantity(v, unit, kinds=[kind]) for v in values] for kind in prefix_kinds(unit)
    )
    for texts in others:
        pairs = [(a, b) for a, b in zip(texts, best, strict=True) if a != b]
        if pairs and all(count_digits(a) < count_digits(b) for a, b in pairs):
            best = texts
    return best


class ColumnScale:
    """One unit and one number of decimals for a whole column, so that its rows can be compared.

    The unit is the smallest in which *largest* has at most four digits before the point; *digits*
    is the total number of digits of *largest*.

    >>> column = ColumnScale(4.434451, "s")
    >>> column.text(4.434451), column.text(0.0801056), column.unit
    ('4,434.45', '80.11', 'ms')
    """

    def __init__(self, largest: Any, unit: str, digits: int = 6) -> None:
        top = abs(float(largest))
        top = top if math.isfinite(top) else 1.0
        sizes = {"": 1.0, **PREFIXES.get(unit, {})}
        fits = [p for p, size in sizes.items() if top < 1e4 * size * ROUNDS_UP]
        prefix = min(fits, key=sizes.__getitem__) if fits else max(sizes, key=sizes.__getitem__)
        self.size, self.unit = sizes[prefix], prefix + unit
        self.decimals = max(0, digits - len(f"{top / self.size:.0f}"))

    def shows(self, value: Any) -> bool:
        """Return whether *value* is not rounded to 0 with the column's decimals."""
        return not abs(value / self.size) < 0.5 * 10.0**-self.decimals

    def text(self, value: Any) -> str:
        """Return *value* in the column's unit."""
        if not math.isfinite(value):
            return "never"
        return f"{value / self.size:,.{self.decimals}f}"
