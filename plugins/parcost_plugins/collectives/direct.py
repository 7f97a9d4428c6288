"""Point-to-point: one message to the next rank of the group.

It is priced on ``group.hop``, the slowest boundary between neighbours, where a rank
shares the ports with the ranks of its node that cross at the same time.
"""

from __future__ import annotations

from parcost import Group, Phase, Real, hookimpl
from parcost.numeric import minimum
from parcost_plugins.collectives.phases import PhasedAlgorithm, single_phase


class Direct(PhasedAlgorithm):
    """The message, sent once; nothing where a group has no second rank."""

    name = "direct"
    operations = frozenset({"point_to_point"})
    source = "alpha-beta model (Hockney 1994)"
    sees = "hop"

    def phases(self, operation: str, n: Real, group: Group) -> list[Phase]:  # noqa: ARG002
        """Return one message of *n* bytes."""
        other = minimum(group.ranks - 1, 1.0)
        return single_phase(group.hop, other, n * other)

    def formula(self, operation: str) -> str:  # noqa: ARG002
        """Return the formula in letters."""
        return "alpha + n / B"


@hookimpl
def collectives() -> list[Direct]:
    """Offer the message."""
    return [Direct()]
