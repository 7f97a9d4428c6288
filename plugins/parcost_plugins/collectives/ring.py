"""Ring collectives: the fewest bytes that end points can move, and the most rounds.

A ring that spans several levels is priced on ``group.flat``. NCCL lays one ring per
port, each leaving the node elsewhere, so a boundary is crossed through every port that
the group owns there; every round waits for the slowest latency on the way.
"""

from __future__ import annotations

from parcost import Group, Real, hookimpl
from parcost_plugins.collectives.pieces import pieces

_FORMULAS = {
    "all_reduce": "2 (P - 1) alpha + 2 n (P - 1) / P / B",
    "all_gather": "(P - 1) alpha + n (P - 1) / P / B",
    "reduce_scatter": "(P - 1) alpha + n (P - 1) / P / B",
    "broadcast": "(P - 2 + c) (alpha + n / c / B), c = sqrt((P - 2) n / (alpha B)) pieces",
}


class Ring:
    """Rounds of n/P to the next rank; broadcast is a chain, pipelined in pieces."""

    name = "ring"
    operations = frozenset(_FORMULAS)
    source = "Patarasuk and Yuan 2009; Thakur, Rabenseifner, Gropp 2005"
    sees = "flat"

    def seconds(self, operation: str, n: Real, group: Group) -> Real:
        """Return the time of *operation* around the ring."""
        P = group.ranks
        if operation == "broadcast":
            rounds, bytes_ = pieces(P, n, group.flat)
            return group.flat.seconds(rounds, bytes_)
        passes = 2 if operation == "all_reduce" else 1
        return group.flat.seconds(passes * (P - 1), passes * n * (P - 1) / P)

    def formula(self, operation: str) -> str:
        """Return the formula in letters."""
        return _FORMULAS[operation]


@hookimpl
def collectives() -> list[Ring]:
    """Offer the ring."""
    return [Ring()]
