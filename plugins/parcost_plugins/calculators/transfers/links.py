"""Links described by a transfer: alpha-beta, measured points, or both.

Plugins do not import each other, so this repeats code of the topology plugin.
"""

from __future__ import annotations

from typing import Any

from parcost import Curve, Link, Rate, Real, record
from parcost.numeric import maximum, where
from parcost_plugins.physics.exchange import AlphaBeta, SlowestLink


@record(kw_only=True, eq=False)
class CurveLink(Link):
    """A link with measured points of message size and time; *ports* is the number of ports of a
    rank.

    Between points the time is interpolated on logarithmic axes, and beyond them the nearest
    bandwidth is used. The latency is in the points.
    """

    name: str
    latency: Real
    curve: Curve
    ports: Real
    level: Any = None
    measured: bool = True

    @property
    def bandwidth(self) -> Real:
        """The bandwidth at the largest measured message size, in B/s."""
        longest: Real = self.curve.sizes[-1] / self.curve.seconds[-1] * self.ports
        return longest

    def seconds(self, rounds: Real, bytes_: Real) -> Real:
        """Return the seconds of *rounds* messages of equal size, *bytes_* in all."""
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
    """Several links used in the same round; without measured points, the worst latency and
    bandwidth apply.
    """

    level: Any = None

    def seconds(self, rounds: Real, bytes_: Real) -> Real:
        """Return the seconds of *rounds* equal messages, *bytes_* in all."""
        if self.measured:
            return super().seconds(rounds, bytes_)
        return rounds * self.latency + bytes_ / self.bandwidth


def link(name: str, *, latency: Real, rate: Rate, share: Real, level: Any) -> Link:
    """Return the part *share* of a port with this *rate* as a link."""
    if isinstance(rate, Curve):
        return CurveLink(name=name, latency=latency, curve=rate, ports=share, level=level)
    return AlphaBeta(name=name, latency=latency, bandwidth=rate * share, level=level)
