"""The tables by which a communication library chooses, and predicts, its algorithms.

A library's constants change between releases, so they are data: one block for each release, in the
catalogue. The properties of a machine (its generation, its channels) are given by the study, under
``collectives``.
"""

from __future__ import annotations

from parcost import (
    BYTES,
    ONE,
    RATE,
    SECONDS,
    Real,
    block,
    children,
    fraction,
    integers,
    quantity,
    switch,
)

#: The generations of a table that a device may name.
GENERATIONS = ("unknown", "volta", "ampere", "hopper", "blackwell", "cdna")


@block("protocol", inside="tuning", label="required")
class ProtocolTuning:
    """Latencies of one pair of algorithm and protocol, such as ``ring_ll``."""

    base: Real = quantity(SECONDS, default=0.0, doc="of the call, whatever the ranks")
    nvlink: Real | None = quantity(SECONDS, default=None, doc="of one step over NVLink")
    pcie: Real | None = quantity(SECONDS, default=None, doc="of one step over PCIe")
    network: Real | None = quantity(SECONDS, default=None, doc="of one step between nodes")


@block("generation", inside="tuning", label="required")
class GenerationTuning:
    """The limits of one generation of GPUs: caps per channel, or total where stated."""

    payload: Real = quantity(RATE, positive=True, doc="of one NVLink, in one direction")
    ll_one_node: Real = quantity(
        RATE, positive=True, doc="LL protocol on one node, all channels together"
    )
    ring_ll128: Real = quantity(RATE, doc="ring, LL128")
    tree_ll128_one_node: Real = quantity(RATE, doc="tree, LL128, on one node")
    tree_ll128_two_nodes: Real = quantity(RATE, doc="tree, LL128, on two nodes")
    tree_ll128_more_nodes: Real = quantity(RATE, doc="tree, LL128, on more")
    tree_one_node: Real = quantity(RATE, doc="tree on one node, whatever the protocol")
    tree_two_nodes: Real = quantity(RATE, doc="tree on two nodes")
    tree_more_nodes: Real = quantity(RATE, doc="tree on more")
    nvls_tree_two_nodes: Real = quantity(RATE, default=0.0, doc="NVLS-tree on two nodes")
    nvls_tree_more_nodes: Real = quantity(RATE, default=0.0, doc="NVLS-tree on more")
    nvls_efficiency: Real = fraction(default=0.0, doc="of the channels, by NVLS; 0 has none")
    long_ring: Real = quantity(
        ONE, default=1.0, minimum=1.0, doc="on the latency of a ring of long messages over nodes"
    )
    collnet: Real = fraction(default=1.0, doc="on the bandwidth of CollNet-Direct")
    nvls_tree_corrected: bool = switch(
        default=False, doc="NVLS-tree is corrected by size as a tree is, if the host sets it too"
    )


@block("host", inside="tuning", label="required")
class HostTuning:
    """The limits of the host's processor between nodes."""

    ll_two_nodes: Real = quantity(
        RATE, positive=True, doc="LL protocol on two nodes, all channels together"
    )
    ll_more_nodes: Real = quantity(RATE, positive=True, doc="LL protocol on more")
    overhead: Real = quantity(SECONDS, doc="of the network on a step inside of the node")
    nvls_tree_corrected: bool = switch(
        default=False, doc="NVLS-tree is corrected by size, if the generation sets it too"
    )


@block("tuning", label="required")
class Tuning:
    """One release of a library: latencies, caps and factors of its own cost model."""

    protocols: tuple[ProtocolTuning, ...] = children(
        "protocol", doc="of pairs of algorithm and protocol"
    )
    generations: tuple[GenerationTuning, ...] = children("generation", doc="of GPUs")
    hosts: tuple[HostTuning, ...] = children("host", doc="by processor")
    ring_ll: Real = fraction(positive=True, doc="of the channels, by a ring with LL")
    ring_ll128: Real = fraction(positive=True, doc="of the channels, by a ring with LL128")
    tree: Real = fraction(positive=True, doc="of the channels, by a tree")
    tree_ll: Real = fraction(positive=True, doc="of a tree's bandwidth, with LL")
    tree_ll128_one_node: Real = fraction(
        positive=True, doc="of a tree's bandwidth, with LL128 on one node"
    )
    tree_ll128_more_nodes: Real = fraction(
        positive=True, doc="of a tree's bandwidth, with LL128 on more"
    )
    pat: Real = fraction(positive=True, doc="of the channels, by PAT")
    pat_steps: Real = quantity(ONE, positive=True, doc="network steps of PAT that run at once")
    pat_rank: Real = quantity(SECONDS, doc="latency of PAT for each rank")
    collnet_direct_peer: Real = quantity(
        SECONDS, doc="latency of CollNet-Direct for each other rank of the node, each way"
    )
    collnet_network: Real = fraction(
        positive=True, doc="of a network channel, by gathering and scattering over CollNet-Direct"
    )
    simple_overhead: Real = quantity(ONE, doc="on the host's overhead, with Simple")
    simple_ports: Real = quantity(ONE, doc="network card latencies that a step pays, with Simple")
    long_message: Real = quantity(
        BYTES, doc="per channel and rank, from which a ring over nodes counts as long"
    )
    start: Real = quantity(
        SECONDS, default=0.0, doc="of every call beyond the table: kernels start, ranks meet"
    )
    two_ranks: Real = fraction(
        positive=True,
        default=1.0,
        doc="of a ring's bandwidth in a node, by an all-reduce of two ranks",
    )
    nvls_reach: Real = fraction(
        positive=True, default=1.0, doc="of a link's bandwidth, by an all-reduce over NVLS"
    )
    extra_crossings: Real = quantity(
        ONE, default=0.0, doc="network steps of an all-reduce beyond two for each further node"
    )
    lone_as_tree: bool = switch(
        default=True, doc="a ring with one rank on each node steps as a tree does"
    )
    correction_from: Real = quantity(
        BYTES, positive=True, doc="size of the first correction of a tree; each next has twice it"
    )
    tree_ll_correction: tuple[int, ...] = integers(
        minimum=1, doc="of a tree's bandwidth with LL, in percent, by size; 100 beyond the last"
    )
    tree_ll128_correction: tuple[int, ...] = integers(
        minimum=1, doc="of a tree's bandwidth with LL128, in percent, by size; 100 beyond the last"
    )
    tree_simple_correction: tuple[int, ...] = integers(
        minimum=1, doc="of a tree's bandwidth with Simple, in percent, by size; 100 beyond the last"
    )
