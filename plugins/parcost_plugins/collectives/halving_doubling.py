"""Recursive halving and doubling: the bytes of a ring in logarithmically many rounds.

If every level has a power of two of units, halving starts with near partners, and doubling ends
with them. So the inner levels have already reduced the data that crosses an outer level. Otherwise
every round is estimated on ``group.pair``, the slowest boundary. If the number of ranks is not a
power of two, pairs of ranks first merge into one: this is exact for an all-reduce, and approximate
for a reduce-scatter, whose shards become unequal. Other operations do not support such numbers of
ranks.
"""

from __future__ import annotations

from parcost import ClosedForm, Group, Phase, Real, hookimpl
from parcost.numeric import floor_log2, where
from parcost_plugins.collectives.phases import PowersOfTwo
from parcost_plugins.collectives.powers import fills_levels, largest_power
from parcost_plugins.physics.exchange import partner_link, partner_links

_SUM = "sum({}(log2(g) alpha + n / G (g - 1) / g / B))"
_MERGED = {
    "all_reduce": "(2 floor(log2(P)) + 2) alpha + (2 n (q - 1) / q + 2 n) / B, "
    "q the power of two below P",
    "reduce_scatter": "(floor(log2(P)) + 2) alpha + (n (q - 1) / q + n (1 + 1 / P)) / B, "
    "q the power of two below P",
}
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

    def phases(self, operation: str, n: Real, group: Group) -> list[Phase]:
        """Return the phases by level, or on the pair link if a level is not a power of two."""
        by_level = fills_levels(group)
        if by_level is True:
            return _by_level(operation, n, group)
        even = where(by_level, 1.0, 0.0)
        off_levels = _on_pair(operation, n, group, 1.0 - even)
        if by_level is False:
            return [off_levels]
        return [off_levels, *_by_level(operation, n * even, group, even)]

    def closed_form(self, operation: str, group: Group) -> ClosedForm | None:
        """Return the time as one expression, by level or at the slowest boundary."""
        twice = "2 " if _PASSES[operation] == 2 else ""
        if fills_levels(group) is not False:
            return ClosedForm(_SUM.format(twice), partner_links(group))
        link, q = partner_link(group), largest_power(group.ranks)
        if q == group.ranks:
            return ClosedForm(f"{twice}(log2(P) alpha + n (P - 1) / P / B)", link)
        text = _MERGED.get(operation)
        return None if text is None else ClosedForm(text, link, {"q": q})


@hookimpl
def collectives() -> list[HalvingDoubling]:
    """Return the halving-doubling algorithm."""
    return [HalvingDoubling()]


def _on_pair(operation: str, n: Real, group: Group, odd: Real) -> Phase:
    """Return all rounds on the slowest boundary; *odd* is 1 where this formula applies."""
    passes, P = _PASSES[operation], group.ranks
    q = largest_power(P)
    merged = where(q == P, 0.0, 1.0) * odd
    rounds = passes * floor_log2(P) * odd + 2 * merged
    halved = n * (q - 1) / q * odd
    back = 1.0 if operation == "all_reduce" else 1 / P  # of a reduce-scatter
    reduced = halved + n * merged if operation in _REDUCES else 0.0
    return Phase(partner_link(group), rounds, passes * halved + n * (1.0 + back) * merged, reduced)


def _by_level(operation: str, left: Real, group: Group, even: Real = 1.0) -> list[Phase]:
    """Return the rounds of each level for *left* bytes; *even* is 1 where this formula applies."""
    passes, adds = _PASSES[operation], operation in _REDUCES
    found = []
    for g, link in zip(group.shape, partner_links(group), strict=True):
        once = left * (g - 1) / g
        added = once if adds else 0.0
        found.append(Phase(link, passes * floor_log2(g) * even, passes * once, added))
        left = left / g
    return found
