"""The tuning tables with which a communication library predicts and chooses its algorithms.

A library's constants change between releases, so they are data: one block for each release, in the
catalogue. The study sets the properties of a machine (its generation, its channels) in
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

    base: Real = quantity(
        SECONDS, default=0.0, doc="start-up time of the call, for any number of ranks"
    )
    nvlink: Real | None = quantity(SECONDS, default=None, doc="time of one step over NVLink")
    pcie: Real | None = quantity(SECONDS, default=None, doc="time of one step over PCIe")
    network: Real | None = quantity(SECONDS, default=None, doc="time of one step between nodes")


@block("generation", inside="tuning", label="required")
class GenerationTuning:
    """The limits of one generation of GPUs: bandwidth caps per channel, or in total where
    stated.
    """

    payload: Real = quantity(
        RATE, positive=True, doc="payload rate of one NVLink, in one direction"
    )
    ll_one_node: Real = quantity(
        RATE, positive=True, doc="rate of the LL protocol on one node, sum of all channels"
    )
    ring_ll128: Real = quantity(RATE, doc="rate of a ring with LL128")
    tree_ll128_one_node: Real = quantity(RATE, doc="rate of a tree with LL128 on one node")
    tree_ll128_two_nodes: Real = quantity(RATE, doc="rate of a tree with LL128 on two nodes")
    tree_ll128_more_nodes: Real = quantity(RATE, doc="rate of a tree with LL128 on more nodes")
    tree_one_node: Real = quantity(RATE, doc="rate of a tree on one node, for any protocol")
    tree_two_nodes: Real = quantity(RATE, doc="rate of a tree on two nodes")
    tree_more_nodes: Real = quantity(RATE, doc="rate of a tree on more nodes")
    nvls_tree_two_nodes: Real = quantity(RATE, default=0.0, doc="rate of NVLS-tree on two nodes")
    nvls_tree_more_nodes: Real = quantity(RATE, default=0.0, doc="rate of NVLS-tree on more nodes")
    nvls_efficiency: Real = fraction(
        default=0.0, doc="share of the channel bandwidth with NVLS; 0: not supported"
    )
    long_ring: Real = quantity(
        ONE,
        default=1.0,
        minimum=1.0,
        doc="factor on the latency of a ring of long messages over nodes",
    )
    collnet: Real = fraction(default=1.0, doc="factor on the bandwidth of CollNet-Direct")
    nvls_tree_corrected: bool = switch(
        default=False,
        doc="NVLS-tree is corrected by message size like a tree, if the host also sets it",
    )


@block("host", inside="tuning", label="required")
class HostTuning:
    """The limits of the host's processor between nodes."""

    ll_two_nodes: Real = quantity(
        RATE, positive=True, doc="rate of the LL protocol on two nodes, sum of all channels"
    )
    ll_more_nodes: Real = quantity(
        RATE, positive=True, doc="rate of the LL protocol on more than two nodes"
    )
    overhead: Real = quantity(SECONDS, doc="overhead of the network on a step inside of the node")
    nvls_tree_corrected: bool = switch(
        default=False, doc="NVLS-tree is corrected by message size, if the generation also sets it"
    )


@block("tuning", label="required")
class Tuning:
    """One release of a library: latencies, bandwidth caps and factors of its cost model."""

    protocols: tuple[ProtocolTuning, ...] = children(
        "protocol", doc="latencies of pairs of algorithm and protocol"
    )
    generations: tuple[GenerationTuning, ...] = children(
        "generation", doc="rows of generations of GPUs"
    )
    hosts: tuple[HostTuning, ...] = children("host", doc="rows of hosts, by processor")
    ring_ll: Real = fraction(positive=True, doc="share of the channel bandwidth with a ring and LL")
    ring_ll128: Real = fraction(
        positive=True, doc="share of the channel bandwidth with a ring and LL128"
    )
    tree: Real = fraction(positive=True, doc="share of the channel bandwidth with a tree")
    tree_ll: Real = fraction(positive=True, doc="share of a tree's bandwidth, with LL")
    tree_ll128_one_node: Real = fraction(
        positive=True, doc="share of a tree's bandwidth, with LL128 on one node"
    )
    tree_ll128_more_nodes: Real = fraction(
        positive=True, doc="share of a tree's bandwidth, with LL128 on more nodes"
    )
    pat: Real = fraction(positive=True, doc="share of the channel bandwidth with PAT")
    pat_steps: Real = quantity(ONE, positive=True, doc="network steps of PAT that run in parallel")
    pat_rank: Real = quantity(SECONDS, doc="latency of PAT per rank")
    collnet_direct_peer: Real = quantity(
        SECONDS, doc="latency of CollNet-Direct for each other rank of the node, each way"
    )
    collnet_network: Real = fraction(
        positive=True,
        doc="share of the bandwidth of a network channel with gather and scatter of CollNet-Direct",
    )
    simple_overhead: Real = quantity(ONE, doc="factor on the host's overhead, with Simple")
    simple_ports: Real = quantity(ONE, doc="network card latencies that a step pays, with Simple")
    long_message: Real = quantity(
        BYTES, doc="bytes per channel and rank above which a ring over nodes counts as long"
    )
    start: Real = quantity(
        SECONDS,
        default=0.0,
        doc="additional start-up time per call, for kernel start and synchronization of ranks",
    )
    two_ranks: Real = fraction(
        positive=True,
        default=1.0,
        doc="share of the ring bandwidth in a node with an all-reduce of two ranks",
    )
    nvls_reach: Real = fraction(
        positive=True, default=1.0, doc="share of the link bandwidth with an all-reduce over NVLS"
    )
    extra_crossings: Real = quantity(
        ONE, default=0.0, doc="additional network steps of an all-reduce per node beyond two"
    )
    lone_as_tree: bool = switch(
        default=True, doc="a ring with one rank per node has the step time of a tree"
    )
    correction_from: Real = quantity(
        BYTES,
        positive=True,
        doc=(
            "message size of the first correction of a tree; it doubles for each further correction"
        ),
    )
    tree_ll_correction: tuple[int, ...] = integers(
        minimum=1,
        doc="share of a tree's bandwidth with LL, in percent, by size; 100 beyond the last",
    )
    tree_ll128_correction: tuple[int, ...] = integers(
        minimum=1,
        doc="share of a tree's bandwidth with LL128, in percent, by size; 100 beyond the last",
    )
    tree_simple_correction: tuple[int, ...] = integers(
        minimum=1,
        doc="share of a tree's bandwidth with Simple, in percent, by size; 100 beyond the last",
    )
