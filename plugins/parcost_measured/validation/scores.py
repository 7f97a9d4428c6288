"""Errors of predictions, their quantiles, and the ranking of layouts.

An error is predicted / measured - 1. Rows have weights.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from itertools import combinations, pairwise
from operator import itemgetter
from typing import TypeVar

from attrs import frozen

T = TypeVar("T")
K = TypeVar("K", bound=Hashable)


@frozen(kw_only=True)
class Score:
    """The errors of a group of rows, as fractions.

    *mape* is the mean of the absolute errors, *mean* the mean of the signed ones.
    """

    n: int
    mape: float
    median: float
    mean: float
    p90: float


def score(errors: Sequence[float], weights: Sequence[float] | None = None) -> Score | None:
    """Return the score of *errors*, None without errors.

    >>> score([-0.25, 0.5])
    Score(n=2, mape=0.375, median=0.375, mean=0.125, p90=0.475)
    """
    if not errors:
        return None
    heavy = [1.0] * len(errors) if weights is None else weights
    total = sum(heavy)
    sizes = [abs(error) for error in errors]
    return Score(
        n=len(errors),
        mape=sum(w * e for w, e in zip(heavy, sizes, strict=True)) / total,
        median=quantile(sizes, 0.5, heavy),
        mean=sum(w * e for w, e in zip(heavy, errors, strict=True)) / total,
        p90=quantile(sizes, 0.9, heavy),
    )


def quantile(
    values: Sequence[float], share: float, weights: Sequence[float] | None = None
) -> float:
    """Return the weighted quantile *share* of *values*, interpolated linearly.

    The position of a value is the middle of its weight. The scale begins and ends at the middle of
    the first and the last weight. With equal weights this is the default definition of NumPy.

    >>> quantile([4.0, 1.0, 3.0, 2.0], 0.5)
    2.5
    """
    heavy = [1.0] * len(values) if weights is None else weights
    ranked = sorted(zip(values, heavy, strict=True))
    if len(ranked) == 1:
        return ranked[0][0]
    places = [0.0]
    for (_, before), (_, weight) in pairwise(ranked):
        places.append(places[-1] + (before + weight) / 2)
    at = share * places[-1]
    for i in range(1, len(ranked)):
        if at <= places[i]:
            low, high = ranked[i - 1][0], ranked[i][0]
            part = (at - places[i - 1]) / (places[i] - places[i - 1])
            return low + part * (high - low)
    return ranked[-1][0]


def weights_of(keys: Sequence[Hashable]) -> list[float]:
    """Return weights such that all items with the same key add up to 1.

    >>> weights_of(["a", "b", "a"])
    [0.5, 1.0, 0.5]
    """
    counts: dict[Hashable, int] = {}
    for key in keys:
        counts[key] = counts.get(key, 0) + 1
    return [1.0 / counts[key] for key in keys]


def group_by(items: Iterable[T], key: Callable[[T], K]) -> dict[K, list[T]]:
    """Group *items* by key, in the order of first occurrence."""
    found: dict[K, list[T]] = {}
    for item in items:
        found.setdefault(key(item), []).append(item)
    return found


# --- ranking ------------------------------------------------------------------------------


def regret(predicted: Sequence[float], measured: Sequence[float]) -> float:
    """Return the measured time of the layout predicted best / the fastest measured time, minus 1.

    >>> regret([1.0, 2.0, 3.0], [12.0, 10.0, 11.0])
    0.19999999999999996
    """
    best = min(range(len(predicted)), key=predicted.__getitem__)
    return measured[best] / min(measured) - 1.0


def chance(measured: Sequence[float]) -> float:
    """Return the mean regret of a randomly picked layout.

    >>> chance([10.0, 12.0, 14.0])
    0.19999999999999996
    """
    return sum(measured) / len(measured) / min(measured) - 1.0


def count_pairs(
    predicted: Sequence[float], measured: Sequence[float], margin: float
) -> tuple[int, int]:
    """Return the number of pairs predicted in the right order, and of all pairs that count.

    A pair counts if its measured values are more than the share *margin* apart.

    >>> count_pairs([1.0, 2.0, 3.0], [10.0, 30.0, 20.0], 0.03)
    (2, 3)
    """
    pairs = [
        (slow_p > fast_p)
        for (fast_p, fast), (slow_p, slow) in combinations(
            sorted(zip(predicted, measured, strict=True), key=itemgetter(1)), 2
        )
        if slow > fast * (1.0 + margin)
    ]
    return sum(pairs), len(pairs)


# --- the baseline -------------------------------------------------------------------------


def rates(speeds: Sequence[float], classes: Sequence[Hashable]) -> Mapping[Hashable, float]:
    """Return the median speed of each class: the baseline with a constant MFU."""
    found = group_by(zip(classes, speeds, strict=True), lambda pair: pair[0])
    return {key: quantile([speed for _, speed in pairs], 0.5) for key, pairs in found.items()}
