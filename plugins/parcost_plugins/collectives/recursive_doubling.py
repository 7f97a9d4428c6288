"""Recursive doubling: the fewest rounds that an all-reduce can have.

An all-reduce is estimated like halving and doubling. If every level holds a power of two, it is
estimated by level. Otherwise it has two more rounds, and all rounds are on ``group.pair``, the
slowest boundary. An all-gather and a reduce-scatter require powers of two and are estimated on
``group.pair``; ``auto`` does not try them, because halving and doubling never takes longer.
"""

from __future__ import annotations

from parcost import ClosedForm, Group, Phase, Real, hookimpl
from parcost.numeric import floor_log2, where
from parcost_plugins.collectives.phases import PowersOfTwo, single_phase
from parcost_plugins.collectives.powers import fills_levels, largest_power
from parcost_plugins.physics.exchange import partner_link, partner_links

_FORMULAS = {
    "all_reduce": "sum(log2(g) (alpha + n / B))",
    "all_gather": "log2(P) alpha + n (P - 1) / P / B",
    "reduce_scatter": "log2(P) alpha + n (log2(P) - (P - 1) / P) / B",
}


class RecursiveDoubling(PowersOfTwo):
    """Partners at distance 1, 2, 4, ... exchange all their data, and add or keep it.

    In a reduce-scatter, they omit data that the other half no longer needs.
    """

    name = "recursive_doubling"
    operations = frozenset(_FORMULAS)
    by_name_only = frozenset({"all_gather", "reduce_scatter"})
    powers_of_two = by_name_only
    source = "Thakur, Rabenseifner, Gropp 2005"

    def phases(self, operation: str, n: Real, group: Group) -> list[Phase]:
        """Return the phases by level, or on the pair link if a level is not a power of two."""
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

    def closed_form(self, operation: str, group: Group) -> ClosedForm:
        """Return the time as one formula.

        The formula of an all-reduce over full levels has one link per level; any other call uses
        the slowest link.
        """
        if operation != "all_reduce":
            return ClosedForm(_FORMULAS[operation], partner_link(group))
        if fills_levels(group) is not False:
            return ClosedForm(_FORMULAS[operation], partner_links(group))
        text = "(2 ceil(log2(P)) - floor(log2(P))) (alpha + n / B)"
        return ClosedForm(text, partner_link(group))


def _by_level(n: Real, group: Group, even: Real = 1.0) -> list[Phase]:
    """Return the rounds of each level; *even* is 1 where this form applies, else 0."""
    found = []
    for g, link in zip(group.shape, partner_links(group), strict=True):
        rounds = floor_log2(g) * even
        found.append(Phase(link, rounds, rounds * n, rounds * n))
    return found


@hookimpl
def collectives() -> list[RecursiveDoubling]:
    """Return the recursive doubling algorithm."""
    return [RecursiveDoubling()]
