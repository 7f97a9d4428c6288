"""Binomial trees: the fewest rounds for whatever many ranks, each of the whole buffer.

The tree is laid level by level: the members of a unit first, then one of each unit, so
that few rounds pay the latency of the outer levels. It is priced on ``group.pairs``,
since a rank has one partner in a round.
"""

from __future__ import annotations

from parcost import Group, Real, hookimpl
from parcost.numeric import ceil_log2

_FORMULAS = {
    "all_reduce": "sum over levels of 2 ceil(log2 g) (alpha + n / B)",
    "broadcast": "sum over levels of ceil(log2 g) (alpha + n / B)",
}


class Tree:
    """Broadcast down the tree; an all-reduce is a reduction up it, then a broadcast."""

    name = "tree"
    operations = frozenset(_FORMULAS)
    source = "Thakur, Rabenseifner, Gropp 2005"
    sees = "pairs"

    def seconds(self, operation: str, n: Real, group: Group) -> Real:
        """Return the time of *operation* along the tree."""
        passes = 2 if operation == "all_reduce" else 1
        total: Real = 0.0
        for g, link in zip(group.shape, group.pairs, strict=True):
            rounds = passes * ceil_log2(g)
            total = total + link.seconds(rounds, rounds * n)
        return total

    def formula(self, operation: str) -> str:
        """Return the formula in letters."""
        return _FORMULAS[operation]


@hookimpl
def collectives() -> list[Tree]:
    """Offer the tree."""
    return [Tree()]
