"""Links of a group for messages to distant ranks, with their contention.

A link of a group connects one rank to its neighbours. Messages to distant ranks may share links
with other messages. Then each byte takes *f* times the time:

- On a torus or a line, messages pass all links between the two ranks. In a dimension with K ranks
  the middle link carries ``n floor(K^2 / 4) / K`` bytes, or half of it with wrap-around. f is this
  / the ``n (g - 1) / g`` bytes that leave the rank. If members have a distance of *t*, *t* groups
  share a link.
- On rails, traffic to another rail passes the uplinks of its leaf switch, which may be
  oversubscribed; with PXN it first moves inside the node instead.

Example: an all-to-all of 1 GB over 256 ranks of a 16 x 16 torus. With links of 50 GB/s it takes 40
ms: 128 ranks send half of it over 32 links.

A step, a ``transfer`` and a ``rail_exchange`` all use these links.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

from parcost import Formula, Group, Link, Mask, Real, formula, record
from parcost.numeric import INFINITY, all_of, ceil, divides, floor, maximum, minimum, where


@record(kw_only=True, eq=False)
class AlphaBeta(Link):
    """A latency per message and a bandwidth; *also* are other levels that are busy for a share.

    *spans* is the outermost of several levels. *explain* returns the formulas of both.
    """

    name: str
    latency: Real
    bandwidth: Real
    level: Any = None
    spans: Any = None
    also: Sequence[str] = ()
    also_busy: Sequence[Real] = ()
    explain: Callable[[], tuple[Real | Formula, Real | Formula]] | None = None

    @property
    def resource(self) -> Any:
        """The level that a transfer occupies: the outermost, if the link has several levels."""
        return self.name if self.spans is None else self.spans

    def explain_latency(self) -> Real | Formula:
        """Return the latency as a formula if it has one."""
        return self.latency if self.explain is None else self.explain()[0]

    def explain_bandwidth(self) -> Real | Formula:
        """Return the bandwidth as a formula if it has one."""
        return self.bandwidth if self.explain is None else self.explain()[1]

    def seconds(self, rounds: Real, bytes_: Real) -> Real:
        """Return ``rounds * latency + bytes_ / bandwidth``."""
        return rounds * self.latency + bytes_ / self.bandwidth


@record(kw_only=True, eq=False)
class SharedLink(Link):
    """The *link* of one rank with contention: every byte takes *factor* times as long."""

    link: Link
    factor: Real

    @property
    def name(self) -> Any:
        """The name of the level."""
        return self.link.name

    @property
    def latency(self) -> Real:
        """The latency of a message in seconds, which contention does not change."""
        return self.link.latency

    @property
    def bandwidth(self) -> Real:
        """The bandwidth of one rank in B/s."""
        return self.link.bandwidth / self.factor

    @property
    def level(self) -> Any:
        """The block of the level."""
        return self.link.level

    @property
    def measured(self) -> bool:
        """Whether the link has measured times."""
        return self.link.measured

    def explain_latency(self) -> Real | Formula:
        """Return the latency of a message, as a formula if it has one."""
        return self.link.explain_latency()

    def explain_bandwidth(self) -> Formula:
        """Return the bandwidth of one rank as a formula."""
        link = (self.link.explain_bandwidth(), "B/s")
        return formula("B / f, a byte takes f times as long", B=link, f=self.factor)

    def seconds(self, rounds: Real, bytes_: Real) -> Real:
        """Return the seconds of *rounds* messages, with bytes multiplied by the factor."""
        return self.link.seconds(rounds, bytes_ * self.factor)


@record(kw_only=True, eq=False)
class SlowestLink(Link):
    """Several *links* in sequence; *crossed* is the mask of links in use."""

    name: Any
    links: tuple[Link, ...]
    crossed: tuple[Mask, ...]

    @property
    def latency(self) -> Real:
        """The largest latency in seconds."""
        longest: Real = 0.0
        for link, crossed in zip(self.links, self.crossed, strict=True):
            longest = maximum(longest, where(crossed, link.latency, 0.0))
        return longest

    @property
    def bandwidth(self) -> Real:
        """The smallest bandwidth in B/s."""
        least: Real = INFINITY
        for link, crossed in zip(self.links, self.crossed, strict=True):
            least = minimum(least, where(crossed, link.bandwidth, INFINITY))
        return least

    @property
    def measured(self) -> bool:
        """Whether any link has measured times."""
        return any(link.measured for link in self.links)

    def seconds(self, rounds: Real, bytes_: Real) -> Real:
        """Return the seconds on the slowest link."""
        longest: Real = 0.0
        for link, crossed in zip(self.links, self.crossed, strict=True):
            longest = maximum(longest, where(crossed, link.seconds(rounds, bytes_), 0.0))
        return longest


def exchange_links(group: Group) -> tuple[Link, ...]:
    """Return the links between ranks with the same index in their units, per level."""
    return tuple(
        _contend(link, _torus_factor(group, i, link)) for i, link in enumerate(group.links)
    )


def direct_links(group: Group) -> tuple[Link, ...]:
    """Return the links for direct messages between any two ranks, per level."""
    return tuple(
        _contend(link, _larger_factor(_torus_factor(group, i, link), _rail_factor(group, i, link)))
        for i, link in enumerate(group.links)
    )


def partner_links(group: Group) -> tuple[Link, ...]:
    """Return ``group.pairs`` for partners at increasing distances, with equal indices in their
    units.
    """
    return tuple(
        _contend(link, _port_factor(_torus_factor(group, i, link)))
        for i, link in enumerate(group.pairs)
    )


def partner_link(group: Group) -> Link:
    """Return ``group.pair`` for partners at any distance, with any indices in their units."""
    factors = [
        _port_factor(_larger_factor(_torus_factor(group, i, link), _rail_factor(group, i, link)))
        for i, link in enumerate(group.pairs)
    ]
    if all(factor is None for factor in factors):
        return group.pair
    shared = tuple(_contend(link, f) for link, f in zip(group.pairs, factors, strict=True))
    crossed = tuple(g > 1 for g in group.shape)
    return SlowestLink(
        name=group.pair.name, links=(group.pair, *shared), crossed=(group.ranks > 1, *crossed)
    )


def relayed_share(group: Group) -> Real:
    """Return the share of bytes leaving a node that first move inside of it (PXN)."""
    if len(group.links) < 2:
        return 0.0
    level: Any = group.links[1].level
    u = group.shape[0]
    return (u - 1) / u if _kind(level) == "rail" and level.pxn else 0.0


def rail_share(group: Group, at: int) -> Real:
    """Return the share of the bytes to all ranks beyond level *at* that stays on a rail.

    The members of a unit have different indices in it, each on a separate rail.
    """
    u = _members_inside(group, at)
    return where(_have_same_places(group, at), 1 / u, 0.0)


def oversubscription_factor(leaving: Real, ratio: Real) -> Real:
    """Return the slowdown by oversubscription if the share *leaving* of the traffic uses the
    uplinks.

    >>> oversubscription_factor(7 / 8, 8.0), oversubscription_factor(0.2, 3.0)
    (7.0, 1.0)
    """
    return maximum(leaving * ratio, 1.0)


def _contend(link: Link, factor: Real | None) -> Link:
    """Return *link* with contention by *factor*; unchanged if it is None."""
    return link if factor is None else SharedLink(link=link, factor=factor)


def _larger_factor(one: Real | None, other: Real | None) -> Real | None:
    if one is None or other is None:
        return other if one is None else one
    return maximum(one, other)


def _port_factor(factor: Real | None) -> Real | None:
    """Return the contention factor for a rank that sends to a single partner through one port."""
    return None if factor is None else maximum(factor, 1.0)


def _kind(level: Any) -> str:
    return getattr(level, "kind", "")


def _members_inside(group: Group, at: int) -> Real:
    """Return the number of members in a unit of the level below *at*."""
    return prod(group.shape[:at], start=1.0)


def _torus_factor(group: Group, at: int, link: Link) -> Real | None:
    """Return the contention factor of a torus for equal traffic to all units."""
    level: Any = link.level
    if _kind(level) != "torus" or not level.dimensions:
        return None
    g, stride = group.shape[at], maximum(group.strides[at], 1.0)
    load = torus_load(level.dimensions, g, stride, wrap=level.wrap)
    return where(g > 1, load * g / maximum(g - 1, 1.0), 1.0)


def torus_load(dimensions: Sequence[int], g: Real, stride: Real = 1.0, *, wrap: bool) -> Real:
    """Return the load of the busiest link in an all-to-all, in buffers per direction.

    The *g* ranks have a distance of *stride*, along the nearest dimensions first.

    >>> torus_load((16, 16), 256.0, wrap=True), torus_load((16,), 8.0, wrap=True)
    (2.0, 2.0)
    >>> torus_load((16,), 2.0, 8.0, wrap=True)  # eight groups of two, side by side
    2.0
    """
    load: Real = 0.0
    below: Real = 1.0
    for size in dimensions:
        near, far = maximum(stride, below), minimum(stride * g, below * size)
        # A dimension that is filled in part by odd numbers is taken for the next whole one.
        members = maximum(ceil(far / near), 1.0)
        apart = near / below
        ring = (stride * g >= below * size) & wrap
        here = apart * floor(members * members / 4) / members
        load = maximum(load, where(members > 1, here * where(ring, 0.5, 1.0), 0.0))
        below = below * size
    return load


def _rail_factor(group: Group, at: int, link: Link) -> Real | None:
    """Return the contention factor of rails for direct traffic to all ranks of other units."""
    level: Any = link.level
    if at == 0 or _kind(level) != "rail" or level.pxn or all_of(level.oversubscription == 1):
        return None
    u, P = _members_inside(group, at), group.ranks
    within = (group.shape[at] - 1) * u  # ranks of other units that share the level
    beyond = maximum(P - u - within, 0.0)
    leaving = (within * (1 - rail_share(group, at)) + beyond) / maximum(P - u, 1.0)
    return oversubscription_factor(leaving, level.oversubscription)


def _have_same_places(group: Group, at: int) -> Mask:
    """Return whether all units below level *at* have members at the same positions."""
    stride = group.strides[at]
    near, far = maximum(stride, 1.0), maximum(1 / maximum(stride, 1e-9), 1.0)
    return divides(1.0, near) & divides(1.0, far)
