"""A long broadcast as a scatter and an all-gather: twice the bytes, at full bandwidth.

The scatter goes down a binomial tree, level by level; the parts then go around a ring.
"""

from __future__ import annotations

from parcost import ClosedForm, Group, Phase, Real, hookimpl
from parcost_plugins.collectives.phases import PhasedAlgorithm
from parcost_plugins.collectives.tree import parts


class VanDeGeijn(PhasedAlgorithm):
    """Scatter down a tree, gather around a ring."""

    name = "van_de_geijn"
    operations = frozenset({"broadcast"})
    source = "Barnett et al. 1994; Thakur, Rabenseifner, Gropp 2005"

    def phases(self, operation: str, n: Real, group: Group) -> list[Phase]:  # noqa: ARG002
        """Return the scatter and the ring."""
        P = group.ranks
        return [*parts(n, group), Phase(group.flat, P - 1, n * (P - 1) / P)]

    def closed_form(self, operation: str, group: Group) -> ClosedForm:  # noqa: ARG002
        """Return the time as one expression, for one level."""
        text = "(ceil(log2(P)) + P - 1) alpha + 2 n (P - 1) / P / B"
        return ClosedForm(text, group.flat)


@hookimpl
def collectives() -> list[VanDeGeijn]:
    """Return the van de Geijn broadcast."""
    return [VanDeGeijn()]
