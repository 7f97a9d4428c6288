"""How far measured runs of a job move the prediction of its other layouts.

ln(measured / predicted) of a run is the error of its job and that of its layout. Their standard
deviations are *between* and *within*. Then n layouts have the weight w, which is never whole:

    w = n between^2 / (n between^2 + within^2)

>>> found = shrink([0.2], Spread(between=0.3, within=0.1))
>>> round(found.weight, 3), round(found.shift, 3)
(0.9, 0.18)

Repeats of one layout are one: they share its error.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import exp, sqrt
from statistics import fmean, median

from attrs import frozen

#: Layouts that lie so many standard deviations of their difference apart contradict each other.
_FAR = 2.0


@frozen(kw_only=True)
class Spread:
    """Standard deviations of ln(measured / predicted): *between* jobs, and *within* a job."""

    between: float
    within: float


@frozen(kw_only=True)
class Shrinkage:
    """What *layouts* measured layouts say of another one of their job.

    *mean* is that of their ln(measured / predicted), *weight* how far it is believed. *deviation*
    is the standard deviation of the logarithm of another layout. *least* and *most* are the ends
    of the measured ones.
    """

    layouts: int
    mean: float
    weight: float
    deviation: float
    least: float
    most: float

    @property
    def shift(self) -> float:
        """The logarithm of the factor of the prediction."""
        return self.weight * self.mean

    def ends(self, margin: float) -> tuple[float, float]:
        """Return the factors of the prediction between which the measured time lies.

        They are *margin* standard deviations away, and as far as the farthest anchor.
        """
        reach = margin * self.deviation
        return exp(min(self.shift - reach, self.least)), exp(max(self.shift + reach, self.most))


def shrink(residuals: Sequence[float], spread: Spread) -> Shrinkage:
    """Return what the *residuals* of measured layouts say of another layout of their job.

    Residuals are ln(measured / predicted). Without any the prediction stays as it is.
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
    """Return the positions of residuals that most others contradict.

    There are none among fewer than three: which of two is wrong is not known.
    """
    if len(residuals) < 3:
        return []
    middle = median(residuals)
    return [i for i, one in enumerate(residuals) if abs(one - middle) > _farthest(spread)]


def disagree(residuals: Sequence[float], spread: Spread) -> bool:
    """Return whether layouts contradict one another, so that none predicts the others.

    They do if they lie far apart, and each is predicted no better by the others than without.
    """
    if len(residuals) < 2 or max(residuals) - min(residuals) <= _farthest(spread):
        return False
    before = fmean([abs(one) for one in residuals])
    return fmean([abs(one) for one in leave_one_out(residuals, spread)]) >= before


def leave_one_out(residuals: Sequence[float], spread: Spread) -> list[float]:
    """Return the distance of each residual from what the others say of it."""
    return [
        one - shrink([*residuals[:i], *residuals[i + 1 :]], spread).shift
        for i, one in enumerate(residuals)
    ]


def spread_of(jobs: Sequence[Sequence[float]]) -> Spread:
    """Return the spread of the residuals of jobs; jobs of one layout are left out.

    Within is that of layouts about the mean of their job, pooled. Between is what the squares of
    these means, about the prediction, have beyond that.
    """
    several = [job for job in jobs if len(job) > 1]
    squares = sum((one - fmean(job)) ** 2 for job in several for one in job)
    within = squares / sum(len(job) - 1 for job in several)
    between = fmean([fmean(job) ** 2 - within / len(job) for job in several])
    return Spread(between=sqrt(max(between, 0.0)), within=sqrt(within))


def _farthest(spread: Spread) -> float:
    return _FAR * sqrt(2) * spread.within
