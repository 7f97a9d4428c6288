"""Whole numbers of shell arithmetic: sums, products, brackets and names."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

_TOKEN = re.compile(r"\s*(?:(\d+)|\$?\{?([A-Za-z_]\w*)\}?|([-+*/%()]))")
_LARGEST = 10**18
_DEEPEST = 50


class ArithmeticTextError(ValueError):
    """An expression that is no arithmetic of this kind."""


def number(text: str, value: Callable[[str], int]) -> int:
    """Return the number that *text* is; *value* returns those of names.

    >>> number("$GPUS * (NODES + 1)", {"GPUS": 8, "NODES": 3}.__getitem__)
    32

    Raises:
        ArithmeticTextError: The text is something else, or has no value.
    """
    return _ArithmeticExpression(_symbols(text), value).number()


def _symbols(text: str) -> Sequence[str | int]:
    found: list[str | int] = []
    at = 0
    text = text.rstrip()
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None or len(match[1] or "") > 18 or _is_octal(match[1] or ""):
            raise ArithmeticTextError(text)
        found.append(int(match[1]) if match[1] else match[2] or match[3])
        at = match.end()
    return found


def _is_octal(text: str) -> bool:
    return len(text) > 1 and text[0] == "0"


class _ArithmeticExpression:
    def __init__(self, symbols: Sequence[str | int], value: Callable[[str], int]) -> None:
        self._symbols = symbols
        self._value = value
        self._at = 0
        self._depth = 0

    def number(self) -> int:
        """Return the value of all symbols."""
        found = self._sum()
        if self._at < len(self._symbols):
            raise ArithmeticTextError
        return found

    def _sum(self) -> int:
        found = self._product()
        while (sign := self._peek()) in ("+", "-"):
            self._at += 1
            other = self._product()
            found = found + other if sign == "+" else found - other
        return self._checked(found)

    def _product(self) -> int:
        found = self._atom()
        while (sign := self._peek()) in ("*", "/", "%"):
            self._at += 1
            other = self._atom()
            if sign == "*":
                found = self._checked(found * other)
            elif other == 0:
                raise ArithmeticTextError
            else:
                whole = abs(found) // abs(other) * (1 if (found < 0) == (other < 0) else -1)
                found = whole if sign == "/" else found - whole * other
        return found

    def _atom(self) -> int:
        symbol = self._peek()
        self._at += 1
        if isinstance(symbol, int):
            return symbol
        if symbol == "-":
            return -self._nested(self._atom)
        if symbol == "(":
            found = self._nested(self._sum)
            if self._peek() != ")":
                raise ArithmeticTextError
            self._at += 1
            return found
        if symbol is None or not symbol[0].isidentifier():
            raise ArithmeticTextError
        return self._value(symbol)

    def _nested(self, part: Callable[[], int]) -> int:
        self._depth += 1
        if self._depth > _DEEPEST:
            raise ArithmeticTextError
        found = part()
        self._depth -= 1
        return found

    def _peek(self) -> str | int | None:
        return self._symbols[self._at] if self._at < len(self._symbols) else None

    def _checked(self, found: int) -> int:
        if abs(found) > _LARGEST:
            raise ArithmeticTextError
        return found
