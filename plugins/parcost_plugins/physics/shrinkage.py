"""Shrinkage: correction of the predictions of a job by its measured runs.

ln(measured / predicted) of a run is the error of its job plus that of its layout. Their standard
deviations are *between* and *within*. Then n layouts have the weight w, always below 1:

    w = n between^2 / (n between^2 + within^2)

>>> found = shrink([0.2], Spread(between=0.3, within=0.1))
>>> round(found.weight, 3), round(found.shift, 3)
(0.9, 0.18)

Repeats of one layout count once, because they have the same error.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import exp, sqrt
from statistics import fmean, median

from parcost import record

#: Layouts that lie so many standard deviations of their difference apart contradict each other.
_FAR = 2.0


@record(kw_only=True)
class Spread:
    """Standard deviations of ln(measured / predicted): *between* jobs, and *within* a job."""

    between: float
    within: float


@record(kw_only=True)
class Shrinkage:
    """The correction of another layout of a job, from *layouts* measured layouts.

    *mean* is the mean of their ln(measured / predicted), *weight* its shrinkage weight. *deviation*
    is the standard deviation of the logarithm of another layout. *least* and *most* are the
    smallest and the largest value of the measured layouts.
    """

    layouts: int
    mean: float
    weight: float
    deviation: float
    least: float
    most: float

    @property
    def shift(self) -> float:
        """The logarithm of the correction factor."""
        return self.weight * self.mean

    def ends(self, margin: float) -> tuple[float, float]:
        """Return the factors on the prediction at both ends of the interval.

        They are *margin* standard deviations from the correction, and include all anchors.
        """
        reach = margin * self.deviation
        return exp(min(self.shift - reach, self.least)), exp(max(self.shift + reach, self.most))


def shrink(residuals: Sequence[float], spread: Spread) -> Shrinkage:
    """Return the correction of another layout of a job, from *residuals* of measured layouts.

    Residuals are ln(measured / predicted). Without any the prediction is unchanged.
    """
    n = len(residuals)
    between, within = spread.between**2, spread.within**2
    weight = n * between / (n * between + within)
    return Shrinkage(
        layouts=n,
        mean=fmean(sorted(residuals)) if n else 0.0,  # sorted: their order cannot matter
        weight=weight,
        deviation=sqrt(within + (1 - weight) * between),
        least=min(residuals, default=0.0),
        most=max(residuals, default=0.0),
    )


def outliers(residuals: Sequence[float], spread: Spread) -> list[int]:
    """Return the indices of residuals that contradict most others.

    Fewer than three residuals have no outliers, because either of two could be wrong.
    """
    if len(residuals) < 3:
        return []
    middle = median(residuals)
    return [i for i, one in enumerate(residuals) if abs(one - middle) > _farthest(spread)]


def disagree(residuals: Sequence[float], spread: Spread) -> bool:
    """Return whether layouts contradict each other, so that none predicts the others:

    their values are far apart, and leave-one-out prediction is not better than no correction.
    """
    if len(residuals) < 2 or max(residuals) - min(residuals) <= _farthest(spread):
        return False
    before = fmean([abs(one) for one in residuals])
    return fmean([abs(one) for one in leave_one_out(residuals, spread)]) >= before


def leave_one_out(residuals: Sequence[float], spread: Spread) -> list[float]:
    """Return the leave-one-out error of each residual."""
    return [
        one - shrink([*residuals[:i], *residuals[i + 1 :]], spread).shift
        for i, one in enumerate(residuals)
    ]


def spread_of(jobs: Sequence[Sequence[float]]) -> Spread:
    """Return the standard deviations between and within jobs; jobs of one layout are left out.

    Within is the pooled deviation of layouts from the mean of their job. Between is the remaining
    variance of these means about the prediction.
    """
    several = [job for job in jobs if len(job) > 1]
    squares = sum((one - fmean(job)) ** 2 for job in several for one in job)
    within = squares / sum(len(job) - 1 for job in several)
    between = fmean([fmean(job) ** 2 - within / len(job) for job in several])
    return Spread(between=sqrt(max(between, 0.0)), within=sqrt(within))


def _farthest(spread: Spread) -> float:
    return _FAR * sqrt(2) * spread.within
