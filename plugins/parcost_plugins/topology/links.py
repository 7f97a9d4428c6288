"""Links: the time of a message, by the alpha-beta model or from measured points."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from attrs import field

from parcost import Curve, Link, Mask, Real, record
from parcost.numeric import maximum, minimum, where
from parcost_plugins.physics.exchange import AlphaBeta
from parcost_plugins.vocabulary import Level

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["AlphaBeta", "LinkSet", "MeasuredLink", "longest_message_bandwidth"]

_FAR = 100.0  # in natural logarithms: beyond any message size that there is


@record(kw_only=True, eq=False)
class MeasuredLink(Link):
    """Measured times of one port by message size; a rank has *ports* ports.

    Between points the time is interpolated in log-log. Outside, the nearest segment is continued,
    but a longer message is never faster, nor slower per byte. If a rank has a share of a port, a
    message takes the time of a proportionally larger one. No message takes less than the latency,
    which is part of the measured times.
    """

    name: str
    latency: Real
    curve: Curve
    ports: Real
    level: Level | None = None
    _sizes: NDArray[np.float64] = field(init=False, repr=False)
    _seconds: NDArray[np.float64] = field(init=False, repr=False)

    def __attrs_post_init__(self) -> None:
        sizes, seconds = _extend_points(self.curve)
        object.__setattr__(self, "_sizes", sizes)
        object.__setattr__(self, "_seconds", seconds)

    @property
    def measured(self) -> bool:
        """True: times come from measured points."""
        return True

    @property
    def bandwidth(self) -> Real:
        """The bandwidth at the largest measured message size, in B/s."""
        return longest_message_bandwidth(self.curve) * self.ports

    def seconds(self, rounds: Real, bytes_: Real) -> Real:
        """Return the time of *rounds* messages of equal size."""
        import numpy as np

        size = bytes_ / maximum(rounds, 1.0) / self.ports
        measured = np.exp(np.interp(np.log(maximum(size, 1e-9)), self._sizes, self._seconds))
        least = minimum(self.latency, float(self.curve.seconds[0]))
        seconds: Real = rounds * maximum(measured, least)
        return seconds


@record(kw_only=True, eq=False)
class LinkSet(Link):
    """Several links used in the same round; *crossed* says which of them are."""

    name: str
    latency: Real
    bandwidth: Real
    links: tuple[Link, ...]
    crossed: tuple[Mask, ...]
    level: Level | None = None
    spans: Any = None
    also: Sequence[str] = ()
    also_busy: Sequence[Real] = ()

    @property
    def resource(self) -> Any:
        """The outermost crossed level."""
        return self.name if self.spans is None else self.spans

    @property
    def measured(self) -> bool:
        """Whether any of the links has measured times."""
        return any(isinstance(link, MeasuredLink) for link in self.links)

    def seconds(self, rounds: Real, bytes_: Real) -> Real:
        """Return the time of the slowest crossed link, in seconds."""
        slowest: Real = 0.0
        for link, crossed in zip(self.links, self.crossed, strict=True):
            slowest = maximum(slowest, where(crossed, link.seconds(rounds, bytes_), 0.0))
        return slowest


def longest_message_bandwidth(curve: Curve) -> float:
    """Return the bandwidth at the largest measured message size of *curve*, in B/s."""
    bandwidth: float = curve.sizes[-1] / curve.seconds[-1]
    return bandwidth


def _extend_points(curve: Curve) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the points of *curve* as logarithms, extended by a distant point at each end."""
    import numpy as np

    x, y = np.log(curve.sizes), np.log(curve.seconds)
    if len(x) == 1:  # one point says a bandwidth and no more
        below = above = 1.0
    else:
        rises, apart = np.diff(y), np.diff(x)
        steep = np.sign(rises)  # of sizes that are one in logarithms
        slopes = np.clip(np.divide(rises, apart, out=steep, where=apart > 0), 0.0, 1.0)
        below, above = slopes[0], slopes[-1]
    sizes = np.concatenate([[x[0] - _FAR], x, [x[-1] + _FAR]])
    seconds = np.concatenate([[y[0] - _FAR * below], y, [y[-1] + _FAR * above]])
    return sizes, seconds
