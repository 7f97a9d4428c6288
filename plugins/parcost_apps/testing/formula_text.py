"""A parser of printed formulas, independent of the one in the product.

It parses a text by operator precedence, and computes the value from the printed inputs. Text after
a comma is a remark. A symbol with several numbers is printed as ``g[node]`` and ``g[rail]``.
``sum(E)``, ``max(E)`` and ``min(E)`` evaluate E for each name.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

_WORD = re.compile(r"[A-Za-z_]\w*'*(\[[^\]]*\])?")
_NUMBER = re.compile(r"\d+(\.\d+)?([eE][+-]?\d+)?")
_STRENGTHS: Mapping[str, int] = {
    **dict.fromkeys(("<", "<=", ">", ">=", "==", "!="), 2),
    **dict.fromkeys("+-", 3),
    **dict.fromkeys("*/", 4),
    "^": 6,
}
_DOES: Mapping[str, Callable[[Any, Any], Any]] = {
    "+": np.add,
    "-": np.subtract,
    "*": np.multiply,
    "/": np.divide,
    "^": np.power,
    "<": np.less,
    "<=": np.less_equal,
    ">": np.greater,
    ">=": np.greater_equal,
    "==": np.equal,
    "!=": np.not_equal,
}
_CALLS: Mapping[str, Callable[..., Any]] = {
    "max": lambda *values: np.maximum.reduce(np.broadcast_arrays(*values)),
    "min": lambda *values: np.minimum.reduce(np.broadcast_arrays(*values)),
    "ratio": lambda a, b: np.where(b != 0, a / b, np.where(a == 0, 0.0, np.inf)),
    "ceil": np.ceil,
    "floor": np.floor,
    "sqrt": np.sqrt,
    "exp": np.exp,
    "expm1": np.expm1,
    "ln": np.log,
    "log2": np.log2,
}


def compute(text: str, inputs: Mapping[str, Any]) -> Any:
    """Return the value of *text* for the numbers of its symbols.

    >>> float(compute("2 (P - 1) n / (P B)", {"P": 8.0, "n": 16.0, "B": 2.0}))
    14.0
    >>> float(compute("sum(g n) + max(g)", {"g[a]": 1.0, "g[b]": 2.0, "n": 5.0}))
    17.0
    >>> float(compute("n > 4 ? -n^2 : 0", {"n": 5.0}))
    -25.0
    """
    with np.errstate(all="ignore"):
        reader = _FormulaReader(text, inputs)
        found = reader.expression(0)
        assert not reader.rest() or reader.rest()[0] == ",", (
            f"`{text}` goes on with `{reader.rest()}`"
        )
        return np.asarray(found, dtype=float)


class _FormulaReader:
    def __init__(self, text: str, inputs: Mapping[str, Any]) -> None:
        self.text, self.inputs, self.at, self.item = text, inputs, 0, ""

    def rest(self) -> str:
        return self.text[self.at :].lstrip()

    def skip(self, count: int) -> None:
        self.at = len(self.text) - len(self.rest()) + count

    def operator(self) -> str:
        rest = self.rest()
        for operator in ("<=", ">=", "==", "!="):
            if rest.startswith(operator):
                return operator
        if rest[:1] in _STRENGTHS:
            return rest[0]
        return "" if rest[:1] in ("", ")", ",", ":", "?") else " "

    def expression(self, least: int) -> Any:
        rest = self.rest()
        if rest.startswith("-"):
            self.skip(1)
            value = -self.expression(5)
        else:
            value = self.primary()
        while True:
            operator = self.operator()
            strength = _STRENGTHS.get(operator, 4)
            if operator and strength >= max(least, 1):
                self.skip(len(operator.strip()))
                # powers are taken from the right, all else from the left
                other = self.expression(5 if operator == "^" else strength + 1)
                value = _DOES["*" if operator == " " else operator](value, other)
            elif least == 0 and self.rest().startswith("?"):
                self.skip(1)
                then = self.expression(0)
                assert self.rest().startswith(":"), self.text
                self.skip(1)
                value = np.where(np.asarray(value) != 0, then, self.expression(0))
            else:
                return value

    def primary(self) -> Any:
        rest = self.rest()
        if match := _NUMBER.match(rest):
            self.skip(match.end())
            return np.float64(match[0])
        if rest.startswith("("):
            self.skip(1)
            value = self.expression(0)
            self.close()
            return value
        match = _WORD.match(rest)
        assert match, f"`{self.text}` has `{rest}` where a value is expected"
        name = match[0]
        self.skip(match.end())
        if self.rest().startswith("(") and name in (*_CALLS, "sum"):
            return self.call(name)
        if name == "infinity":
            return np.inf
        given = self.inputs.get(f"{name}[{self.item}]", self.inputs.get(name))
        assert given is not None, f"`{self.text}` has `{name}`, and no number of it is printed"
        return np.asarray(given, dtype=float)

    def call(self, name: str) -> Any:
        self.skip(1)
        start, outer = self.at, self.item
        names: dict[str, None] = {}
        end, depth, commas = start, 1, 0
        while depth:
            depth += (self.text[end] == "(") - (self.text[end] == ")")
            commas += depth == 1 and self.text[end] == ","
            end += 1
        if name != "sum" and (name not in ("max", "min") or commas):
            values = [self.expression(0)]
            while self.rest().startswith(","):
                self.skip(1)
                values.append(self.expression(0))
            self.close()
            return _CALLS[name](*values)
        for word in _WORD.finditer(self.text[start:end]):
            for symbol in self.inputs:
                if symbol.startswith(f"{word[0]}[") and word[0] not in self.inputs:
                    names[symbol[len(word[0]) + 1 : -1]] = None
        found = []
        for self.item in names:
            self.at = start
            found.append(self.expression(0))
        self.item = outer
        self.at = end
        if not found:
            return np.float64(0.0)
        together = np.broadcast_arrays(*found)
        return {"sum": np.add, "max": np.maximum, "min": np.minimum}[name].reduce(together)

    def close(self) -> None:
        assert self.rest().startswith(")"), f"`{self.text}` lacks a bracket"
        self.skip(1)
