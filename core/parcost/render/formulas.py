"""Formulas with their numbers filled in."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from parcost.formulas import in_numbers
from parcost.render.numbers import quantity

if TYPE_CHECKING:
    from parcost.formulas import Formula

_OVER_LEVELS = re.compile(r"\b(sum|largest) over levels of ")
_OF_LEVELS = re.compile(r"(?<![\w.\[])(?:alpha|g|G|B)(?![\w\[])")
_BEFORE_LETTER = re.compile(r"((?<![\w.])[\d.]+|\)) $")  # a number, or a bracket that closes


def filled(formula: Formula) -> str:
    """Return the text of *formula* with each letter replaced by its number.

    >>> from parcost.formulas import Formula
    >>> inputs = {"P": (8, ""), "n": (2.0**20, "B"), "B": (450e9, "B/s")}
    >>> filled(Formula(text="ring: 2 (P - 1) n / (P B)", inputs=inputs))
    'ring: 2 (8 - 1) x 1 MiB / (8 x 450 GB/s)'
    """
    if formula.is_expression:
        return in_numbers(formula, quantity)
    if not formula.inputs:
        return formula.text
    text, inputs = _by_level(formula.text, formula.inputs)
    parts = []
    end = 0
    for match in _letters(inputs).finditer(text):
        between = text[end : match.start()]
        parts += [_times(between, after_letter=end > 0), quantity(*inputs[match[0]])]
        end = match.end()
    return "".join([*parts, _times(text[end:], after_letter=end > 0, at_end=True)])


def _by_level(text: str, inputs: Mapping[str, Any]) -> tuple[str, Mapping[str, Any]]:
    """Return *text* with what is summed over levels written out, and its letters.

    >>> inputs = {"g[a]": (2.0, ""), "B[a]": (4.0, ""), "g[b]": (3.0, ""), "B[b]": (5.0, "")}
    >>> _by_level("sum over levels of (g - 1) / G / B, of all", inputs)[0]
    '((g[a] - 1) / G[a] / B[a] + (g[b] - 1) / G[b] / B[b]), of all'
    """
    levels = [name[2:-1] for name in inputs if name.startswith("g[")]
    while levels and (match := _OVER_LEVELS.search(text)):
        end = _end(text, match.end())
        body, below, terms, inputs = text[match.end() : end], 1.0, [], dict(inputs)
        for level in levels:
            inputs[f"G[{level}]"] = (below, "")
            below = below * inputs[f"g[{level}]"][0]
            own = {k for k in ("g", "G", "alpha", "B") if f"{k}[{level}]" in inputs}
            if any(letter not in own for letter in _OF_LEVELS.findall(body)):
                return text, inputs  # where a curve stands for alpha and B
            terms.append(_OF_LEVELS.sub(rf"\g<0>[{level}]", body))
        if match[1] == "largest" and len(terms) > 1:
            written = f"max({', '.join(terms)})"
        else:
            written = terms[0] if len(terms) == 1 else f"({' + '.join(terms)})"
        text = text[: match.start()] + written + text[end:]
    return text, inputs


def _end(text: str, start: int) -> int:
    """Return where the product that begins at *start* ends."""
    depth = 0
    for i in range(start, len(text)):
        depth += (text[i] == "(") - (text[i] == ")")
        if depth < 0 or (not depth and (text[i] in ",;" or text[i : i + 3] in (" + ", " - "))):
            return i
    return len(text)


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
