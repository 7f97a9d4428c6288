"""Elementwise maximum of several quantities, and selection of the values that belong to it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import reduce
from operator import add
from typing import Any

from parcost.numeric import Real, is_array, where
from parcost.records import record


@record(eq=False)
class MaximumChoice:
    """The index of the largest of several quantities: one index, or an array of them."""

    index: Any
    cases: tuple[int, ...]  # those that occur

    def select(self, value: Callable[[int], Real]) -> Real:
        """Return ``value(index)`` for the chosen index, element by element.

        >>> MaximumChoice(1, (1,)).select(lambda case: (10.0, 20.0)[case])
        20.0
        """
        chosen = value(self.cases[0])
        for case in self.cases[1:]:
            chosen = where(self.index == case, value(case), chosen)
        return chosen

    def row(self, values: Callable[[int], Sequence[Real]]) -> Sequence[Real]:
        """Return the sequence ``values(index)`` for the chosen index, element by element."""
        chosen = values(self.cases[0])
        for case in self.cases[1:]:
            here = self.index == case
            chosen = [where(here, a, b) for a, b in zip(values(case), chosen, strict=True)]
        return chosen


def find_maximum(values: Sequence[Real]) -> tuple[Real, MaximumChoice]:
    """Return the largest of *values*, and its index; of equals, the first.

    >>> find_maximum([1.0, 3.0, 3.0])[1].index
    1
    """
    best: Real = values[0]
    index: Real = 0
    for i in range(1, len(values)):
        wins = values[i] > best
        if wins is False:
            continue
        best, index = where(wins, values[i], best), where(wins, i, index)
    return best, MaximumChoice(index, _distinct_values(index))


def _distinct_values(index: Any) -> tuple[int, ...]:
    if not is_array(index):
        return (index,)
    import numpy as np

    # np.unique would import masked arrays, which takes longer than a step
    return tuple(int(i) for i in np.flatnonzero(np.bincount(index.reshape(-1))))


def total(values: Iterable[Real]) -> Real:
    """Return the sum of *values*, added from left to right like the ledger."""
    left = iter(values)
    return reduce(add, left, next(left, 0.0))


def columns(rows: Sequence[Sequence[Real]]) -> Sequence[Real]:
    """Return the sum of each column.

    >>> columns([(1.0, 2.0), (3.0, 4.0)])
    [4.0, 6.0]
    """
    return rows[0] if len(rows) == 1 else [total(column) for column in zip(*rows, strict=True)]
