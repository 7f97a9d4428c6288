"""Pairwise exchange: an all-to-all in which every block goes straight to its rank.

Messages to near and to far ranks are under way at the same time, so the slowest level
decides. What leaves a unit crosses every level on its way out: a level carries the
blocks of all ranks outside the unit below.
"""

from __future__ import annotations

from parcost import Group, Real, hookimpl
from parcost.numeric import maximum, where


class Pairwise:
    """One message of n/P to each other rank."""

    name = "pairwise"
    operations = frozenset({"all_to_all"})
    source = "Thakur, Rabenseifner, Gropp 2005"
    sees = "links"

    def seconds(self, operation: str, n: Real, group: Group) -> Real:  # noqa: ARG002
        """Return the time of an all-to-all in which a rank sends *n* bytes."""
        P = group.ranks
        inside: Real = 1.0
        slowest: Real = 0.0
        for g, least, link in zip(group.shape, group.fewest, group.links, strict=True):
            outside = P - inside
            seconds = link.seconds(outside, outside * n / P)
            slowest = maximum(slowest, where(g > 1, seconds, 0.0))
            inside = inside * least
        return slowest

    def formula(self, operation: str) -> str:  # noqa: ARG002
        """Return the formula in letters."""
        return "largest over levels of (P - G) (alpha + n / P / B)"


@hookimpl
def collectives() -> list[Pairwise]:
    """Offer the pairwise exchange."""
    return [Pairwise()]
