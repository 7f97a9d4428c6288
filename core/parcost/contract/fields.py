"""Fields of records: the range of a number, and numbers that bring their formula along."""

from __future__ import annotations

from collections.abc import Mapping
from math import inf
from typing import TYPE_CHECKING, Any

from parcost.contract.formulas import Formula

if TYPE_CHECKING:
    from parcost.numeric import Real

#: What numbers of records may be, by the attribute: the least and the most, where there are such.
NUMBER: Mapping[str, float] = {"minimum": -inf}
AMOUNT: Mapping[str, float] = {"minimum": 0.0}
SHARE: Mapping[str, float] = {"minimum": 0.0, "maximum": 1.0}

NO_FORMULA: Any = None  # a formula that a number brings along


def plain_number(value: Real | Formula) -> Real:
    """Return *value*, whose formula its term takes once it is made."""
    return value  # type: ignore[return-value]


def split_formula(term: Any, number: str, formula: str) -> None:
    """Move the formula that *term* has as its *number*, if it has one, to where it belongs."""
    value = getattr(term, number)
    if value.__class__ is Formula:
        object.__setattr__(term, formula, value)
        object.__setattr__(term, number, value.value)
