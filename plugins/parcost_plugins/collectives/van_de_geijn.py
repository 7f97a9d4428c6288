"""A long broadcast as a scatter and an all-gather: twice the bytes, at full bandwidth.

The scatter goes down a binomial tree, level by level; the parts then go around a ring.
"""

from __future__ import annotations

from parcost import Group, Phase, Real, hookimpl
from parcost_plugins.collectives.phases import PhasedAlgorithm
from parcost_plugins.collectives.tree import parts


class VanDeGeijn(PhasedAlgorithm):
    """Scatter down a tree, gather around a ring."""

    name = "van_de_geijn"
    operations = frozenset({"broadcast"})
    source = "Barnett et al. 1994; Thakur, Rabenseifner, Gropp 2005"
    sees = "flat"

    def phases(self, operation: str, n: Real, group: Group) -> list[Phase]:  # noqa: ARG002
        """Return the scatter and the ring."""
        P = group.ranks
        return [*parts(n, group), Phase(group.flat, P - 1, n * (P - 1) / P)]

    def formula(self, operation: str) -> str:  # noqa: ARG002
        """Return the formula in letters, for one level."""
        return "(ceil(log2(P)) + P - 1) alpha + 2 n (P - 1) / P / B"


@hookimpl
def collectives() -> list[VanDeGeijn]:
    """Offer the broadcast."""
    return [VanDeGeijn()]
