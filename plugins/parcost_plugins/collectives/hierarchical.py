"""Hierarchical collectives: one level of the fabric after another, rings at each.

An all-reduce over levels 1 to q is a reduce-scatter within level 1, the all-reduce of
the shards over levels 2 to q, and an all-gather within level 1. So the outer levels
carry a shard on every port, and their latency is paid for their own units alone. On one
level it is the ring. Units that hold different numbers of members wait for the largest
within, and send out through the ports of the smallest.
"""

from __future__ import annotations

from collections.abc import Iterator

from parcost import Group, Link, Real, hookimpl
from parcost.numeric import where
from parcost_plugins.collectives.pieces import pieces

_SUM = "sum over levels of {}(g - 1) (alpha + n / G / g / B)"
_FORMULAS = {
    "all_reduce": _SUM.format("2 "),
    "all_gather": _SUM.format(""),
    "reduce_scatter": _SUM.format(""),
    "broadcast": f"{_SUM.format('2 ')} to the last, a chain over it",
    "all_to_all": "sum over levels of (g - 1) (alpha + n / g / B)",
}


class Hierarchical:
    """Scatter inwards, work on shards further out, gather on the way back."""

    name = "hierarchical"
    operations = frozenset(_FORMULAS)
    source = "Rabenseifner 2004, applied level by level; DeepEP for the all-to-all"
    sees = "links"

    def seconds(self, operation: str, n: Real, group: Group) -> Real:
        """Return the time of *operation*, the levels one after another."""
        total: Real = 0.0
        for g, further, part, link in _levels(n, group):
            if operation == "all_to_all":
                spent = link.seconds(g - 1, n * (g - 1) / g)
            elif operation == "broadcast":
                scatter_gather = link.seconds(2 * (g - 1), 2 * part * (g - 1) / g)
                chain = link.seconds(*pieces(g, part, link))
                spent = where(further > 1, scatter_gather, chain)
            else:
                passes = 2 if operation == "all_reduce" else 1
                spent = link.seconds(passes * (g - 1), passes * part * (g - 1) / g)
            total = total + spent
        return total

    def formula(self, operation: str) -> str:
        """Return the formula in letters."""
        return _FORMULAS[operation]


def _levels(n: Real, group: Group) -> Iterator[tuple[Real, Real, Real, Link]]:
    """Yield members, members further out, bytes of the part, and link, level by level."""
    further: Real = 1.0
    for g in group.shape:
        further = further * g
    part = n
    for g, least, link in zip(group.shape, group.fewest, group.links, strict=True):
        further = further / g
        yield g, further, part, link
        part = part / least


@hookimpl
def collectives() -> list[Hierarchical]:
    """Offer the hierarchy."""
    return [Hierarchical()]
