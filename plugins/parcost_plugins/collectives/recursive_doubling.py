"""Recursive doubling of whole buffers: the fewest rounds that an all-reduce can have.

Priced like halving and doubling: by level where every level holds a power of two, with
two more rounds and all of them on ``group.pair`` elsewhere.
"""

from __future__ import annotations

from parcost import Group, Real, hookimpl
from parcost.numeric import floor_log2, where
from parcost_plugins.collectives.powers import by_levels, largest_power


class RecursiveDoubling:
    """Partners at distance 1, 2, 4, ... exchange all that they have and add it."""

    name = "recursive_doubling"
    operations = frozenset({"all_reduce"})
    source = "Thakur, Rabenseifner, Gropp 2005"
    sees = "pairs"

    def seconds(self, operation: str, n: Real, group: Group) -> Real:  # noqa: ARG002
        """Return the time of an all-reduce of *n* bytes."""
        levels: Real = 0.0
        for g, link in zip(group.shape, group.pairs, strict=True):
            rounds = floor_log2(g)
            levels = levels + link.seconds(rounds, rounds * n)
        P = group.ranks
        merged = where(largest_power(P) == P, 0.0, 2.0)
        rounds = floor_log2(P) + merged
        return where(by_levels(group), levels, group.pair.seconds(rounds, rounds * n))

    def formula(self, operation: str) -> str:  # noqa: ARG002
        """Return the formula in letters, for powers of two."""
        return "sum over levels of log2(g) (alpha + n / B)"


@hookimpl
def collectives() -> list[RecursiveDoubling]:
    """Offer recursive doubling."""
    return [RecursiveDoubling()]
