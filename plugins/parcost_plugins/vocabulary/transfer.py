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

    operation: str = word(*OPERATIONS, doc="which operation")
    size: Real = quantity(
        BYTES,
        qualifiers={"total": 1.0, "shard": 1.0},
        doc="the buffer (n). Of operations that divide it among the ranks it is ambiguous: "
        "`total` is the whole of it, `shard` the part of one rank",
    )
    algorithm: str = word("auto", registry="collectives", default="auto", doc="which algorithm")
    group: str = word(
        "own",
        *_GROUPS,
        default="own",
        doc="ranks of the layout, on the cluster's fabric; `own` are described here",
    )
    level: str = string(
        default="",
        doc="level of the cluster's fabric that joins the ranks, in place of a bandwidth",
    )
    ranks: Real | None = integer(default=None, doc="how many take part (P)")
    nodes: Real = integer(default=1, doc="nodes that the ranks are on")
    ranks_per_node: Real | None = integer(
        default=None, doc="of each node; ranks / nodes where it is left out"
    )
    latency: Real = quantity(SECONDS, default=0.0, doc="start-up time of one message (alpha)")
    bandwidth: Rate | None = link_rate(
        default=None, curve=True, doc="of one rank (B), within a node where there are several"
    )
    efficiency: Real = quantity(
        ONE, default=1.0, maximum=1.0, positive=True, doc="achieved, of the bandwidth"
    )
    network_latency: Real = quantity(
        SECONDS, default="latency", doc="start-up time of one message between nodes"
    )
    network_bandwidth: Rate | None = link_rate(
        default=None, curve=True, doc="of one port of a node"
    )
    network_efficiency: Real = quantity(
        ONE, default=1.0, maximum=1.0, positive=True, doc="achieved, of the network's bandwidth"
    )
    ports: Real | None = integer(
        default=None, doc="of a node into the network; one for each rank where it is left out"
    )
    kind: str = word("switch", "torus", "pcie", default="switch", doc="what joins the ranks")
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
        default=None, doc="cut of a pipelined algorithm (c); the best where it is left out"
    )
    chunks: Real = integer(default=1, doc="calls that the buffer is split into")
    overhead: Real = quantity(SECONDS, default=0.0, doc="added to each call")
    launched: bool = switch(
        default=False, doc="add the host's launch of each call, which an idle stream exposes"
    )
    congestion: Real = quantity(
        ONE, default=1.0, minimum=1.0, doc="flows that share the way; divides every bandwidth"
    )
    skew: Real = quantity(
        SECONDS, default=0.0, doc="by which the last rank comes late, for which all wait"
    )
    setup: Real = quantity(
        SECONDS, default=0.0, doc="once, before the first: making communicators and connections"
    )
    compression: Real = quantity(
        ONE, default=1.0, minimum=1.0, doc="bytes of the buffer over bytes that are sent"
    )
    codec: Real | None = quantity(
        RATE, default=None, positive=True, doc="rate at which the buffer is packed and unpacked"
    )
    times: Real = integer(default=1, minimum=0, doc="how often it happens")
    compute: Real | None = quantity(SECONDS, default=None, doc="time that all of it may hide under")
    bisection: Real | None = link_rate(
        default=None, doc="of the whole network, across a cut that halves the ranks"
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
