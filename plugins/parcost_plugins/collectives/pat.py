"""Parallel aggregated trees (PAT): gathers and scatters in logarithmically many rounds.

A binomial tree is rooted at each rank, all of them at once, and messages to the same partner
travel together: the rounds of Bruck's algorithm, with the bytes of a ring. NCCL uses it where
every rank of a group is on a node of its own. It is priced on ``group.flat``.
"""

from __future__ import annotations

from parcost import Group, Mask, Phase, Real, hookimpl
from parcost.numeric import ceil_log2
from parcost_plugins.collectives.phases import PhasedAlgorithm, single_phase


class Pat(PhasedAlgorithm):
    """Trees from every rank at the same time, over ranks on nodes of their own."""

    name = "pat"
    operations = frozenset({"all_gather", "reduce_scatter"})
    by_name_only = operations
    source = "Jeaugey 2025 (PAT, arXiv 2506.20252); NCCL 2.23"
    sees = "flat"

    def able(self, operation: str, group: Group) -> Mask:  # noqa: ARG002
        """Return where every rank has a node of its own."""
        return (group.shape[0] == 1) & (len(group.shape) > 1)

    def needs(self, operation: str) -> str:  # noqa: ARG002
        """Return what the algorithm needs."""
        return "one rank on each node"

    def phases(self, operation: str, n: Real, group: Group) -> list[Phase]:
        """Return the rounds."""
        P = group.ranks
        share = n * (P - 1) / P
        return single_phase(
            group.flat, ceil_log2(P), share, share if operation == "reduce_scatter" else 0.0
        )

    def formula(self, operation: str) -> str:  # noqa: ARG002
        """Return the formula in letters."""
        return "ceil(log2(P)) alpha + n (P - 1) / P / B"


@hookimpl
def collectives() -> list[Pat]:
    """Offer the trees."""
    return [Pat()]
