"""One collective by itself, without a training step; and its parts."""

from __future__ import annotations

from parcost import (
    BYTES,
    ONE,
    RATE,
    SECONDS,
    Rate,
    Real,
    block,
    integer,
    integers,
    quantity,
    string,
    switch,
    word,
)
from parcost_plugins.vocabulary.link_rates import link_rate

_GROUPS = ("tp", "cp", "dp", "pp", "dp_cp", "ep", "etp", "edp", "job", "shard", "replicate")

#: What a collective operation may be; n is the big buffer of one rank.
OPERATIONS = (
    "all_reduce",
    "all_gather",
    "reduce_scatter",
    "broadcast",
    "reduce",
    "scatter",
    "gather",
    "all_to_all",
    "point_to_point",
)


@block("transfer", label="required")
class Transfer:
    """One collective, or one message, by itself: its time and its traffic."""

    operation: str = word(*OPERATIONS, doc="collective operation, or a message")
    size: Real = quantity(
        BYTES,
        qualifiers={"total": 1.0, "shard": 1.0},
        doc=(
            "size of the buffer (n). For operations that divide it among the ranks, `total` is "
            "the whole buffer and `shard` the part of one rank"
        ),
    )
    algorithm: str = word(
        "auto", registry="collectives", default="auto", doc="algorithm of the collective"
    )
    group: str = word(
        "own",
        *_GROUPS,
        default="own",
        doc="group of the layout, on the cluster's fabric; `own` ranks are described here",
    )
    level: str = string(
        default="",
        doc="level of the cluster's fabric that joins the ranks, in place of a bandwidth",
    )
    ranks: Real | None = integer(default=None, doc="number of ranks (P)")
    nodes: Real = integer(default=1, doc="nodes of the ranks")
    ranks_per_node: Real | None = integer(
        default=None, doc="ranks of each node; by default ranks / nodes"
    )
    latency: Real = quantity(SECONDS, default=0.0, doc="start-up time of one message (alpha)")
    bandwidth: Rate | None = link_rate(
        default=None,
        curve=True,
        doc="bandwidth of one rank (B), within a node if there are several",
    )
    efficiency: Real = quantity(
        ONE, default=1.0, maximum=1.0, positive=True, doc="share of the bandwidth that is achieved"
    )
    network_latency: Real = quantity(
        SECONDS, default="latency", doc="start-up time of one message between nodes"
    )
    network_bandwidth: Rate | None = link_rate(
        default=None, curve=True, doc="bandwidth of one port of a node"
    )
    network_efficiency: Real = quantity(
        ONE,
        default=1.0,
        maximum=1.0,
        positive=True,
        doc="share of the network's bandwidth that is achieved",
    )
    ports: Real | None = integer(
        default=None, doc="ports of a node into the network; by default one per rank"
    )
    kind: str = word(
        "switch", "torus", "pcie", default="switch", doc="topology that joins the ranks"
    )
    dimensions: tuple[int, ...] = integers(
        default=(), minimum=1, doc="ranks along each dimension of a torus"
    )
    wrap: bool = switch(default=True, doc="the ends of a torus are joined")
    in_network: bool = switch(default=False, doc="the switch that joins ranks reduces (NVLS)")
    network_reduces: bool = switch(
        default=False, doc="the switches between nodes reduce (SHARP, CollNet)"
    )
    gamma: Real | None = quantity(
        SECONDS / BYTES, default=None, doc="time to reduce one byte; none where it is the copy's"
    )
    pieces: Real | None = integer(
        default=None, doc="pieces of a pipelined algorithm (c); by default the best number"
    )
    chunks: Real = integer(
        default=1, doc="chunks of a pipelined algorithm (c); by default the best number"
    )
    overhead: Real = quantity(SECONDS, default=0.0, doc="overhead added to each call")
    launched: bool = switch(
        default=False, doc="add the host's launch of each call, which an idle stream exposes"
    )
    congestion: Real = quantity(
        ONE, default=1.0, minimum=1.0, doc="flows that share the way; divides every bandwidth"
    )
    skew: Real = quantity(SECONDS, default=0.0, doc="delay of the last rank, for which all wait")
    setup: Real = quantity(
        SECONDS, default=0.0, doc="set-up time before the first call: communicators and connections"
    )
    compression: Real = quantity(
        ONE, default=1.0, minimum=1.0, doc="bytes of the buffer over bytes that are sent"
    )
    codec: Real | None = quantity(
        RATE, default=None, positive=True, doc="rate at which the buffer is packed and unpacked"
    )
    times: Real = integer(default=1, minimum=0, doc="number of repetitions")
    compute: Real | None = quantity(
        SECONDS, default=None, doc="compute time that may hide all of it"
    )
    bisection: Real | None = link_rate(
        default=None, doc="bandwidth of the whole network, across a cut that halves the ranks"
    )
    compare: str = word(
        "off",
        "algorithms",
        "operations",
        "sizes",
        default="off",
        doc="list all algorithms of the operation, those of every operation, or what is fastest "
        "by size",
    )
    schedule: bool = switch(default=False, doc="list who sends which chunk in each step of a ring")
    advice: bool = switch(default=False, doc="print limits and remedies")
