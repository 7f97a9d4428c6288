"""Placing a group of ranks on the fabric: its shape, and what its links carry.

Ports. A unit of the level below reaches a level through ``ports`` ports, one per device
unless the level says otherwise. A plan is priced for the moment when all ranks of the
unit communicate, each in its own group of the same kind, because all ranks are in the
same phase. Then

- a rank has ``ports / devices`` of a port for itself: half of one where two devices
  share a network card, four where each device has four, over which it stripes;
- a group with u members in the unit owns u times that, and a ring over all its ranks,
  which crosses the boundary once per lap, uses all of it;
- a rank whose group crosses the boundary nowhere else may use what the other u - 1 leave
  idle, but never more than one port, or its own ports if it has several.

Efficiency multiplies the bandwidth. Oversubscription belongs to the way out of a unit:
that of a level divides the bandwidth of every level further out, and leaves the level
itself alone. In a mesh there is one port to each peer: all of them work when the members
of a group exchange their parts, one when a rank has a single partner.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from attrs import frozen

from parcost import Curve, Diagnostic, Group, Link, Mask, Real, SpecError
from parcost.numeric import INFINITY, any_of, is_array, maximum, minimum, where
from parcost_plugins.topology.links import AlphaBeta, Measured, Slowest
from parcost_plugins.topology.occupancy import occupancy
from parcost_plugins.vocabulary import Cluster, Level


@frozen(kw_only=True, eq=False)
class Tier:
    """The level *name* of the fabric, counted in devices.

    *below* and *capacity* are the devices of one unit of the level below and of this
    one; *ports* are those of the unit below for each of its devices; *thinned* is how
    much the levels below narrow the way out.
    """

    name: str
    level: Level
    below: Real
    capacity: Real
    ports: Real
    thinned: Real

    def link(self, ports: Real) -> Link:
        """Return what a rank has that crosses this level through *ports* ports."""
        level = self.level
        scale = ports * level.efficiency
        if isinstance(level.bandwidth, Curve):
            return Measured(
                name=self.name, latency=level.latency, curve=level.bandwidth, ports=scale
            )
        return AlphaBeta(name=self.name, latency=level.latency, bandwidth=level.bandwidth * scale)


def tiers(cluster: Cluster) -> tuple[Tier, ...]:
    """Return the levels of the fabric of *cluster*, in devices.

    A level without a size joins all that there is.

    Raises:
        SpecError: The fabric has no levels.
    """
    fabric: Any = cluster.fabric
    if not fabric.levels:
        message = f"fabric `{fabric.label}` has no levels"
        help = "write `level node { ... }` inside it"
        raise SpecError([Diagnostic("no-levels", message, help=help)])
    found: list[Tier] = []
    below: Real = 1.0
    thinned: Real = 1.0
    for level in fabric.levels:
        capacity = maximum(cluster.devices, below) if level.size is None else below * level.size
        ports = 1.0 if level.ports is None else level.ports / below
        found.append(
            Tier(
                name=level.label,
                level=level,
                below=below,
                capacity=capacity,
                ports=ports,
                thinned=thinned,
            )
        )
        below = capacity
        thinned = thinned * level.oversubscription
    return tuple(found)


def place(name: str, *, stride: Real, size: Real, levels: Sequence[Tier], devices: Real) -> Group:
    """Return the group of *size* ranks, *stride* apart, on the *levels* of a fabric."""
    capacities = [tier.capacity for tier in levels[:-1]]
    shape, fewest = occupancy(capacities, stride, size, devices)
    members: Real = 1.0  # of the group, in the unit below
    links, rings, pairs, hops = [], [], [], []
    for tier, most, least in zip(levels, shape, fewest, strict=True):
        share = tier.ports / tier.thinned
        peers = maximum(most - 1, 1.0) if tier.level.kind == "mesh" else 1.0
        links.append(tier.link(share * peers))
        rings.append(tier.link(share * peers * members))
        pairs.append(tier.link(share))
        hops.append(tier.link(minimum(maximum(tier.ports, 1.0), share * members)))
        members = members * least
    crossed = [most > 1 for most in shape]
    return Group(
        name=name,
        ranks=size,
        shape=shape,
        links=tuple(links),
        pairs=tuple(pairs),
        flat=_slowest(rings, crossed),
        pair=_slowest(pairs, crossed),
        hop=_slowest(hops, crossed),
        fewest=fewest,
    )


def _slowest(links: Sequence[Link], crossed: Sequence[Mask]) -> Link:
    """Return the link that all the *links* that are crossed make together."""
    outermost = [i for i, crosses in enumerate(crossed) if any_of(crosses)] or [0]
    if len(outermost) == 1 and not is_array(*crossed):
        return links[outermost[0]]
    latency: Real = 0.0
    bandwidth: Real = INFINITY
    for link, crosses in zip(links, crossed, strict=True):
        latency = maximum(latency, where(crosses, link.latency, 0.0))
        bandwidth = minimum(bandwidth, where(crosses, link.bandwidth, INFINITY))
    bandwidth = where(bandwidth < INFINITY, bandwidth, links[0].bandwidth)  # a single rank
    name = links[outermost[-1]].name
    if any(isinstance(link, Measured) for link in links):
        return Slowest(
            name=name,
            latency=latency,
            bandwidth=bandwidth,
            links=tuple(links),
            crossed=tuple(crossed),
        )
    return AlphaBeta(name=name, latency=latency, bandwidth=bandwidth)
