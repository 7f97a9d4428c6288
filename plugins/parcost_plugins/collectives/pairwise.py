"""Pairwise exchange: an all-to-all in which every block goes straight to its rank.

The bytes of near and of far messages are under way at the same time, so the slowest
level decides. The innermost level carries the blocks of the ranks that it joins: what
leaves the unit has a port of its own. Beyond, levels follow one another on the way out,
and each carries the blocks of all ranks outside the unit below.

A rank starts its messages one after another, so it pays the latency of every one,
whichever level decides. A reduce-scatter of the same messages moves what a ring does,
without a ring's neighbours, and is priced on ``group.pair``; ``auto`` leaves it out.
"""

from __future__ import annotations

from parcost import Group, Real, hookimpl
from parcost.numeric import maximum, where
from parcost_plugins.collectives.phases import Phased, only
from parcost_plugins.vocabulary import Phase

_FORMULAS = {
    "all_to_all": "sum of alpha over P - 1 messages + largest over levels of M n / P / B, "
    "M = g - 1 on the innermost level, P - G further out",
    "reduce_scatter": "(P - 1) alpha + n (P - 1) / P / B",
}


class Pairwise(Phased):
    """One message of n/P to each other rank."""

    name = "pairwise"
    operations = frozenset(_FORMULAS)
    by_name_only = frozenset({"reduce_scatter"})
    source = "Thakur, Rabenseifner, Gropp 2005"
    sees = "links"

    def seconds(self, operation: str, n: Real, group: Group) -> Real:
        """Return the time: of an all-to-all, that of its slowest level."""
        if operation == "reduce_scatter":
            return super().seconds(operation, n, group)
        P = group.ranks
        inner, near = group.links[0], group.shape[0] - 1.0
        inside: Real = group.fewest[0]
        far: Real = 0.0  # seconds on the slowest of the levels further out
        waits: Real = 0.0  # for the messages that leave the innermost unit to start
        levels = zip(group.shape[1:], group.fewest[1:], group.links[1:], strict=True)
        for g, least, link in levels:
            outside = P - inside
            far = maximum(far, where(g > 1, link.seconds(outside, outside * n / P), 0.0))
            waits = maximum(waits, where(g > 1, outside * link.latency, 0.0))
            inside = inside * least
        return maximum(inner.seconds(near, near * n / P) + waits, far + near * inner.latency)

    def phases(self, operation: str, n: Real, group: Group) -> list[Phase]:
        """Return what each level carries; of an all-to-all, all at the same time."""
        P = group.ranks
        if operation == "reduce_scatter":
            bytes_ = n * (P - 1) / P
            return only(group.pair, P - 1, bytes_, bytes_)
        near = group.shape[0] - 1.0
        found = [Phase(group.links[0], near, near * n / P)]
        inside: Real = group.fewest[0]
        levels = zip(group.shape[1:], group.fewest[1:], group.links[1:], strict=True)
        for g, least, link in levels:
            outside = where(g > 1, P - inside, 0.0)
            found.append(Phase(link, outside, outside * n / P))
            inside = inside * least
        return found

    def formula(self, operation: str) -> str:
        """Return the formula in letters."""
        return _FORMULAS[operation]


@hookimpl
def collectives() -> list[Pairwise]:
    """Offer the pairwise exchange."""
    return [Pairwise()]
