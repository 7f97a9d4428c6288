"""Formulas as people read them: in letters, and with their numbers filled in."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from parcost.contract.formulas import in_numbers
from parcost.language.numbers import quantity

if TYPE_CHECKING:
    from parcost.contract.formulas import Formula
    from parcost.report.result import Result

_RATIO = re.compile(r"(?<!\w)ratio\(")
_LETTER = re.compile(r"\d+|\w+'*(\[[^\[\]]*\])?")
_NUMBER = re.compile(r"[\d.,]+( [A-Za-z%/]+)?")
_MOST_LETTERS = 12  # of a part that is printed whole, if it is a figure of its own
_JOINING = re.compile(r" [-+<>=?:]|[<>=]= ")  # what a fraction would tear apart


def filled(of: Formula, write: Callable[[Any, str], str] = quantity) -> str:
    """Return the expression of a formula with each letter replaced by its number.

    >>> from parcost.contract.formulas import formula
    >>> f = formula("2 (P - 1) n / (P B), ring", P=8.0, n=(2.0**20, "B"), B=(450e9, "B/s"))
    >>> filled(f)
    '2 (8 - 1) x 1 MiB / (8 x 450 GB/s)'
    """
    return fractions(in_numbers(of, write), _NUMBER) if of.is_expression else of.text


def long_figures(result: Result) -> Mapping[int, str]:
    """Return the headline figures whose formulas have many letters, by the id of the formula.

    Where one is part of another formula, its name stands in place of its letters.
    """
    return {
        id(figure.formula): figure.name for _, figure in result.figures if _is_long(figure.formula)
    }


def _is_long(of: Formula) -> bool:
    waiting, count = [of], 0
    while waiting and count <= _MOST_LETTERS:
        one = waiting.pop()
        count += len(one.inputs)
        waiting += one.parts.values()
    return count > _MOST_LETTERS


def fractions(text: str, factor: re.Pattern[str] = _LETTER) -> str:
    """Return the text of a formula with `ratio(a, b)` as `a / b`; *factor* needs no brackets.

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
    """Return whether a sum, a comparison or a choice stands outside of brackets."""
    depth, outside = 0, ""
    for character in text:
        depth += (character == "(") - (character == ")")
        outside += character if not depth else ""
    return bool(_JOINING.search(outside))


def _is_enclosed(text: str) -> bool:
    """Return whether one pair of brackets, maybe of a function, holds all of *text*."""
    name, bracket, _ = text.partition("(")
    if not bracket or not (name.isidentifier() or not name) or not text.endswith(")"):
        return False
    depth = 0
    for i, character in enumerate(text):
        depth += (character == "(") - (character == ")")
        if not depth and character == ")":
            return i == len(text) - 1
    return False
