"""Parallel aggregated trees (PAT): gathers and scatters in logarithmically many rounds.

Each rank is the root of a binomial tree. All trees run at the same time, and messages to the same
partner are combined. So it has the rounds of Bruck's algorithm and the bytes of a ring. NCCL uses
it if every rank of a group is on a different node. It is estimated on ``group.flat``.
"""

from __future__ import annotations

from parcost import ClosedForm, Group, Mask, Phase, Real, hookimpl
from parcost.numeric import ceil_log2
from parcost_plugins.collectives.phases import PhasedAlgorithm, single_phase


class Pat(PhasedAlgorithm):
    """Trees from every rank at the same time, for ranks on different nodes."""

    name = "pat"
    operations = frozenset({"all_gather", "reduce_scatter"})
    by_name_only = operations
    source = "Jeaugey 2025 (PAT, arXiv 2506.20252); NCCL 2.23"

    def able(self, operation: str, group: Group) -> Mask:  # noqa: ARG002
        """Return whether all ranks are on different nodes."""
        return (group.shape[0] == 1) & (len(group.shape) > 1)

    def needs(self, operation: str) -> str:  # noqa: ARG002
        """Return the requirements of the algorithm."""
        return "one rank on each node"

    def phases(self, operation: str, n: Real, group: Group) -> list[Phase]:
        """Return the rounds."""
        P = group.ranks
        share = n * (P - 1) / P
        return single_phase(
            group.flat, ceil_log2(P), share, share if operation == "reduce_scatter" else 0.0
        )

    def closed_form(self, operation: str, group: Group) -> ClosedForm:  # noqa: ARG002
        """Return the time as one expression."""
        return ClosedForm("ceil(log2(P)) alpha + n (P - 1) / P / B", group.flat)


@hookimpl
def collectives() -> list[Pat]:
    """Return the PAT algorithm."""
    return [Pat()]
