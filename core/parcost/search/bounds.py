"""First lower bounds of layouts, and the selection of layouts to score."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Any

import numpy as np

from parcost.numeric import ratio
from parcost.search.front import band_of, least_by_band

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from parcost.search.front import Front
    from parcost.search.scored_layouts import ScoredLayouts


def any_alike(left: NDArray[np.bool_], *values: Any) -> NDArray[np.bool_]:
    """Reduce the mask *left* to size 1 along the choices on which *values* do not depend; combine
    it with "or".
    """
    apart = np.broadcast_shapes(*map(np.shape, values))
    apart = (1,) * (left.ndim - len(apart)) + apart
    alike = tuple(k for k in range(left.ndim - 1) if apart[k] == 1)
    found: NDArray[np.bool_] = np.any(left, axis=alike, keepdims=True)
    return found


class LayoutBounds:
    """The layouts of one structure and schedule that are *left*, with lower bounds of their *cost*.

    Layouts with the same bound share one element of the arrays. They are scored in ascending order
    of cost, or by band of memory.
    """

    def __init__(self, bound: ScoredLayouts, cost: Any, left: NDArray[np.bool_]) -> None:
        self.place, self.index, self.bound = bound.place, bound.index, bound
        known = (cost, bound.seconds, bound.bytes_)
        self._left = any_alike(left, *known)
        self._alike = left.size // self._left.size  # layouts with one bound
        self._cost, self._seconds, self._bytes = (
            np.broadcast_to(value, self._left.shape) for value in known
        )
        self._order = self._cost

    def least_by_band(self) -> NDArray[np.float64]:
        """Return the lowest seconds in each band of memory."""
        return least_by_band(self._seconds[self._left], self._bytes[self._left])

    def order_by_band(self, least: NDArray[np.float64]) -> None:
        """Order layouts by their seconds / the *least* seconds of their band, or of bands with less
        memory.
        """
        below = np.minimum.accumulate(least)[band_of(self._bytes)]
        order: Any = ratio(self._seconds, below)  # 0 where both are 0, never NaN
        self._order = order

    def matters(self, worst: float, front: Front | None) -> NDArray[np.bool_]:
        """Return the mask of layouts that may cost at most *worst*, or may be on the *front* (if
        given).

        If *worst* is NaN, the mask has all remaining layouts with a finite cost.
        """
        gains = ~(self._cost > worst)
        if front is not None:
            gains = gains | front.may_gain(self._seconds, self._bytes)
        found: NDArray[np.bool_] = self._left & gains & (self._cost < inf)
        return found

    def lowest_cost(self, matters: NDArray[np.bool_]) -> float:
        """Return the lowest cost of a layout that *matters*, infinity if none does."""
        return float(np.min(self._cost, where=matters, initial=inf))

    def order(self, matters: NDArray[np.bool_]) -> NDArray[np.float64]:
        """Return a sort key for each layout that *matters*; layouts with the lowest keys are scored
        first.
        """
        found: NDArray[np.float64] = np.repeat(self._order[matters], self._alike)
        return found

    def take(self, matters: NDArray[np.bool_], most: float) -> NDArray[np.bool_]:
        """Remove layouts that matter and whose number is at most *most*; return their mask."""
        which = matters & (self._order <= most)
        self._left &= ~which
        found: NDArray[np.bool_] = self.bound.legal & which
        return found
