"""Which groups are powers of two. Shared by algorithms; no plugin of its own.

Recursive algorithms pair ranks at distances 1, 2, 4, ... and so want powers of two.
Where every level of the fabric holds one, near partners come first and a round crosses
one level alone; else any round may cross the slowest boundary.
"""

from __future__ import annotations

import math

from parcost import Group, Mask, Real


def largest_power(P: Real) -> Real:
    """Return the largest power of two that is not above *P*.

    >>> [largest_power(P) for P in (1.0, 6.0, 8.0)]
    [1.0, 4.0, 8.0]
    """
    return P / (2 * _mantissa(P))


def fills_levels(group: Group) -> Mask:
    """Return where every level holds the same power of two of the units below."""
    even: Mask = True
    product: Real = 1.0
    for g in group.shape:
        even = even & (_mantissa(g) == 0.5)
        product = product * g
    return even & (product == group.ranks)


def _mantissa(P: Real) -> Real:
    """Return what is left of *P* between a half and one: a half for powers of two."""
    if isinstance(P, (float, int)):
        return math.frexp(P)[0]
    import numpy as np

    mantissa: Real = np.frexp(P)[0]
    return mantissa
