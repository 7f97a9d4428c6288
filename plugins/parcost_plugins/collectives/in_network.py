"""In-switch reductions: NVLS in a node, CollNet over a network with SHARP.

The switch reads the data of the ranks, adds, and multicasts. In a node each rank sends its data
once, and the reduced shard once more. So each port carries n (1 + 1/P) bytes, compared with 2n (P -
1)/P in a ring. Gathers and scatters move the bytes of a ring in one round. Over a network each port
sends its data to the switches once, and receives the sum once.

They run only if every level on which they reduce has ``in_network = on``.
"""

from __future__ import annotations

from collections.abc import Sequence

from parcost import ClosedForm, Group, Link, Mask, Phase, Real, hookimpl
from parcost.numeric import all_of, any_of, minimum
from parcost_plugins.collectives.phases import PhasedAlgorithm
from parcost_plugins.collectives.pieces import pieces

_NVLS = {
    "all_reduce": "2 alpha + n (1 + 1 / P) / B",
    "all_gather": "alpha + n (P - 1) / P / B",
    "reduce_scatter": "alpha + n (P - 1) / P / B",
}


def _reduction_spec(links: Sequence[Link], fabric: str) -> str:
    """Return the spec text that turns in-network reduction on for levels that lack it."""
    names = [link.name for link in links if not reduces(link)]
    levels = ", ".join(f"level {name} {{ in_network = on }}" for name in names)
    return f"fabric {fabric} {{ {levels} }}" if names else ""


class Nvls(PhasedAlgorithm):
    """NVLink SHARP: the switch of a node adds and multicasts."""

    name = "nvls"
    operations = frozenset(_NVLS)
    source = "NCCL 2.30: kernels of NVLink SHARP"

    def able(self, operation: str, group: Group) -> Mask:  # noqa: ARG002
        """Return whether the ranks share one switch that can reduce."""
        if not reduces(group.links[0]):
            return False
        return group.shape[0] == group.ranks

    def needs(self, operation: str) -> str:  # noqa: ARG002
        """Return the requirements of the algorithm."""
        return "all ranks on one node, whose level has `in_network = on`"

    def remedy(self, group: Group, fabric: str) -> str:
        """Return the spec text that enables reduction in the switch, "" if more is missing."""
        within = all_of(group.shape[0] == group.ranks)
        return _reduction_spec(group.links[:1], fabric) if within else ""

    def phases(self, operation: str, n: Real, group: Group) -> list[Phase]:
        """Return the phase of reading and multicast."""
        P, link = group.ranks, group.links[0]
        other = minimum(P - 1, 1.0)
        if operation == "all_reduce":
            return [Phase(link, 2 * other, n * (1 + 1 / P) * other)]
        return [Phase(link, other, n * (P - 1) / P)]

    def closed_form(self, operation: str, group: Group) -> ClosedForm:
        """Return the time as one expression."""
        return ClosedForm(_NVLS[operation], group.links[0])


class _CollNet(PhasedAlgorithm):
    """The common part of both CollNet algorithms: the switches of the network reduce."""

    operations = frozenset({"all_reduce"})
    source = "NCCL 2.30: CollNet; Graham et al. 2016 (SHARP)"

    def able(self, operation: str, group: Group) -> Mask:  # noqa: ARG002
        """Return whether all crossed levels outside the node have switches that reduce."""
        crosses: Mask = False
        rejected: Mask = False
        for g, link in zip(group.shape[1:], group.links[1:], strict=True):
            crosses = crosses | (g > 1)
            if not reduces(link):
                rejected = rejected | (g > 1)
        return crosses & (rejected ^ True)

    def needs(self, operation: str) -> str:  # noqa: ARG002
        """Return the requirements of the algorithm."""
        return "several nodes, and `in_network = on` at every level between them"

    def remedy(self, group: Group, fabric: str) -> str:
        """Return the spec text that enables reduction in the crossed switches."""
        beyond = zip(group.shape[1:], group.links[1:], strict=True)
        return _reduction_spec([link for g, link in beyond if any_of(g > 1)], fabric)

    def _network(self, n: Real, group: Group) -> list[Phase]:
        """Return the phases up and down the switches; the bytes cross each level once in each
        direction.
        """
        return [
            Phase(link, 2 * minimum(g - 1, 1.0), n * minimum(g - 1, 1.0))
            for g, link in zip(group.shape[1:], group.links[1:], strict=True)
        ]


class CollnetDirect(_CollNet):
    """Each rank of a node owns a part of the buffer and sends it through its own NIC."""

    name = "collnet_direct"

    def phases(self, operation: str, n: Real, group: Group) -> list[Phase]:  # noqa: ARG002
        """Return the scatter and the gather in the node, and the phases of the network."""
        g, least = group.shape[0], group.fewest[0]
        share = n * (g - 1) / g
        inside = Phase(group.links[0], 2 * minimum(g - 1, 1.0), 2 * share, share)
        return [inside, *self._network(n / least, group)]


class CollnetChain(_CollNet):
    """A pipelined chain reduces in the node, its end sends to the network, a chain broadcasts."""

    name = "collnet_chain"

    def phases(self, operation: str, n: Real, group: Group) -> list[Phase]:  # noqa: ARG002
        """Return the chains in the node, and the network phases; every rank heads one chain."""
        g, near = group.shape[0], group.links[0]
        least = group.fewest[0]
        rounds, bytes_ = pieces(g, n, near)
        chains = Phase(near, 2 * rounds, 2 * bytes_, bytes_)
        return [chains, *self._network(n / least, group)]


def reduces(link: Link) -> bool:
    """Return whether the switches of *link* reduce (SHARP)."""
    return bool(getattr(link.level, "in_network", False))


@hookimpl
def collectives() -> list[Nvls | CollnetDirect | CollnetChain]:
    """Return NVLS and both CollNet algorithms."""
    return [Nvls(), CollnetDirect(), CollnetChain()]
