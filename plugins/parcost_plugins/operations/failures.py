"""Failures and checkpoints: the best checkpoint interval, and goodput.

Failures are assumed memoryless, independent and detected at once. Fleets also have early and
correlated failures; then use the measured mean time between failures.

C is the blocking time of a checkpoint and R the time of a restart. M is the mean time between
failures of the job. The useful work between checkpoints is tau.
"""

from __future__ import annotations

import math

from parcost import Real
from parcost.numeric import is_array, minimum, sqrt, where

YOUNG = "Young 1974, A first order approximation to the optimum checkpoint interval"
DALY = "Daly 2006, A higher order estimate of the optimum checkpoint interval"

_LARGEST = 700.0  # exponents beyond this leave nothing of the time


def young(C: Real, M: Real) -> Real:
    """Return Young's checkpoint interval in seconds.

    >>> round(young(30.0, 11135.08), 1)
    817.4
    """
    return sqrt(2.0 * C * M)


def daly(C: Real, M: Real) -> Real:
    """Return Daly's checkpoint interval in seconds; M if C is at least 2 M.

    >>> round(daly(30.0, 11135.08), 1)
    797.5
    """
    r = C / (2.0 * M)
    longer = sqrt(2.0 * C * M) * (1.0 + sqrt(r) / 3.0 + r / 9.0) - C
    return where(C < 2.0 * M, longer, M)


def useful_fraction(tau: Real, C: Real, M: Real, R: Real) -> Real:
    """Return the share of wall time that is useful work; a restart may fail too.

    >>> round(useful_fraction(798.0, 30.0, 11135.08, 600.0), 5)
    0.87968
    """
    return tau / (M * _exp(R / M) * _expm1((tau + C) / M))


def useful_fraction_without_failures(tau: Real, C: Real) -> Real:
    """Return the share of useful work of a job without failures."""
    return tau / (tau + C)


def _exp(x: Real) -> Real:
    x = minimum(x, _LARGEST)
    if not is_array(x):
        return math.exp(x)
    import numpy as np

    return np.exp(x)


def _expm1(x: Real) -> Real:
    x = minimum(x, _LARGEST)
    if not is_array(x):
        return math.expm1(x)
    import numpy as np

    return np.expm1(x)
