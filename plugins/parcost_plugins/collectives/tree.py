"""Binomial trees: the fewest rounds for any number of ranks.

The tree is built level by level: the members of a unit first, then one of each unit. So few rounds
have the latency of the outer levels. If the root splits its buffer, each member of its unit
processes a different part. It is estimated on ``group.pairs``, since a rank has one partner per
round.
"""

from __future__ import annotations

from parcost import ClosedForm, Group, Phase, Real, hookimpl
from parcost.numeric import ceil_log2
from parcost_plugins.collectives.phases import PhasedAlgorithm

_WHOLE = "sum({}ceil(log2(g)) (alpha + n / B))"
_PARTS = "sum(ceil(log2(g)) alpha + n / G (g - 1) / g / B)"
_FORMULAS = {
    "all_reduce": _WHOLE.format("2 "),
    "broadcast": _WHOLE.format(""),
    "reduce": _WHOLE.format(""),
    "scatter": _PARTS,
    "gather": _PARTS,
}


class Tree(PhasedAlgorithm):
    """Broadcast down the tree, reduce up it; an all-reduce does both."""

    name = "tree"
    operations = frozenset(_FORMULAS)
    source = "Thakur, Rabenseifner, Gropp 2005"

    def phases(self, operation: str, n: Real, group: Group) -> list[Phase]:
        """Return the phases along the tree, level by level."""
        if operation in ("scatter", "gather"):
            return parts(n, group)
        passes = 2 if operation == "all_reduce" else 1
        found = []
        for g, link in zip(group.shape, group.pairs, strict=True):
            depth = ceil_log2(g)
            reduced = 0.0 if operation == "broadcast" else n * depth
            found.append(Phase(link, passes * depth, passes * depth * n, reduced))
        return found

    def closed_form(self, operation: str, group: Group) -> ClosedForm:
        """Return the time as one expression."""
        return ClosedForm(_FORMULAS[operation], group.pairs)


def parts(n: Real, group: Group) -> list[Phase]:
    """Return the phases of a scatter of *n* bytes from the root, or a gather to it."""
    found = []
    for g, link in zip(group.shape, group.pairs, strict=True):
        found.append(Phase(link, ceil_log2(g), n * (g - 1) / g))
        n = n / g
    return found


@hookimpl
def collectives() -> list[Tree]:
    """Return the binomial tree."""
    return [Tree()]
