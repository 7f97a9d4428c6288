"""Integers of shell arithmetic: operators of C, variables, and assignments."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping, Sequence

_TOKEN = re.compile(
    r"\s*(?:(0[xX][0-9a-fA-F]{1,15}|\d{1,19})(?![\w#])|([A-Za-z_]\w*)"
    r"|(<<=|>>=|\*\*|\+\+|--|&&|\|\||<<|>>|[-+*/%&|^<>=!]=|[-+*/%()!~<>=&|^?:,]))"
)
_ASSIGNED = re.compile(
    r"(?<!\w)([A-Za-z_]\w*)(?:\[[^]]{0,200}\])?\s{0,20}(?:\+\+|--|(?:[-+*/%&|^]|<<|>>)?=(?!=))"
    r"|(?:\+\+|--)\s{0,20}([A-Za-z_]\w*)"
)
_LARGEST = 10**18
_DEEPEST = 15


class ArithmeticTextError(ValueError):
    """An expression is not supported shell arithmetic."""


def number(
    text: str,
    value: Callable[[str], int],
    assign: Callable[[str, int], None] | None = None,
) -> int:
    """Return the integer value of *text*; *value* returns the text of a variable.

    *assign* sets a name. Without it, an assignment is an error.

    >>> number("GPUS * (NODES + 1)", {"GPUS": 8, "NODES": 3}.__getitem__)
    32
    >>> number("NODES > 2 ? 1 << 4 : -7 / 2", {"NODES": 3}.__getitem__)
    16

    Raises:
        ArithmeticTextError: The text is not shell arithmetic, or has no value.
    """
    return _ArithmeticExpression(_symbols(text), value, assign).number()


def assigned_names(text: str) -> Sequence[str]:
    """Return the names that an expression assigns.

    >>> assigned_names("x = 2, ++y, z == 3")
    ['x', 'y']
    """
    return [found[1] or found[2] for found in _ASSIGNED.finditer(text)]


def _symbols(text: str) -> Sequence[str | int]:
    found: list[str | int] = []
    at = 0
    text = text.rstrip()
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise ArithmeticTextError(text)
        if match[1]:
            octal = len(match[1]) > 1 and match[1][0] == "0" and match[1][1] not in "xX"
            try:
                found.append(int(match[1], 8 if octal else 0))
            except ValueError:
                raise ArithmeticTextError(text) from None
        else:
            found.append(match[2] or match[3])
        at = match.end()
    return found


def _quotient(one: int, other: int) -> int:
    if not other:
        raise ArithmeticTextError
    return abs(one) // abs(other) * (1 if (one < 0) == (other < 0) else -1)


def _remainder(one: int, other: int) -> int:
    return one - _quotient(one, other) * other


def _power(one: int, other: int) -> int:
    if not 0 <= other <= 64:
        raise ArithmeticTextError
    return int(one**other)


def _shift(one: int, other: int) -> int:
    if not 0 <= other < 64:
        raise ArithmeticTextError
    return one << other


_LEVELS: Sequence[Mapping[str, Callable[[int, int], int]]] = (
    {"|": operator.or_},
    {"^": operator.xor},
    {"&": operator.and_},
    {"==": operator.eq, "!=": operator.ne},
    {"<": operator.lt, ">": operator.gt, "<=": operator.le, ">=": operator.ge},
    {"<<": _shift, ">>": lambda one, other: one >> min(max(other, 0), 64)},
    {"+": operator.add, "-": operator.sub},
    {"*": operator.mul, "/": _quotient, "%": _remainder},
)
_OPERATORS = {sign: apply for level in _LEVELS for sign, apply in level.items()}


_ASSIGNING = ("=", "+=", "-=", "*=", "/=", "%=", "&=", "|=", "^=", "<<=", ">>=")


class _ArithmeticExpression:
    def __init__(
        self,
        symbols: Sequence[str | int],
        value: Callable[[str], int],
        assign: Callable[[str, int], None] | None,
    ) -> None:
        self._symbols = symbols
        self._value = value
        self._assign = assign
        self._at = 0
        self._depth = 0
        self._idle = 0  # inside of a part that is not evaluated

    def number(self) -> int:
        """Return the value of the whole expression; an empty one is 0."""
        if not self._symbols:
            return 0
        found = self._list()
        if self._at < len(self._symbols):
            raise ArithmeticTextError
        return found

    def _list(self) -> int:
        found = self._choice()
        while self._take(","):
            found = self._choice()
        return found

    def _choice(self) -> int:
        name, sign = self._peek(), self._peek(1)
        if isinstance(name, str) and name.isidentifier() and sign in _ASSIGNING:
            self._at += 2
            found = self._nest(self._choice)
            if sign != "=":
                found = _OPERATORS[str(sign)[:-1]](self._read(name), found)
            return self._write(name, found)
        found = self._either()
        if not self._take("?"):
            return found
        one = self._skip(self._list, idle=not found)
        if not self._take(":"):
            raise ArithmeticTextError
        other = self._skip(self._choice, idle=bool(found))
        return one if found else other

    def _either(self) -> int:
        found = self._both()
        while self._take("||"):
            found = int(bool(self._skip(self._both, idle=bool(found)) or found))
        return found

    def _both(self) -> int:
        found = self._binary(0)
        while self._take("&&"):
            other = self._skip(lambda: self._binary(0), idle=not found)
            found = int(bool(found and other))
        return found

    def _binary(self, level: int) -> int:
        if level == len(_LEVELS):
            return self._raise_to_power()
        found = self._binary(level + 1)
        while isinstance(sign := self._peek(), str) and sign in _LEVELS[level]:
            self._at += 1
            other = self._binary(level + 1)
            found = 0 if self._idle else self._check(int(_LEVELS[level][sign](found, other)))
        return found

    def _raise_to_power(self) -> int:
        found = self._atom()
        if self._take("**"):
            found = self._check(_power(found, self._nest(self._raise_to_power)))
        return found

    def _atom(self) -> int:
        symbol = self._peek()
        self._at += 1
        if isinstance(symbol, int):
            return symbol
        if symbol == "-":
            return -self._nest(self._atom)
        if symbol == "+":
            return self._nest(self._atom)
        if symbol == "!":
            return int(not self._nest(self._atom))
        if symbol == "~":
            return ~self._nest(self._atom)
        if symbol == "(":
            found = self._nest(self._list)
            if not self._take(")"):
                raise ArithmeticTextError
            return found
        if symbol in ("++", "--"):
            name = self._peek()
            if not isinstance(name, str) or not name.isidentifier():
                raise ArithmeticTextError
            self._at += 1
            return self._write(name, self._read(name) + (1 if symbol == "++" else -1))
        if symbol is None or not symbol.isidentifier():
            raise ArithmeticTextError
        found = self._read(symbol)
        if (sign := self._peek()) in ("++", "--"):
            self._at += 1
            self._write(symbol, found + (1 if sign == "++" else -1))
        return found

    def _read(self, name: str) -> int:
        return 0 if self._idle else self._value(name)

    def _write(self, name: str, value: int) -> int:
        if self._assign is None:
            raise ArithmeticTextError
        if not self._idle:
            self._assign(name, self._check(value))
        return value

    def _skip(self, part: Callable[[], int], *, idle: bool) -> int:
        self._idle += idle
        found = part()
        self._idle -= idle
        return found

    def _nest(self, part: Callable[[], int]) -> int:
        self._depth += 1
        if self._depth > _DEEPEST:
            raise ArithmeticTextError
        found = part()
        self._depth -= 1
        return found

    def _take(self, symbol: str) -> bool:
        if self._peek() != symbol:
            return False
        self._at += 1
        return True

    def _peek(self, ahead: int = 0) -> str | int | None:
        at = self._at + ahead
        return self._symbols[at] if at < len(self._symbols) else None

    def _check(self, found: int) -> int:
        if abs(found) > _LARGEST:
            raise ArithmeticTextError
        return found
