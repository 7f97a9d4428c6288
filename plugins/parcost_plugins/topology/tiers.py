"""The levels of a fabric, counted in devices, and the bandwidth of a port on each.

A unit of the level below is connected to a level by ``ports`` ports; the default is one per device.
The usable bandwidth of a port depends on the kind of the level:

- in a mesh there is one port to each peer; all ports are busy in an exchange among all members, and
  one port if a rank has one partner;
- the groups of a dragonfly have few links to each other group. Traffic to all groups uses all
  links. If every rank has a partner in the same other group, direct routes use ``1 / (G - 1)`` of
  the links. Routes through random groups have half of the bandwidth, because each message crosses
  two links;
- rails carry only traffic within a rail. Other traffic leaves the leaf, through uplinks that
  may be oversubscribed, unless it first moves inside the node (PXN).

Efficiency multiplies the bandwidth and collisions divide it. Oversubscription applies to traffic
out of a unit: it divides the bandwidth of every level further out, but not of the level itself. At
the outermost level it applies to traffic between the leaf switches.
"""

from __future__ import annotations

from functools import partial
from math import prod
from typing import Any

from attrs import evolve

from parcost import (
    Curve,
    Diagnostic,
    Formula,
    Link,
    Mask,
    Real,
    SpecError,
    attribute,
    formula,
    plain_of,
    record,
)
from parcost.numeric import any_of, divides, maximum, where
from parcost_plugins.physics.exchange import AlphaBeta
from parcost_plugins.topology.links import MeasuredLink, longest_message_bandwidth
from parcost_plugins.topology.occupancy import Axes
from parcost_plugins.vocabulary import Cluster, Level

DRAGONFLIES = ("dragonfly", "dragonfly_plus")


@record(kw_only=True, eq=False)
class Tier:
    """The level *name* of the fabric, counted in devices.

    *below* and *capacity* are the devices of one unit of the level below and of this one; *ports*
    are the ports of the unit below per device. *share* is the share of ports usable after
    oversubscription of the levels below. *rate* is the bandwidth of one port, at the largest
    message size if it was measured. *to_all* and *to_one* are the usable fractions of a port for
    traffic to all units, and to a single unit. *latency* is the latency of the longest path through
    the level, with *switches* switches.
    """

    name: str
    level: Level
    below: Real
    capacity: Real
    ports: Real
    share: Real
    rate: Real
    outermost: bool = False
    latency: Real = 0.0
    switches: Real = 0.0
    to_all: Real = 1.0
    to_one: Real = 1.0

    @property
    def endpoints(self) -> Real:
        """Ports of the units below in one network of switches; each rail is a network."""
        units = self.capacity / self.below
        return units if self.level.kind == "rail" else units * self.ports * self.below

    def over(self, reach: Real) -> Tier:
        """Return the tier for a group that spans *reach* devices."""
        level = self.level
        hops = switches(level, self.endpoints, reach / self.capacity * self.endpoints)
        latency = level.latency + level.cable_latency + level.hop_latency * hops
        rate = rate_of(level)
        if self.outermost and level.kind != "rail":
            several = hops > 1 if level.radix is not None else True
            rate = rate / where(several, level.oversubscription, 1.0)
        return evolve(self, latency=latency, switches=hops, rate=rate)

    def off_rail(self, axes: Axes) -> Tier:
        """Return the tier for messages between any two ranks of a group with *axes*.

        If its members have different indices in their units, messages leave their rails. Then they
        pass two more switches, and the uplinks of a leaf switch, which may be oversubscribed.
        """
        if not self.leaves_leaf:
            return self
        level = self.level
        same: Mask = True
        for stride, _ in axes:
            same = same & divides(self.below, stride)
        return evolve(
            self,
            latency=self.latency + where(same, 0.0, 2 * level.hop_latency),
            switches=self.switches + where(same, 0.0, 2.0),
            rate=self.rate / where(same, 1.0, level.oversubscription),
        )

    def link(self, ports: Real) -> Link:
        """Return the link of a rank with *ports* ports on this level."""
        level = self.level
        if isinstance(level.bandwidth, Curve):
            scale = ports * self.rate / longest_message_bandwidth(level.bandwidth)
            return MeasuredLink(
                name=self.name,
                latency=self.latency,
                curve=level.bandwidth,
                ports=scale,
                level=level,
            )
        return AlphaBeta(
            name=self.name,
            latency=self.latency,
            bandwidth=self.rate * ports,
            level=level,
            explain=partial(self.explain, ports),
        )

    def explain(self, ports: Real) -> tuple[Formula, Formula]:
        """Return the latency, and the bandwidth of *ports* ports, with formulas."""
        level = self.level
        latency = attribute(level, "latency")
        if any_of(level.cable_latency != 0) or any_of(level.hop_latency != 0):
            latency = formula(
                "l + c + h s, through s switches",
                l=(latency, "s"),
                c=(attribute(level, "cable_latency"), "s"),
                h=(attribute(level, "hop_latency"), "s"),
                s=self.switches,
            )
        text, remarks = "b eta", []
        symbols: dict[str, Any] = {
            "b": (attribute(level, "bandwidth"), "B/s"),
            "eta": attribute(level, "efficiency"),
        }
        narrowed = rate_of(level) / self.rate
        for sign, symbol, value, remark in (
            ("/ ", "c", attribute(level, "collisions"), ""),
            ("/ ", "o", narrowed, "o by oversubscription"),
            ("", "k", ports, "k ports for a rank"),
        ):
            if any_of(plain_of(value) != 1):
                text, symbols[symbol] = f"{text} {sign}{symbol}", value
                remarks += [remark] if remark else []
        return latency, formula(", ".join([text, *remarks]), symbols)

    @property
    def leaves_leaf(self) -> bool:
        """Whether messages to another rail leave their leaf."""
        return self.level.kind == "rail" and not self.level.pxn


def tiers(cluster: Cluster) -> tuple[Tier, ...]:
    """Return the levels of the fabric of *cluster*, in devices.

    A level without a size connects all devices; the size of a torus follows from its dimensions.

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
        size = float(prod(level.dimensions)) if level.dimensions else level.size
        capacity = maximum(cluster.devices, below) if size is None else below * size
        ports = 1.0 if level.ports is None else level.ports / below
        to_all, to_one = _routes(level, ports * below, capacity / below)
        tier = Tier(
            name=level.label,
            level=level,
            below=below,
            capacity=capacity,
            ports=ports,
            share=ports / thinned,
            rate=rate_of(level),
            outermost=level is fabric.levels[-1],
            to_all=to_all,
            to_one=to_one,
        )
        found.append(tier.over(capacity))
        below = capacity
        thinned = thinned * level.oversubscription
    return tuple(found)


def rate_of(level: Level) -> Real:
    """Return the bandwidth of a port of *level* in B/s, at the largest message size if measured."""
    curve = level.bandwidth
    rate = longest_message_bandwidth(curve) if isinstance(curve, Curve) else curve
    return rate * level.efficiency / level.collisions


def switches(level: Level, endpoints: Real, reach: Real) -> Real:
    """Return the switches on the path between neighbours, among *endpoints* of *level*.

    *reach* is the largest number of endpoints between them. In a fat tree half of the ports
    of a switch go down, except at the top: of R ports, one switch joins R endpoints, two
    levels R^2 / 2, three R^3 / 4.

    >>> from types import SimpleNamespace
    >>> tree = SimpleNamespace(hops=None, radix=64.0, kind="fat_tree")
    >>> [switches(tree, 2048.0, reach) for reach in (32.0, 33.0, 2048.0)]
    [1.0, 3.0, 3.0]
    >>> [switches(tree, 65536.0, reach) for reach in (32.0, 1024.0, 1025.0)]
    [1.0, 3.0, 5.0]
    """
    if level.hops is not None:
        return level.hops
    if level.radix is None:
        straight = 5.0 if level.routing == "valiant" else 3.0
        return straight if level.kind in DRAGONFLIES else 1.0
    r = level.radix
    leaf = where(endpoints <= r, r, r / 2)
    pod = where(endpoints <= r * r / 2, r * r / 2, r * r / 4)
    return where(reach <= leaf, 1.0, where(reach <= pod, 3.0, 5.0))


def _routes(level: Level, links: Real, groups: Real) -> tuple[Real, Real]:
    """Return the usable fractions of a unit's *links*, for traffic to all units and to one unit.

    If a group has no direct link to every other group, most traffic passes through other groups.
    """
    if level.kind not in DRAGONFLIES:
        return 1.0, 1.0
    around = 0.5
    if level.routing == "valiant":
        return around, around
    others = maximum(groups - 1, 1.0)
    straight = where(links >= others, 1.0, around), 1 / others
    if level.routing == "minimal":
        return straight
    return straight[0], maximum(straight[1], around)
