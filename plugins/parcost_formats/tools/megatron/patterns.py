"""Python list expressions such as ``([0]*3+[1]*58)``, parsed by a small grammar, not evaluated."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

_SYMBOL = re.compile(r"\s*(\d+|[-+*,()\[\]])")
_DEEPEST = 20
#: Layers that a list can have.
MOST_LAYERS = 100_000


class LayerListError(ValueError):
    """A text is not a list of integers."""


class Period(NamedTuple):
    """Layers at a period: after *first* layers, the last of each *every*."""

    first: int
    every: int


def pattern(text: str) -> Sequence[int]:
    """Return the integers of a Python list expression.

    >>> pattern("([0]*2+[1])*2")
    [0, 0, 1, 0, 0, 1]

    Raises:
        LayerListError: The text is something else.
    """
    return _ListExpression(text).numbers()


def period(numbers: Sequence[int]) -> Period | None:
    """Return the period of the ones in *numbers*, None if they have none.

    >>> period([0, 0, 0, 1, 1, 1]), period([0, 1, 0, 1]), period([1, 0, 1])
    (Period(first=3, every=1), Period(first=0, every=2), None)
    """
    ones = [place for place, one in enumerate(numbers) if one]
    if not ones:
        return None
    every = ones[1] - ones[0] if len(ones) > 1 else 1
    first = ones[0] - every + 1
    whole = (len(numbers) - first) // every
    if first < 0 or ones != [first + every * turn + every - 1 for turn in range(whole)]:
        return None
    return Period(first, every)


class _ListExpression:
    """A parser of sums and products of lists."""

    def __init__(self, text: str) -> None:
        self._symbols: list[str] = []
        self._at = 0
        self._depth = 0
        text = text.strip()
        at = 0
        while at < len(text):
            found = _SYMBOL.match(text, at)
            if found is None or len(found[1]) > 6:
                raise LayerListError(text)
            self._symbols.append(found[1])
            at = found.end()

    def numbers(self) -> Sequence[int]:
        """Return the integers of the whole text."""
        found = self._sum()
        if self._at < len(self._symbols) or isinstance(found, int):
            raise LayerListError
        return found

    def _sum(self) -> list[int] | int:
        found = self._product()
        while self._take("+"):
            other = self._product()
            if isinstance(found, int) or isinstance(other, int):
                raise LayerListError
            found = _short(len(found) + len(other)) and [*found, *other]
        return found

    def _product(self) -> list[int] | int:
        found = self._atom()
        while self._take("*"):
            other = self._atom()
            times, one = (found, other) if isinstance(found, int) else (other, found)
            if not isinstance(times, int):
                raise LayerListError
            if isinstance(one, int):
                found = _short(times * one)
            else:
                _short(times * len(one))
                found = one * times
        return found

    def _atom(self) -> list[int] | int:
        if self._take("("):
            self._depth += 1
            if self._depth > _DEEPEST:
                raise LayerListError
            found = self._sum()
            self._depth -= 1
            if not self._take(")"):
                raise LayerListError
            return found
        if not self._take("["):
            return self._number()
        numbers: list[int] = []
        while not self._take("]"):
            numbers.append(self._number())
            if not self._take(",") and self._peek() != "]":
                raise LayerListError
        return numbers

    def _number(self) -> int:
        symbol = self._peek()
        if not symbol.isdecimal():
            raise LayerListError
        self._at += 1
        return int(symbol)

    def _take(self, symbol: str) -> bool:
        if self._peek() != symbol:
            return False
        self._at += 1
        return True

    def _peek(self) -> str:
        return self._symbols[self._at] if self._at < len(self._symbols) else ""


def _short(count: int) -> int:
    """Return *count*; raise if a list would be too long."""
    if count > MOST_LAYERS:
        raise LayerListError
    return count
