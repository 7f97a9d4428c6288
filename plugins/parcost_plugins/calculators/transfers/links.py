"""Links that a transfer describes itself: alpha-beta, measured points, or both together.

A plugin imports no other, so this says again what the topology says of a study's fabric.
"""

from __future__ import annotations

from typing import Any

from attrs import frozen

from parcost import Curve, Link, Mask, Rate, Real
from parcost.numeric import INFINITY, maximum, minimum, where
from parcost_plugins.vocabulary.exchange import AlphaBeta


@frozen(kw_only=True, eq=False)
class CurveLink(Link):
    """Points of message size and time, of which a rank has the share *ports*.

    Between points the time is interpolated on logarithmic axes, and beyond them the
    nearest bandwidth goes on. The latency is in the points.
    """

    name: str
    latency: Real
    curve: Curve
    ports: Real
    level: Any = None
    measured: bool = True

    @property
    def bandwidth(self) -> Real:
        """The bandwidth of the longest message that was measured."""
        longest: Real = self.curve.sizes[-1] / self.curve.seconds[-1] * self.ports
        return longest

    def seconds(self, rounds: Real, bytes_: Real) -> Real:
        """Return the time of *rounds* messages of equal size."""
        import numpy as np

        sizes, seconds = self.curve.sizes, self.curve.seconds
        size = maximum(bytes_ / maximum(rounds, 1.0) / self.ports, 1e-9)
        inside = np.exp(np.interp(np.log(size), np.log(sizes), np.log(seconds)))
        beyond = seconds[-1] * size / sizes[-1]
        each = where(size > sizes[-1], beyond, inside)
        total: Real = rounds * each
        return float(total) if np.ndim(total) == 0 else total


@frozen(kw_only=True, eq=False)
class TransferLinks(Link):
    """Links that a round waits for together, where each of them is *crossed*."""

    name: str
    links: tuple[Link, ...]
    crossed: tuple[Mask, ...]
    level: Any = None

    @property
    def measured(self) -> bool:
        """Whether times are read off points."""
        return any(link.measured for link in self.links)

    @property
    def latency(self) -> Real:
        """The largest latency of those that are crossed."""
        worst: Real = 0.0
        for link, crossed in zip(self.links, self.crossed, strict=True):
            worst = maximum(worst, where(crossed, link.latency, 0.0))
        return worst

    @property
    def bandwidth(self) -> Real:
        """The smallest bandwidth of those that are crossed."""
        worst: Real = INFINITY
        for link, crossed in zip(self.links, self.crossed, strict=True):
            worst = minimum(worst, where(crossed, link.bandwidth, INFINITY))
        return worst

    def seconds(self, rounds: Real, bytes_: Real) -> Real:
        """Return the time of *rounds* equal messages, *bytes_* in all."""
        if not self.measured:
            return rounds * self.latency + bytes_ / self.bandwidth
        slowest: Real = 0.0
        for link, crossed in zip(self.links, self.crossed, strict=True):
            slowest = maximum(slowest, where(crossed, link.seconds(rounds, bytes_), 0.0))
        return slowest


def link(name: str, *, latency: Real, rate: Rate, share: Real, level: Any) -> Link:
    """Return what a rank has of a port of so much *rate*: the part *share* of it."""
    if isinstance(rate, Curve):
        return CurveLink(name=name, latency=latency, curve=rate, ports=share, level=level)
    return AlphaBeta(name=name, latency=latency, bandwidth=rate * share, level=level)
