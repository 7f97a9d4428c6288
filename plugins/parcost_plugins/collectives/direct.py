"""Point-to-point: one message to the next rank of the group.

It is estimated on ``group.hop``, the slowest boundary between neighbours. At this boundary, a rank
shares the ports with other ranks of its node.
"""

from __future__ import annotations

from parcost import ClosedForm, Group, Phase, Real, hookimpl
from parcost.numeric import minimum
from parcost_plugins.collectives.phases import PhasedAlgorithm, single_phase


class Direct(PhasedAlgorithm):
    """One message; nothing is sent in a group of one rank."""

    name = "direct"
    operations = frozenset({"point_to_point"})
    source = "alpha-beta model (Hockney 1994)"

    def phases(self, operation: str, n: Real, group: Group) -> list[Phase]:  # noqa: ARG002
        """Return one message of *n* bytes."""
        other = minimum(group.ranks - 1, 1.0)
        return single_phase(group.hop, other, n * other)

    def closed_form(self, operation: str, group: Group) -> ClosedForm:  # noqa: ARG002
        """Return the time as one expression."""
        return ClosedForm("alpha + n / B", group.hop)


@hookimpl
def collectives() -> list[Direct]:
    """Return the point-to-point algorithm."""
    return [Direct()]
