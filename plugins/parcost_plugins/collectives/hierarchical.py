"""Hierarchical collectives: rings on one level of the fabric after another.

An all-reduce over levels 1 to q starts with a reduce-scatter within level 1. An all-reduce of the
shards over levels 2 to q follows, then an all-gather within level 1. So every port of an outer
level carries a shard. With a single level it is a ring. If units have different numbers of members,
the largest unit determines the time inside units. The ports of the smallest unit determine the time
between units.
"""

from __future__ import annotations

from collections.abc import Iterator

from parcost import ClosedForm, Group, Link, Phase, Real, hookimpl
from parcost.numeric import where
from parcost_plugins.collectives.phases import PhasedAlgorithm
from parcost_plugins.collectives.pieces import pieces
from parcost_plugins.physics.exchange import exchange_links

_SUM = "sum({}(g - 1) (alpha + n / G / g / B))"
_FORMULAS = {
    "all_reduce": _SUM.format("2 "),
    "all_gather": _SUM.format(""),
    "reduce_scatter": _SUM.format(""),
    "all_to_all": "sum((g - 1) (alpha + n / g / B))",
}


class Hierarchical(PhasedAlgorithm):
    """Scatter on the inner levels, work on shards at the outer levels, then gather."""

    name = "hierarchical"
    operations = frozenset({*_FORMULAS, "broadcast", "reduce"})
    source = "Rabenseifner 2004, applied level by level; DeepEP for the all-to-all"

    def phases(self, operation: str, n: Real, group: Group) -> list[Phase]:
        """Return the phases of the levels, innermost first."""
        if operation == "all_to_all":  # with ranks of the same place in their units, per level
            return [
                Phase(link, g - 1, n * (g - 1) / g)
                for g, link in zip(group.shape, exchange_links(group), strict=True)
            ]
        found = []
        for g, further, part, link in levels(n, group):
            rounds: Real = g - 1
            share = part * (g - 1) / g
            reduced: Real = 0.0
            if operation == "all_reduce":
                rounds, share, reduced = 2 * rounds, 2 * share, share
            elif operation == "reduce_scatter":
                reduced = share
            elif operation != "all_gather":  # broadcast and reduce, its mirror image
                forward, all_ = pieces(g, part, link)
                reduced = where(further > 1, share, all_) if operation == "reduce" else 0.0
                rounds = where(further > 1, 2 * rounds, forward)
                share = where(further > 1, 2 * share, all_)
            found.append(Phase(link, rounds, share, reduced))
        return found

    def closed_form(self, operation: str, group: Group) -> ClosedForm | None:
        """Return the time as one expression; None for pipelined chains."""
        text = _FORMULAS.get(operation)
        links = exchange_links(group) if operation == "all_to_all" else group.links
        return None if text is None else ClosedForm(text, links)


def levels(n: Real, group: Group) -> Iterator[tuple[Real, Real, Real, Link]]:
    """Yield for each level: members, number of groups at outer levels, shard bytes, and link."""
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
    """Return the hierarchical algorithm."""
    return [Hierarchical()]
