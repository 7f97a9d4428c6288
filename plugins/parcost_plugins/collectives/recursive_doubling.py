"""Recursive doubling: the fewest rounds that an all-reduce can have.

An all-reduce is priced like halving and doubling: by level where every level holds a power
of two, with two more rounds and all of them on ``group.pair`` elsewhere. An all-gather and
a reduce-scatter want powers of two and are priced on ``group.pair``; ``auto`` leaves them
out, because halving and doubling never takes longer.
"""

from __future__ import annotations

from typing import Any

from parcost import Group, Phase, Real, hookimpl
from parcost.numeric import floor_log2, where
from parcost_plugins.collectives.phases import PowersOfTwo, single_phase
from parcost_plugins.collectives.powers import fills_levels, largest_power
from parcost_plugins.vocabulary.exchange import partner_link, partner_links

_FORMULAS = {
    "all_reduce": "sum(log2(g) (alpha + n / B))",
    "all_gather": "log2(P) alpha + n (P - 1) / P / B",
    "reduce_scatter": "log2(P) alpha + n (log2(P) - (P - 1) / P) / B",
}


class RecursiveDoubling(PowersOfTwo):
    """Partners at distance 1, 2, 4, ... exchange all that they have, and add or keep it.

    In a reduce-scatter, for operations that do not commute, they leave out what the
    partner's side needs no more.
    """

    name = "recursive_doubling"
    operations = frozenset(_FORMULAS)
    by_name_only = frozenset({"all_gather", "reduce_scatter"})
    powers_of_two = by_name_only
    source = "Thakur, Rabenseifner, Gropp 2005"
    sees = "pairs"

    def phases(self, operation: str, n: Real, group: Group) -> list[Phase]:
        """Return the phases by level, or those on the pair link where levels are odd."""
        P = group.ranks
        rounds = floor_log2(P)
        if operation == "all_gather":
            return single_phase(partner_link(group), rounds, n * (P - 1) / P)
        if operation == "reduce_scatter":
            bytes_ = n * (rounds - (P - 1) / P)
            return single_phase(partner_link(group), rounds, bytes_, bytes_)
        by_level = fills_levels(group)
        if by_level is True:
            return _by_level(n, group)
        even = where(by_level, 1.0, 0.0)
        merged = where(largest_power(P) == P, 0.0, 1.0)
        merging = (rounds + 2 * merged) * (1.0 - even)
        reduced = n * (rounds + merged) * (1.0 - even)
        off_levels = Phase(partner_link(group), merging, merging * n, reduced)
        return [off_levels] if by_level is False else [off_levels, *_by_level(n, group, even)]

    def formula(self, operation: str) -> str:
        """Return the formula in letters, for powers of two."""
        return _FORMULAS[operation]

    def formula_for(self, operation: str, group: Group) -> tuple[str, Any]:
        """Return the formula by level, or at the slowest boundary, and the links it is of."""
        if operation != "all_reduce":
            return self.formula(operation), partner_link(group)
        if fills_levels(group) is not False:
            return self.formula(operation), partner_links(group)
        return "(2 ceil(log2(P)) - floor(log2(P))) (alpha + n / B)", partner_link(group)


def _by_level(n: Real, group: Group, even: Real = 1.0) -> list[Phase]:
    """Return the rounds of each level, where they are *even*: 1 or 0."""
    found = []
    for g, link in zip(group.shape, partner_links(group), strict=True):
        rounds = floor_log2(g) * even
        found.append(Phase(link, rounds, rounds * n, rounds * n))
    return found


@hookimpl
def collectives() -> list[RecursiveDoubling]:
    """Offer recursive doubling."""
    return [RecursiveDoubling()]
