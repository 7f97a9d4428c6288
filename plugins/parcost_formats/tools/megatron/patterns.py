"""Python list expressions of layers such as ``([0]*3+[1]*58)``, which are not executed."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import NamedTuple

from parcost_formats.tools.python_code import static_value
from parcost_formats.tools.python_values import PythonText, PythonTextError, UnreadError

#: Layers that a list can have.
MOST_LAYERS = 100_000
_LARGEST = 999_999


class LayerListError(ValueError):
    """A text is not a list of integers."""


class Period(NamedTuple):
    """Periodic layers: after the first *first* layers, every *every*-th layer."""

    first: int
    every: int


def pattern(text: str) -> Sequence[int]:
    """Return the integers of a Python list expression, which may be in quotes.

    >>> pattern("([0]*2+[1])*2"), pattern("'[1]*2'")
    ([0, 0, 1, 0, 0, 1], [1, 1])

    Raises:
        LayerListError: The text is something else.
    """
    plain = text.strip()
    if len(plain) > 1 and plain[0] == plain[-1] and plain[0] in "'\"":
        plain = plain[1:-1]  # a second shell takes them away: `ray job submit`
    try:
        (statement,) = PythonText(plain).tree.body
        is_list = not any(isinstance(node, ast.Tuple) for node in ast.walk(statement))
        found = static_value(statement.value, {}) if isinstance(statement, ast.Expr) else None
    except (PythonTextError, UnreadError, ValueError):
        raise LayerListError(text) from None
    if not is_list or not isinstance(found, list) or len(found) > MOST_LAYERS:
        raise LayerListError(text)
    if not all(type(number) is int and 0 <= number <= _LARGEST for number in found):
        raise LayerListError(text)
    return found


def period(numbers: Sequence[int]) -> Period | None:
    """Return the period of the ones in *numbers*, None if they have none.

    >>> period([0, 0, 0, 1, 1, 1]), period([0, 1, 0, 1]), period([1, 0, 1])
    (Period(first=3, every=1), Period(first=0, every=2), None)
    """
    ones = [place for place, one in enumerate(numbers) if one]
    if not ones:
        return None
    every = ones[1] - ones[0] if len(ones) > 1 else 1
    first = ones[0] - every + 1
    whole = (len(numbers) - first) // every
    if first < 0 or ones != [first + every * turn + every - 1 for turn in range(whole)]:
        return None
    return Period(first, every)
