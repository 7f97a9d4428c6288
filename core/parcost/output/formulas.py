"""Formulas with their numbers filled in."""

from __future__ import annotations

from typing import TYPE_CHECKING

from parcost.contract.formulas import in_numbers
from parcost.language.numbers import quantity

if TYPE_CHECKING:
    from parcost.contract.formulas import Formula


def filled(of: Formula) -> str:
    """Return the expression of a formula with each letter replaced by its number.

    >>> from parcost.contract.formulas import formula
    >>> f = formula("2 (P - 1) n / (P B), ring", P=8.0, n=(2.0**20, "B"), B=(450e9, "B/s"))
    >>> filled(f)
    '2 (8 - 1) x 1 MiB / (8 x 450 GB/s)'
    """
    return in_numbers(of, quantity) if of.is_expression else of.text
