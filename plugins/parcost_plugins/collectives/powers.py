"""Which groups are powers of two. Shared by algorithms; no plugin of its own.

Recursive algorithms pair ranks at distances 1, 2, 4, ... and so want powers of two.
Where every level of the fabric holds one, near partners come first and a round crosses
one level alone; else any round may cross the slowest boundary.
"""

from __future__ import annotations

from parcost import Group, Mask, Real
from parcost.numeric import floor_log2


def largest_power(P: Real) -> Real:
    """Return the largest power of two that is not above *P*."""
    power: Real = 2.0 ** floor_log2(P)
    return power


def by_levels(group: Group) -> Mask:
    """Say where every level holds the same power of two of the units below."""
    even: Mask = True
    product: Real = 1.0
    for g in group.shape:
        even = even & (largest_power(g) == g)
        product = product * g
    return even & (product == group.ranks)
