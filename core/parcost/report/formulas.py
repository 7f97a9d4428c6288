"""Formulas as text: in symbols, and with their numbers filled in."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from functools import partial
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from parcost.contract.formulas import Formula, compute_text, with_numbers
from parcost.language.numbers import quantity
from parcost.language.units import unit
from parcost.numeric import is_array

if TYPE_CHECKING:
    pass

_RATIO = re.compile(r"(?<!\w)ratio\(")
_SYMBOL = re.compile(r"\d+|\w+'*(\[[^\[\]]*\])?")
_NUMBER = re.compile(r"[\d.,]+( [A-Za-z%/]+)?")
_DIGITS = (4, 6, 8, 10, 12, 15)  # of numbers in a formula: the fewest that give its value
_PRINTED = 1e-3  # of the value
_JOINING = re.compile(r" [-+<>=?:]|[<>=]= ")  # what a fraction would tear apart


def substitute(of: Formula, write: Callable[..., str] = quantity) -> str:
    """Return the expression of a formula with each symbol replaced by its number.

    >>> from parcost.contract.formulas import formula
    >>> f = formula("2 (P - 1) n / (P B), ring", P=8.0, n=(2.0**20, "B"), B=(450e9, "B/s"))
    >>> substitute(f)
    '2 (8 - 1) x 1 MiB / (8 x 450 GB/s)'
    >>> substitute(formula("T - U", T=(20.9124, "s"), U=(20.8809, "s")))  # all digits it needs
    '20.9124 s - 20.8809 s'
    """
    if of.is_expression and (digits := _digits(of, write)) > _DIGITS[0]:
        write = partial(write, digits=digits)
    return fractions(with_numbers(of, write), _NUMBER) if of.is_expression else of.text


def _digits(of: Formula, write: Callable[..., str]) -> int:
    """Return the number of digits of inputs with which the value can be reproduced to 0.1 %; for
    arrays, the smallest number.
    """
    numbers = {symbol: value for symbol, (value, _) in of.inputs.items()}
    if not numbers or is_array(of.value, *numbers.values()) or not math.isfinite(of.value):
        return _DIGITS[0]
    exact = compute_text(of.text, numbers)
    for digits in _DIGITS:
        printed = {
            symbol: _read(write(value, name, digits=digits), value)
            for symbol, (value, name) in of.inputs.items()
        }
        if abs(compute_text(of.text, printed) - exact) <= _PRINTED * abs(exact):
            return digits
    return _DIGITS[-1]


def _read(text: str, value: Any) -> Any:
    """Return the number in a printed text, or *value* if the text is a word."""
    number, _, name = text.partition(" ")
    try:
        return float(number.replace(",", "")) * (unit(name)[0] if name else 1.0)
    except (KeyError, ValueError):
        return value


def fractions(text: str, factor: re.Pattern[str] = _SYMBOL) -> str:
    """Return the text of a formula with `ratio(a, b)` written as `a / b`, without brackets if it is
    a *factor*.

    >>> fractions("ratio(e, w)"), fractions("2 ratio(n a, P - 1), a remark")
    ('e / w', '2 n a / (P - 1), a remark')
    >>> fractions("1 - ratio(a + b, 2 c)"), fractions("x / ratio(a, sum(b))")
    ('1 - (a + b) / (2 c)', 'x / (a / sum(b))')
    """
    while match := _RATIO.search(text):
        start, end, comma = match.end(), match.end(), 0
        depth = 1
        while depth and end < len(text):
            depth += (text[end] == "(") - (text[end] == ")")
            comma = end if text[end] == "," and depth == 1 and text[end + 1] == " " else comma
            end += 1
        if depth or not comma:
            return text
        above, below = text[start:comma], text[comma + 1 : end - 1].strip()
        above = f"({above})" if _joins(above) else above
        below = below if factor.fullmatch(below) or _is_enclosed(below) else f"({below})"
        before, after = text[: match.start()], text[end:]
        divides = before.rstrip()[-1:] in ("/", "^") or after.startswith("^")
        whole = f"({above} / {below})" if divides else f"{above} / {below}"
        text = before + whole + after
    return text


def _joins(text: str) -> bool:
    """Return whether the text has a sum, a comparison or a condition outside of brackets."""
    return bool(_JOINING.search("".join(c for c, depth in _depths(text) if not depth)))


def _is_enclosed(text: str) -> bool:
    """Return whether one pair of brackets, possibly of a function call, encloses all of *text*."""
    name, bracket, _ = text.partition("(")
    if not bracket or not (name.isidentifier() or not name) or not text.endswith(")"):
        return False
    ends = (i for i, (c, depth) in enumerate(_depths(text)) if not depth and c == ")")
    return next(ends, 0) == len(text) - 1


def _depths(text: str) -> Iterator[tuple[str, int]]:
    """Yield each character with the number of open brackets after it."""
    return zip(text, accumulate((c == "(") - (c == ")") for c in text), strict=True)
