"""Links that a transfer describes itself: alpha-beta, measured points, or both together.

A plugin imports no other, so this says again what the topology says of a study's fabric.
"""

from __future__ import annotations

from typing import Any

from attrs import frozen

from parcost import Curve, Link, Rate, Real, record
from parcost.numeric import maximum, where
from parcost_plugins.vocabulary.exchange import AlphaBeta, SlowestLink


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


@record(kw_only=True, eq=False)
class TransferLinks(SlowestLink):
    """Links that a round waits for together: without points, by the worst of their numbers."""

    level: Any = None

    def seconds(self, rounds: Real, bytes_: Real) -> Real:
        """Return the time of *rounds* equal messages, *bytes_* in all."""
        if self.measured:
            return super().seconds(rounds, bytes_)
        return rounds * self.latency + bytes_ / self.bandwidth


def link(name: str, *, latency: Real, rate: Rate, share: Real, level: Any) -> Link:
    """Return what a rank has of a port of so much *rate*: the part *share* of it."""
    if isinstance(rate, Curve):
        return CurveLink(name=name, latency=latency, curve=rate, ports=share, level=level)
    return AlphaBeta(name=name, latency=latency, bandwidth=rate * share, level=level)
