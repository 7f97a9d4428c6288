"""The machine as the library's topology search sees it, with the table of its release."""

from __future__ import annotations

from math import prod

from attrs import frozen

from parcost import Group, Real, block_name
from parcost.numeric import where
from parcost_plugins.vocabulary import (
    CollectiveChoice,
    GenerationTuning,
    HostTuning,
    ProtocolTuning,
    Tuning,
)

#: The pairs of algorithm and protocol that a table has to have latencies of.
PROTOCOLS = frozenset(
    (
        *(f"{shape}_{kind}" for shape in ("ring", "tree") for kind in ("ll", "ll128", "simple")),
        *("collnet_direct", "collnet_chain", "nvls", "nvls_tree", "pat"),
    )
)


@frozen(kw_only=True, eq=False)
class Machine:
    """A table, the row of the GPUs and of the host, and the channels.

    *intra* and *inter* are the bandwidth of one channel inside of a node and between nodes.
    """

    table: Tuning
    generation: GenerationTuning
    host: HostTuning
    channels: Real
    intra: Real
    inter: Real
    card_latency: Real
    collnet: bool

    def protocol(self, name: str) -> ProtocolTuning:
        """Return the latencies of a pair."""
        return next(p for p in self.table.protocols if block_name(p) == name)


def machine(choice: CollectiveChoice) -> Machine | None:
    """Return the machine that *choice* describes, or None where it leaves something out."""
    table = choice.tuning
    if table is None or choice.channels is None:
        return None
    generation = next((g for g in table.generations if block_name(g) == choice.generation), None)
    host = next((h for h in table.hosts if block_name(h) == choice.host), None)
    intra = choice.channel_bandwidth
    rows = {block_name(protocol) for protocol in table.protocols}
    if generation is None or host is None or not rows.issuperset(PROTOCOLS):
        return None
    if intra is None:
        if choice.links is None:
            return None
        intra = choice.links * generation.payload / choice.channels
    inter = choice.network_channel_bandwidth
    return Machine(
        table=table,
        generation=generation,
        host=host,
        channels=choice.channels,
        intra=intra,
        inter=intra if inter is None else inter,
        card_latency=choice.card_latency,
        collnet=choice.collnet,
    )


@frozen(kw_only=True, eq=False)
class RankSpread:
    """How the ranks of a group are spread: *local* on each of *nodes*."""

    ranks: Real
    local: Real
    nodes: Real
    path: str  # inside of a node: nvlink or pcie
    reduces: bool  # the switch of a node

    @classmethod
    def of(cls, group: Group) -> RankSpread:
        """Return how *group* is spread; its innermost level is the node.

        Nodes that hold different numbers of its ranks count as if all held the mean.
        """
        nodes = prod(group.shape[1:], start=1.0)
        level = group.links[0].level
        return cls(
            ranks=group.ranks,
            local=group.ranks / nodes,
            nodes=nodes,
            path="pcie" if getattr(level, "kind", "") == "pcie" else "nvlink",
            reduces=bool(getattr(level, "in_network", False)),
        )

    def by_nodes(self, one: Real, two: Real, more: Real) -> Real:
        """Return the value for one node, for two, or for more."""
        return where(self.nodes <= 1, one, where(self.nodes <= 2, two, more))

    def beyond_one_node(self, value: Real) -> Real:
        """Return *value* where there are several nodes, and 0 on one."""
        return where(self.nodes > 1, value, 0.0)
