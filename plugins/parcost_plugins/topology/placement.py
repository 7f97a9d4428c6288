"""Placement of a group of ranks on the fabric: its shape, and its share of the links.

Bandwidths assume that all ranks communicate at the same time, each in its own group of the same
kind. Then

- a rank has ``ports / devices`` ports: half a port if two devices share a NIC, four ports if each
  device has four;
- a group with u members in the unit has u times as many ports. A ring over all its ranks crosses
  the boundary once, and uses all of these ports;
- if one rank of the group crosses the boundary, it may use idle ports of the other ``u - 1``. It
  uses at most one port, or its own ports if it has several.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from attrs import field

from parcost import Curve, Formula, Group, Link, Mask, Names, Real, formula, record
from parcost.numeric import INFINITY, all_of, any_of, maximum, minimum, where
from parcost_plugins.physics.exchange import AlphaBeta
from parcost_plugins.topology.links import LinkSet
from parcost_plugins.topology.occupancy import Axes, is_aligned, is_crossed, occupancy
from parcost_plugins.topology.tiers import Tier


def place(
    name: str, axes: Axes, levels: Sequence[Tier], devices: Real, *, reduction: Real = 0.0
) -> Group:
    """Return the group of the ranks on *axes*, on the *levels* of a fabric.

    *reduction* is the time of a rank to add one byte, in seconds.
    """
    ranks: Real = 1.0
    reach: Real = 1.0
    for stride, size in axes:
        ranks = ranks * size
        reach = stride * size
    levels = [tier.over(reach) if tier.level.radix else tier for tier in levels]
    shape, fewest = occupancy([tier.capacity for tier in levels[:-1]], axes, devices)
    members: Real = 1.0  # of the group, in the unit below
    links, pairs, rings, single, hops = [], [], [], [], []
    for tier, most, least in zip(levels, shape, fewest, strict=True):
        share, to_one = tier.share, tier.share * tier.to_one
        mesh = tier.level.kind == "mesh"
        link = tier.link(share * tier.to_all)
        pairs.append(link if tier.to_all is tier.to_one else tier.link(to_one))
        links.append(tier.link(share * maximum(most - 1, 1.0)) if mesh else link)
        rings.append(to_one * members * (maximum(most - 1, 1.0) if mesh else 1.0))
        single.append(to_one)
        hops.append(minimum(maximum(tier.ports * tier.to_one, 1.0), to_one * members))
        members = members * least
    crossing = _Crossing.from_shape(levels, shape)
    flat = crossing.slowest_link(rings)
    if any(tier.leaves_leaf for tier in levels):
        crossing = _Crossing.where([tier.off_rail(axes) for tier in levels], crossing.crossed)
    hop = crossing.slowest_link(hops)
    boundaries = _Boundaries(crossing=crossing, hop=hop, ports=hops, axes=axes, devices=devices)
    return Group(
        name=name,
        ranks=ranks,
        shape=shape,
        links=tuple(links),
        pairs=tuple(pairs),
        flat=flat,
        pair=crossing.slowest_link(single),
        hop=hop,
        hop_after=boundaries.after,
        fewest=fewest,
        strides=tuple((axes[0][0] if axes else 1.0) / tier.below for tier in levels),
        reduction=reduction,
    )


@record(kw_only=True, eq=False)
class _Crossing:
    """The *levels* that a group crosses, and their largest latency.

    *unhindered* is a factor on bandwidths. It is infinite for levels that are not crossed, so that
    they are not limits. A group of one rank is assumed to cross the first level.
    """

    levels: Sequence[Tier]
    crossed: tuple[Mask, ...]
    unhindered: tuple[Real, ...]
    latency: Real
    outermost: Tier
    curved: bool

    @classmethod
    def from_shape(cls, levels: Sequence[Tier], shape: Sequence[Real]) -> _Crossing:
        """Return the levels that a group of this *shape* crosses."""
        further: Mask = False
        for most in shape[1:]:
            further = further | (most > 1)
        first = (shape[0] > 1) | (further ^ True)
        return cls.where(levels, (first, *(most > 1 for most in shape[1:])))

    @classmethod
    def where(cls, levels: Sequence[Tier], crossed: tuple[Mask, ...]) -> _Crossing:
        """Return the crossing of the *levels* for which *crossed* is true."""
        latency: Real = 0.0
        outermost = levels[0]
        for tier, crosses in zip(levels, crossed, strict=True):
            latency = maximum(latency, where(crosses, tier.latency, 0.0))
            outermost = tier if any_of(crosses) else outermost
        return cls(
            levels=levels,
            crossed=crossed,
            unhindered=tuple(where(crosses, 0.0, INFINITY) for crosses in crossed),
            latency=latency,
            outermost=outermost,
            curved=any(isinstance(tier.level.bandwidth, Curve) for tier in levels),
        )

    def slowest_link(self, ports: Sequence[Real]) -> Link:
        """Return the crossed levels as one link, for a rank with *ports* ports on each.

        Its name is the level with the lowest bandwidth; of equal ones, the outermost. Messages
        always queue on the outermost crossed level. The other levels are busy for a share of the
        time.
        """
        bandwidth: Real = INFINITY
        at: Real = 0.0
        outermost: Real = 0.0
        rates: list[Real] = []
        for i, (tier, own) in enumerate(zip(self.levels, ports, strict=True)):
            here = tier.rate * own + self.unhindered[i]
            at = where(here <= bandwidth, float(i), at)
            outermost = where(self.crossed[i], float(i), outermost)
            bandwidth = minimum(bandwidth, here)
            rates.append(here)
        name, level = _level_name(self.levels, at), self.outermost.level
        spans = _level_name(self.levels, outermost)
        busy = {
            tier.name: _share(bandwidth, rate)
            for tier, rate in zip(self.levels, rates, strict=True)
            if tier.name != spans
        }
        busy = {other: share for other, share in busy.items() if any_of(share > 0)}
        also, also_busy = tuple(busy), tuple(busy.values())
        if not self.curved:
            return AlphaBeta(
                name=name,
                latency=self.latency,
                bandwidth=bandwidth,
                level=level,
                spans=spans,
                also=also,
                also_busy=also_busy,
                explain=partial(self.explain, ports, bandwidth),
            )
        return LinkSet(
            name=name,
            latency=self.latency,
            bandwidth=bandwidth,
            links=tuple(tier.link(own) for tier, own in zip(self.levels, ports, strict=True)),
            crossed=self.crossed,
            level=level,
            spans=spans,
            also=also,
            also_busy=also_busy,
        )

    def explain(
        self, ports: Sequence[Real], bandwidth: Real
    ) -> tuple[Real | Formula, Real | Formula]:
        """Return the latency and the bandwidth of the slowest crossed level, with formulas.

        They have no formula if points of a sweep cross different levels.
        """
        if any(any_of(crosses) and not all_of(crosses) for crosses in self.crossed):
            return self.latency, bandwidth
        parts = {
            tier.name: tier.explain(own)
            for tier, own, crosses in zip(self.levels, ports, self.crossed, strict=True)
            if any_of(crosses)
        }
        if len(parts) == 1:
            return next(iter(parts.values()))
        latencies = {name: latency for name, (latency, _) in parts.items()}
        rates = {name: rate for name, (_, rate) in parts.items()}
        return formula("max(alpha)", alpha=(latencies, "s")), formula("min(B)", B=(rates, "B/s"))


def _share(bandwidth: Real, rate: Real) -> Real:
    """Return the busy share of a level with *rate*, on which a message runs at *bandwidth*.

    The rate is infinite for a level that is not crossed, so its share is 0.
    """
    if isinstance(bandwidth, float) and isinstance(rate, float):
        return bandwidth / rate if rate > 0 else 0.0
    return where(rate > 0, bandwidth / maximum(rate, 1e-300), 0.0)


def _level_name(levels: Sequence[Tier], at: Real) -> Any:
    """Return the name of the level at index *at*; an array of names if points differ."""
    if isinstance(at, (float, int)):
        return levels[int(at)].name
    first = float(at.reshape(-1)[0])
    if all_of(at == first):
        return levels[int(first)].name
    return Names(tuple(tier.name for tier in levels), at)


@record(kw_only=True, eq=False)
class _Boundaries:
    """The boundaries between neighbours in a group, some of which are unit boundaries.

    A message uses the outermost level that separates the two neighbours. If groups are not aligned
    with units, these boundaries differ between groups. Groups with several axes are not chains. In
    both cases *hop* is the link of every boundary.
    """

    crossing: _Crossing
    hop: Link
    ports: Sequence[Real]
    axes: Axes
    devices: Real
    _links: dict[tuple[bool | bytes, ...], Link] = field(factory=dict, repr=False)

    def after(self, rank: int) -> Link:
        """Return the link between *rank* and the next rank."""
        if len(self.axes) > 1 or sum(any_of(m) for m in self.crossing.crossed) == 1:
            return self.hop
        [(stride, size)] = self.axes
        levels = self.crossing.levels
        outermost: list[Mask] = []
        even: Mask = True
        further: Mask = False
        for tier in reversed(levels[:-1]):
            even = even & is_aligned(tier.capacity, stride, size, self.devices)
            parts = is_crossed(tier.capacity, stride, rank + 1)
            outermost.insert(0, parts & (further ^ True))
            further = further | parts
        outermost.insert(0, further ^ True)
        masks = tuple(
            (even & own) | ((even ^ True) & any_)
            for own, any_ in zip(outermost, self.crossing.crossed, strict=True)
        )
        key = tuple(mask if isinstance(mask, bool) else mask.tobytes() for mask in masks)
        if key not in self._links:
            self._links[key] = _Crossing.where(levels, masks).slowest_link(self.ports)
        return self._links[key]
