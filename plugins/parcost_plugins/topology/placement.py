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

from attrs import field, frozen

from parcost import Curve, Diagnostic, Group, Link, Mask, Real, SpecError
from parcost.numeric import INFINITY, any_of, maximum, minimum, where
from parcost_plugins.topology.links import AlphaBeta, Measured, Slowest, longest
from parcost_plugins.topology.occupancy import Axes, aligned, crossed, occupancy
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

    def bandwidth(self, ports: Real) -> Real:
        """Return the bandwidth of *ports* ports, for the longest message where measured."""
        rate = self.level.bandwidth
        each = longest(rate) if isinstance(rate, Curve) else rate
        return each * self.level.efficiency * ports

    def link(self, ports: Real) -> Link:
        """Return what a rank has that crosses this level through *ports* ports."""
        level = self.level
        if isinstance(level.bandwidth, Curve):
            scale = ports * level.efficiency
            return Measured(
                name=self.name, latency=level.latency, curve=level.bandwidth, ports=scale
            )
        return AlphaBeta(name=self.name, latency=level.latency, bandwidth=self.bandwidth(ports))


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


def place(name: str, axes: Axes, levels: Sequence[Tier], devices: Real) -> Group:
    """Return the group of the ranks on *axes*, on the *levels* of a fabric."""
    capacities = [tier.capacity for tier in levels[:-1]]
    shape, fewest = occupancy(capacities, axes, devices)
    members: Real = 1.0  # of the group, in the unit below
    links, rings, pairs, hops = [], [], [], []  # the ports of a rank, level by level
    for tier, most, least in zip(levels, shape, fewest, strict=True):
        share = tier.ports / tier.thinned
        peers = maximum(most - 1, 1.0) if tier.level.kind == "mesh" else 1.0
        links.append(share * peers)
        rings.append(share * peers * members)
        pairs.append(share)
        hops.append(minimum(maximum(tier.ports, 1.0), share * members))
        members = members * least
    crossing = _Crossing.of(levels, shape)
    hop = crossing.slowest(hops)
    boundaries = _Boundaries(crossing=crossing, hop=hop, ports=hops, axes=axes, devices=devices)
    ranks: Real = 1.0
    for _, size in axes:
        ranks = ranks * size
    return Group(
        name=name,
        ranks=ranks,
        shape=shape,
        links=tuple(tier.link(ports) for tier, ports in zip(levels, links, strict=True)),
        pairs=tuple(tier.link(ports) for tier, ports in zip(levels, pairs, strict=True)),
        flat=crossing.slowest(rings),
        pair=crossing.slowest(pairs),
        hop=hop,
        hop_after=boundaries.after,
        fewest=fewest,
    )


@frozen(kw_only=True, eq=False)
class _Crossing:
    """Which of the *levels* a group crosses, and the latency of the slowest of them.

    *unhindered* is infinite where a level is not crossed, so that it limits no bandwidth.
    A group of one rank is taken to cross the first.
    """

    levels: Sequence[Tier]
    crossed: tuple[Mask, ...]
    unhindered: tuple[Real, ...]
    latency: Real
    name: str

    @classmethod
    def of(cls, levels: Sequence[Tier], shape: Sequence[Real]) -> _Crossing:
        """Return what a group of this *shape* crosses."""
        further: Mask = False
        for most in shape[1:]:
            further = further | (most > 1)
        return cls.where(
            levels, ((shape[0] > 1) | (further ^ True), *(most > 1 for most in shape[1:]))
        )

    @classmethod
    def where(cls, levels: Sequence[Tier], crossed: tuple[Mask, ...]) -> _Crossing:
        """Return the *levels* that are *crossed*."""
        latency: Real = 0.0
        name = ""
        for tier, crosses in zip(levels, crossed, strict=True):
            latency = maximum(latency, where(crosses, tier.level.latency, 0.0))
            name = tier.name if any_of(crosses) else name
        return cls(
            levels=levels,
            crossed=crossed,
            unhindered=tuple(where(crosses, 0.0, INFINITY) for crosses in crossed),
            latency=latency,
            name=name,
        )

    def slowest(self, ports: Sequence[Real]) -> Link:
        """Return what the levels that are crossed make together, with *ports* of each."""
        bandwidth: Real = INFINITY
        for tier, own, unhindered in zip(self.levels, ports, self.unhindered, strict=True):
            bandwidth = minimum(bandwidth, tier.bandwidth(own) + unhindered)
        if not any(isinstance(tier.level.bandwidth, Curve) for tier in self.levels):
            return AlphaBeta(name=self.name, latency=self.latency, bandwidth=bandwidth)
        return Slowest(
            name=self.name,
            latency=self.latency,
            bandwidth=bandwidth,
            links=tuple(tier.link(own) for tier, own in zip(self.levels, ports, strict=True)),
            crossed=self.crossed,
        )


@frozen(kw_only=True, eq=False)
class _Boundaries:
    """The boundaries between neighbours in a group, of which few may leave a unit.

    A message goes out at the outermost level where the two part. Groups that do not line
    up with the units part elsewhere in each, and those of several axes are no chain; *hop* is
    then the time of every boundary.
    """

    crossing: _Crossing
    hop: Link
    ports: Sequence[Real]
    axes: Axes
    devices: Real
    _links: dict[tuple[bool | bytes, ...], Link] = field(factory=dict, repr=False)

    def after(self, rank: int) -> Link:
        """Return the link between *rank* and the next."""
        if len(self.axes) > 1 or sum(any_of(m) for m in self.crossing.crossed) == 1:
            return self.hop
        [(stride, size)] = self.axes
        levels = self.crossing.levels
        outermost: list[Mask] = []
        even: Mask = True
        further: Mask = False
        for tier in reversed(levels[:-1]):
            even = even & aligned(tier.capacity, stride, size, self.devices)
            parts = crossed(tier.capacity, stride, rank + 1)
            outermost.insert(0, parts & (further ^ True))
            further = further | parts
        outermost.insert(0, further ^ True)
        masks = tuple(
            (even & own) | ((even ^ True) & any_)
            for own, any_ in zip(outermost, self.crossing.crossed, strict=True)
        )
        key = tuple(mask if isinstance(mask, bool) else mask.tobytes() for mask in masks)
        if key not in self._links:
            self._links[key] = _Crossing.where(levels, masks).slowest(self.ports)
        return self._links[key]
