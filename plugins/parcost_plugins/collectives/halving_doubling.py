"""Recursive halving and doubling: the bytes of a ring in logarithmically many rounds.

Where every level holds a power of two, ranks halve with near partners first and double
with them last: what is left to cross an outer level has been halved on the inner ones.
Elsewhere every round is priced at ``group.pair``, the slowest boundary. Off powers of
two, pairs of ranks first merge into one: exact for an all-reduce, an approximation for a
reduce-scatter, whose shares come out uneven. The other operations have no clean form
there and do not run.
"""

from __future__ import annotations

from parcost import Group, Real, hookimpl
from parcost.numeric import INFINITY, floor_log2, where
from parcost_plugins.collectives.powers import by_levels, largest_power

_SUM = "sum over levels of {}(log2(g) alpha + n / G (g - 1) / g / B)"
_PASSES = {"all_reduce": 2, "broadcast": 2, "all_gather": 1, "reduce_scatter": 1}


class HalvingDoubling:
    """A reduce-scatter halves, an all-gather doubles, an all-reduce does both.

    A broadcast scatters by halving, then gathers by doubling.
    """

    name = "halving_doubling"
    operations = frozenset(_PASSES)
    source = "Rabenseifner 2004; Thakur, Rabenseifner, Gropp 2005"
    sees = "pairs"

    def seconds(self, operation: str, n: Real, group: Group) -> Real:
        """Return the time of *operation*; infinity where it has no form."""
        passes = _PASSES[operation]
        levels: Real = 0.0
        left = n
        for g, link in zip(group.shape, group.pairs, strict=True):
            bytes_ = passes * left * (g - 1) / g
            levels = levels + link.seconds(passes * floor_log2(g), bytes_)
            left = left / g
        return where(by_levels(group), levels, _across(operation, passes, n, group))

    def formula(self, operation: str) -> str:
        """Return the formula in letters, for powers of two."""
        return _SUM.format("2 " if _PASSES[operation] == 2 else "")


def _across(operation: str, passes: int, n: Real, group: Group) -> Real:
    """Return the time where levels do not hold powers of two: all rounds on the pair link."""
    P = group.ranks
    q = largest_power(P)
    merged = where(q == P, 0.0, 1.0)
    rounds = passes * floor_log2(P) + 2 * merged
    bytes_ = passes * n * (q - 1) / q
    if operation == "all_reduce":
        return group.pair.seconds(rounds, bytes_ + 2 * n * merged)
    if operation == "reduce_scatter":
        return group.pair.seconds(rounds, bytes_ + n * (1 + 1 / P) * merged)
    return where(q == P, group.pair.seconds(rounds, bytes_), INFINITY)


@hookimpl
def collectives() -> list[HalvingDoubling]:
    """Offer recursive halving and doubling."""
    return [HalvingDoubling()]
