"""Networks without a job: switches, links, and their bandwidth."""

from __future__ import annotations

from parcost import (
    BYTES,
    ONE,
    SECONDS,
    Real,
    block,
    children,
    fraction,
    integer,
    integers,
    quantity,
    string,
    switch,
    word,
)
from parcost_plugins.vocabulary.link_rates import link_rate


@block("network", label="required")
class Network:
    """The geometry of a network that connects devices: a fat tree, a dragonfly or a torus."""

    kind: str = word(
        "fat_tree", "rail", "dragonfly", "dragonfly_plus", "torus", doc="kind of topology"
    )
    devices: Real = integer(qualifiers={"devices": 1.0}, doc="number of devices that it connects")
    bandwidth: Real = link_rate(
        doc="bandwidth of one link between switches, or between neighbours in a torus"
    )
    port: Real = link_rate(default="bandwidth", doc="bandwidth of a device into the network")
    radix: Real | None = integer(
        default=None, minimum=2.0, doc="ports of a switch of a fat tree or of rails (R)"
    )
    per_node: Real = integer(default=1, doc="devices of a node, each on its own rail (g)")
    oversubscription: Real = quantity(
        ONE, default=1.0, minimum=1.0, doc="oversubscription of a leaf: ports down / ports up (o)"
    )
    groups: Real | None = integer(default=None, doc="groups of a dragonfly (G)")
    global_links: Real | None = integer(
        default=None, doc="global links of one group; by default those of all its routers"
    )
    routers: Real | None = integer(default=None, doc="routers of one group (a)")
    links_per_router: Real | None = integer(
        default=None, doc="global links of a router to other groups (h)"
    )
    dimensions: tuple[int, ...] = integers(
        default=(), minimum=1, doc="dimensions of a torus, in devices"
    )
    wrap: bool = switch(
        default=True, doc="wrap-around links: the ends of a dimension of a torus are connected"
    )
    port_latency: Real = quantity(SECONDS, default=0.0, doc="latency of one port of a device")
    switch_latency: Real = quantity(SECONDS, default=0.0, doc="latency of one switch")
    cable_latency: Real = quantity(
        SECONDS, default=0.0, doc="latency of all cables on the longest route"
    )
    leaving: Real = fraction(
        default=1.0, doc="share of the bytes of a device that leave its leaf switch (phi)"
    )
    exposed: Real = fraction(
        default=1.0, doc="share of a step that is spent waiting for this traffic"
    )
    volume: Real | None = quantity(
        BYTES, default=None, positive=True, doc="bytes that every device sends through its port"
    )
    all_reduce: Real | None = quantity(
        BYTES,
        default=None,
        positive=True,
        doc="buffer size of an all-reduce over `ranks`, in place of `volume` (n)",
    )
    ranks: Real = integer(default="devices", doc="ranks of the all-reduce, over all of the network")
    compute: Real | None = quantity(
        SECONDS,
        default=None,
        positive=True,
        doc="compute time of the step, for the relative overhead of the traffic",
    )


@block("rail_exchange", label="required")
class RailExchange:
    """An all-to-all over several nodes: direct to every rank, or first inside the node (PXN)."""

    bytes_per_rank: Real = quantity(
        BYTES, positive=True, doc="bytes that a rank sends, including the part that it keeps (n)"
    )
    per_node: Real = integer(doc="ranks per node, each on a separate rail (g)")
    nodes: Real = integer(doc="number of participating nodes (k)")
    inside: Real = link_rate(doc="inside a node")
    outside: Real = link_rate(doc="bandwidth of the port of a rank")
    message: Real = quantity(SECONDS, default=0.0, doc="start-up time of one message (alpha)")
    oversubscription: Real = quantity(
        ONE,
        default=1.0,
        minimum=1.0,
        doc="oversubscription of a leaf switch, for messages to other rails",
    )


@block("resource", inside="sharing", label="required")
class Resource:
    """A shared resource of flows: a port, an uplink."""

    bandwidth: Real = link_rate(doc="bandwidth of all flows together")


@block("flow", inside="sharing", label="required")
class Flow:
    """Bytes sent over one or more resources."""

    bytes: Real = quantity(BYTES, doc="bytes to move")
    over: str = string(doc='names of the resources that it uses, such as "port uplink"')
    start: Real = quantity(SECONDS, default=0.0, doc="start time of the flow")


@block("sharing", label="required")
class Sharing:
    """Concurrent flows over shared resources with fair sharing."""

    resources: tuple[Resource, ...] = children("resource", doc="shared resources")
    flows: tuple[Flow, ...] = children("flow", doc="flows over these resources")
