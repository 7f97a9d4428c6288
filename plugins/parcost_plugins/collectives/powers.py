"""Tests for powers of two; this module is not a plugin.

Recursive algorithms pair ranks at distances 1, 2, 4, ... and so need powers of two. If every level
has a power of two of units, near partners come first, and a round crosses one level. Otherwise any
round may cross the slowest boundary.
"""

from __future__ import annotations

import math

from parcost import Group, Mask, Real


def largest_power(P: Real) -> Real:
    """Return the largest power of two that does not exceed *P*.

    >>> [largest_power(P) for P in (1.0, 6.0, 8.0)]
    [1.0, 4.0, 8.0]
    """
    return P / (2 * _mantissa(P))


def fills_levels(group: Group) -> Mask:
    """Return whether the group fills its levels.

    Each unit of a level then has the same number of units of the level below, a power of two.
    """
    even: Mask = True
    product: Real = 1.0
    for g in group.shape:
        even = even & (_mantissa(g) == 0.5)
        product = product * g
    return even & (product == group.ranks)


def _mantissa(P: Real) -> Real:
    """Return the mantissa of *P*, in [0.5, 1); 0.5 for powers of two."""
    if isinstance(P, (float, int)):
        return math.frexp(P)[0]
    import numpy as np

    mantissa: Real = np.frexp(P)[0]
    return mantissa
