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
        "fat_tree", "rail", "dragonfly", "dragonfly_plus", "torus", doc="what it is built as"
    )
    devices: Real = integer(qualifiers={"devices": 1.0}, doc="that it joins")
    bandwidth: Real = link_rate(
        doc="of one link between switches, or between neighbours in a torus"
    )
    port: Real = link_rate(default="bandwidth", doc="by which one device injects")
    radix: Real | None = integer(
        default=None, minimum=2.0, doc="of a fat tree and of rails: ports of a switch (R)"
    )
    per_node: Real = integer(default=1, doc="of rails: devices of a node, each on its own (g)")
    oversubscription: Real = quantity(
        ONE, default=1.0, minimum=1.0, doc="of a leaf: ports down over ports up (o)"
    )
    groups: Real | None = integer(default=None, doc="of a dragonfly (G)")
    global_links: Real | None = integer(
        default=None, doc="of one group to others; those of its routers where it is left out"
    )
    routers: Real | None = integer(default=None, doc="of one group (a)")
    links_per_router: Real | None = integer(default=None, doc="to other groups (h)")
    dimensions: tuple[int, ...] = integers(default=(), minimum=1, doc="of a torus, in devices")
    wrap: bool = switch(default=True, doc="of a torus: the ends of a dimension are joined")
    port_latency: Real = quantity(SECONDS, default=0.0, doc="of one port of a device")
    switch_latency: Real = quantity(SECONDS, default=0.0, doc="of one switch")
    cable_latency: Real = quantity(SECONDS, default=0.0, doc="of all cables on the longest way")
    leaving: Real = fraction(
        default=1.0, doc="of the bytes that a device sends, that leave its leaf (phi)"
    )
    exposed: Real = fraction(default=1.0, doc="of a step, that waits for this traffic")
    volume: Real | None = quantity(
        BYTES, default=None, positive=True, doc="that every device sends through its port"
    )
    all_reduce: Real | None = quantity(
        BYTES, default=None, positive=True, doc="to sum over `ranks`, in place of a volume (n)"
    )
    ranks: Real = integer(default="devices", doc="of the all-reduce, over all of the network")
    compute: Real | None = quantity(
        SECONDS, default=None, positive=True, doc="that the traffic is an overhead to"
    )


@block("rail_exchange", label="required")
class RailExchange:
    """An all-to-all over nodes: direct to every rank, or first inside the node (PXN)."""

    bytes_per_rank: Real = quantity(
        BYTES, positive=True, doc="that a rank sends, with the part that it keeps (n)"
    )
    per_node: Real = integer(doc="ranks of a node, each on a rail of its own (g)")
    nodes: Real = integer(doc="that take part (k)")
    inside: Real = link_rate(doc="inside a node")
    outside: Real = link_rate(doc="of the port of a rank")
    message: Real = quantity(SECONDS, default=0.0, doc="start-up time of one message (alpha)")
    oversubscription: Real = quantity(
        ONE, default=1.0, minimum=1.0, doc="of a leaf, which messages to other rails leave"
    )


@block("resource", inside="sharing", label="required")
class Resource:
    """A shared resource of flows: a port, an uplink."""

    bandwidth: Real = link_rate(doc="of all flows together")


@block("flow", inside="sharing", label="required")
class Flow:
    """Bytes sent over one or more resources."""

    bytes: Real = quantity(BYTES, doc="to move")
    over: str = string(doc='the resources that it takes, such as "port uplink"')
    start: Real = quantity(SECONDS, default=0.0, doc="when it begins")


@block("sharing", label="required")
class Sharing:
    """Concurrent flows over shared resources, each with its fair share."""

    resources: tuple[Resource, ...] = children("resource", doc="what is shared")
    flows: tuple[Flow, ...] = children("flow", doc="what moves")
