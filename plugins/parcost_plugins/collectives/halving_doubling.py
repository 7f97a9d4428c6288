"""Recursive halving and doubling: the bytes of a ring in logarithmically many rounds.

Where every level holds a power of two, ranks halve with near partners first and double
with them last: what is left to cross an outer level has been halved on the inner ones.
Elsewhere every round is priced at ``group.pair``, the slowest boundary. Off powers of
two, pairs of ranks first merge into one: exact for an all-reduce, an approximation for a
reduce-scatter, whose shares come out uneven. The other operations have no clean form
there and do not run.
"""

from __future__ import annotations

from typing import Any

from parcost import Group, Phase, Real, hookimpl
from parcost.numeric import floor_log2, is_array, where
from parcost_plugins.collectives.phases import PowersOfTwo
from parcost_plugins.collectives.powers import fills_levels, largest_power
from parcost_plugins.vocabulary.exchange import partner_link, partner_links

_SUM = "sum({}(log2(g) alpha + n / G (g - 1) / g / B))"
_PASSES = {"all_reduce": 2, "broadcast": 2, "reduce": 2, "all_gather": 1, "reduce_scatter": 1}
_REDUCES = frozenset({"all_reduce", "reduce", "reduce_scatter"})


class HalvingDoubling(PowersOfTwo):
    """A reduce-scatter halves, an all-gather doubles, an all-reduce does both.

    A broadcast scatters by halving, then gathers by doubling; a reduction halves, and its
    root gathers.
    """

    name = "halving_doubling"
    operations = frozenset(_PASSES)
    powers_of_two = frozenset({"broadcast", "reduce", "all_gather"})
    source = "Rabenseifner 2004; Thakur, Rabenseifner, Gropp 2005"
    sees = "pairs"

    def phases(self, operation: str, n: Real, group: Group) -> list[Phase]:
        """Return the phases by level, or those on the pair link where levels are odd."""
        by_level = fills_levels(group)
        if by_level is True:
            return _by_level(operation, n, group)
        even = where(by_level, 1.0, 0.0)
        off_levels = _on_pair(operation, n, group, 1.0 - even)
        if by_level is False:
            return [off_levels]
        return [off_levels, *_by_level(operation, n * even, group, even)]

    def formula(self, operation: str) -> str:
        """Return the formula in letters, for powers of two."""
        return _SUM.format("2 " if _PASSES[operation] == 2 else "")

    def formula_for(self, operation: str, group: Group) -> tuple[Any, ...]:
        """Return the formula by level, or at the slowest boundary, and the links it is of."""
        if fills_levels(group) is not False or is_array(group.ranks):
            return self.formula(operation), partner_links(group)
        twice = "2 " if _PASSES[operation] == 2 else ""
        if largest_power(group.ranks) == group.ranks:
            return f"{twice}(log2(P) alpha + n (P - 1) / P / B)", partner_link(group)
        back = {"all_reduce": "2 n", "reduce_scatter": "n (1 + 1 / P)"}.get(operation, "n")
        rounds = f"({twice}floor(log2(P)) + 2) alpha"
        text = f"{rounds} + ({twice}n (q - 1) / q + {back}) / B, q the power of two below P"
        return text, partner_link(group), {"q": largest_power(group.ranks)}


@hookimpl
def collectives() -> list[HalvingDoubling]:
    """Offer recursive halving and doubling."""
    return [HalvingDoubling()]


def _on_pair(operation: str, n: Real, group: Group, odd: Real) -> Phase:
    """Return every round at the slowest boundary, where levels are *odd*: 1 or 0."""
    passes, P = _PASSES[operation], group.ranks
    q = largest_power(P)
    merged = where(q == P, 0.0, 1.0) * odd
    rounds = passes * floor_log2(P) * odd + 2 * merged
    halved = n * (q - 1) / q * odd
    back = 1.0 if operation == "all_reduce" else 1 / P  # of a reduce-scatter
    reduced = halved + n * merged if operation in _REDUCES else 0.0
    return Phase(partner_link(group), rounds, passes * halved + n * (1.0 + back) * merged, reduced)


def _by_level(operation: str, left: Real, group: Group, even: Real = 1.0) -> list[Phase]:
    """Return the rounds of each level with what is *left*, where they are *even*: 1 or 0."""
    passes, adds = _PASSES[operation], operation in _REDUCES
    found = []
    for g, link in zip(group.shape, partner_links(group), strict=True):
        once = left * (g - 1) / g
        added = once if adds else 0.0
        found.append(Phase(link, passes * floor_log2(g) * even, passes * once, added))
        left = left / g
    return found
