"""Formulas with their numbers filled in."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from parcost.render.numbers import quantity

if TYPE_CHECKING:
    from parcost.terms import Formula


def filled(formula: Formula) -> str:
    """Return the text of *formula* with each letter replaced by its number.

    >>> from parcost.terms import Formula
    >>> inputs = {"P": (8, ""), "n": (2.0**20, "B"), "B": (450e9, "B/s")}
    >>> filled(Formula(text="ring: 2 (P - 1) n / (P B)", inputs=inputs))
    'ring: 2 (8 - 1) 1 MiB / (8 450 GB/s)'
    """
    if not formula.inputs:
        return formula.text
    return _letters(formula.inputs).sub(
        lambda match: quantity(*formula.inputs[match[0]]), formula.text
    )


def _letters(inputs: Mapping[str, Any]) -> re.Pattern[str]:
    """Return a pattern for whole letters, the longest first: ``alpha[node]`` and ``n``."""
    longest = sorted(inputs, key=len, reverse=True)
    return re.compile(rf"(?<![\w.\[])(?:{'|'.join(map(re.escape, longest))})(?![\w\[])")
