"""One collective without a training step, and its parts."""

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

    operation: str = word(*OPERATIONS, doc="collective operation, or a point-to-point message")
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
        doc=(
            "group of ranks of the layout, on the fabric of the cluster; `own`: the ranks are "
            "described in this block"
        ),
    )
    level: str = string(
        default="",
        doc="level of the fabric that connects the ranks, in place of a bandwidth",
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
        "switch", "torus", "pcie", default="switch", doc="topology that connects the ranks"
    )
    dimensions: tuple[int, ...] = integers(
        default=(), minimum=1, doc="ranks along each dimension of a torus"
    )
    wrap: bool = switch(default=True, doc="wrap-around links of a torus")
    in_network: bool = switch(default=False, doc="the switch inside a node reduces (NVLS)")
    network_reduces: bool = switch(
        default=False, doc="the switches between nodes reduce (SHARP, CollNet)"
    )
    gamma: Real | None = quantity(
        SECONDS / BYTES,
        default=None,
        doc="time to reduce one byte; by default included in the copy",
    )
    pieces: Real | None = integer(
        default=None, doc="pieces of a pipelined algorithm (c); by default the best number"
    )
    chunks: Real = integer(
        default=1, doc="chunks of a pipelined algorithm (c); by default the best number"
    )
    overhead: Real = quantity(SECONDS, default=0.0, doc="overhead added to each call")
    launched: bool = switch(
        default=False, doc="the host launch time of each call is added, as on an idle stream"
    )
    congestion: Real = quantity(
        ONE,
        default=1.0,
        minimum=1.0,
        doc="number of flows that share the path, which divides every bandwidth",
    )
    skew: Real = quantity(
        SECONDS, default=0.0, doc="delay of the last rank, for which all ranks wait"
    )
    setup: Real = quantity(
        SECONDS, default=0.0, doc="set-up time before the first call: communicators and connections"
    )
    compression: Real = quantity(
        ONE, default=1.0, minimum=1.0, doc="bytes of the buffer / bytes sent (compression ratio)"
    )
    codec: Real | None = quantity(
        RATE, default=None, positive=True, doc="rate at which the buffer is packed and unpacked"
    )
    times: Real = integer(default=1, minimum=0, doc="number of repetitions")
    compute: Real | None = quantity(
        SECONDS, default=None, doc="compute time that can hide the transfer"
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
        doc=(
            "tables to print: all algorithms of the operation, the algorithms of all operations, "
            "or the fastest algorithm by size"
        ),
    )
    schedule: bool = switch(
        default=False, doc="table of the chunks that each rank sends in each step of a ring"
    )
    advice: bool = switch(default=False, doc="limits and remedies are printed")
