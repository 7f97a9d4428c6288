"""Links: what a message costs, by the alpha-beta model or by measured points."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from attrs import field, frozen

from parcost import Curve, Link, Mask, Real
from parcost.numeric import maximum, minimum, where

if TYPE_CHECKING:
    from numpy.typing import NDArray

_FAR = 100.0  # in natural logarithms: beyond any message size that there is


@frozen(kw_only=True, eq=False)
class AlphaBeta:
    """A start-up time per message and a bandwidth."""

    name: str
    latency: Real
    bandwidth: Real

    def seconds(self, rounds: Real, bytes_: Real) -> Real:
        """Return ``rounds * latency + bytes_ / bandwidth``."""
        return rounds * self.latency + bytes_ / self.bandwidth


@frozen(kw_only=True, eq=False)
class Measured:
    """Measured times of one port by message size, *ports* of it to each rank.

    Between points the time is interpolated in log-log; outside, the nearest segment is
    continued, though never as if longer messages were faster or longer ones slowed down
    without end. A rank with a share of a port sees the time of a message that is larger
    by as much. What is measured contains the latency, so no message takes less than it.
    """

    name: str
    latency: Real
    curve: Curve
    ports: Real
    _sizes: NDArray[np.float64] = field(init=False, repr=False)
    _seconds: NDArray[np.float64] = field(init=False, repr=False)

    def __attrs_post_init__(self) -> None:
        sizes, seconds = _continued(self.curve)
        object.__setattr__(self, "_sizes", sizes)
        object.__setattr__(self, "_seconds", seconds)

    @property
    def bandwidth(self) -> Real:
        """The bandwidth at the largest message measured."""
        bandwidth: Real = self.curve.sizes[-1] / self.curve.seconds[-1] * self.ports
        return bandwidth

    def seconds(self, rounds: Real, bytes_: Real) -> Real:
        """Return the time of *rounds* messages of equal size."""
        size = bytes_ / maximum(rounds, 1.0) / self.ports
        measured = np.exp(np.interp(np.log(maximum(size, 1e-9)), self._sizes, self._seconds))
        least = minimum(self.latency, float(self.curve.seconds[0]))
        seconds: Real = rounds * maximum(measured, least)
        return seconds


@frozen(kw_only=True, eq=False)
class Slowest:
    """Several links that a round waits for together, where each of them is *crossed*."""

    name: str
    latency: Real
    bandwidth: Real
    links: tuple[Link, ...]
    crossed: tuple[Mask, ...]

    def seconds(self, rounds: Real, bytes_: Real) -> Real:
        """Return the time by the slowest link that is crossed."""
        slowest: Real = 0.0
        for link, crossed in zip(self.links, self.crossed, strict=True):
            slowest = maximum(slowest, where(crossed, link.seconds(rounds, bytes_), 0.0))
        return slowest


def _continued(curve: Curve) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the points of *curve* in logarithms, with one more far out at each end."""
    x, y = np.log(curve.sizes), np.log(curve.seconds)
    if len(x) == 1:  # one point says a bandwidth and no more
        below = above = 1.0
    else:
        slopes = np.clip(np.diff(y) / np.diff(x), 0.0, 1.0)
        below, above = slopes[0], slopes[-1]
    sizes = np.concatenate([[x[0] - _FAR], x, [x[-1] + _FAR]])
    seconds = np.concatenate([[y[0] - _FAR * below], y, [y[-1] + _FAR * above]])
    return sizes, seconds
