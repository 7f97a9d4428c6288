"""Formulas with their numbers filled in."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from parcost.render.numbers import quantity

if TYPE_CHECKING:
    from parcost.terms import Formula

_BEFORE_LETTER = re.compile(r"((?<![\w.])[\d.]+|\)) $")  # a number, or a bracket that closes


def filled(formula: Formula) -> str:
    """Return the text of *formula* with each letter replaced by its number.

    >>> from parcost.terms import Formula
    >>> inputs = {"P": (8, ""), "n": (2.0**20, "B"), "B": (450e9, "B/s")}
    >>> filled(Formula(text="ring: 2 (P - 1) n / (P B)", inputs=inputs))
    'ring: 2 (8 - 1) x 1 MiB / (8 x 450 GB/s)'
    """
    if not formula.inputs:
        return formula.text
    parts = []
    end = 0
    for match in _letters(formula.inputs).finditer(formula.text):
        between = formula.text[end : match.start()]
        parts += [_times(between, after_letter=end > 0), quantity(*formula.inputs[match[0]])]
        end = match.end()
    return "".join([*parts, _times(formula.text[end:], after_letter=end > 0, at_end=True)])


def _times(between: str, *, after_letter: bool, at_end: bool = False) -> str:
    """Return the text between two letters; where it says nothing, they are multiplied."""
    if after_letter and (between == " " and not at_end):
        return " x "
    if after_letter and between.startswith(" ("):
        between = f" x{between}"
    return between if at_end else _BEFORE_LETTER.sub(r"\1 x ", between)


def _letters(inputs: Mapping[str, Any]) -> re.Pattern[str]:
    """Return a pattern for whole letters, the longest first: ``alpha[node]`` and ``n``."""
    longest = sorted(inputs, key=len, reverse=True)
    return re.compile(rf"(?<![\w.\[])(?:{'|'.join(map(re.escape, longest))})(?![\w\[])")
