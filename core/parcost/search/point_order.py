"""The order in which a search bounds the points (combinations of degrees) of structures."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import inf
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray


class PointOrder:
    """Points by structure in ascending order of cost: first structures, then the points of each.

    >>> order = PointOrder({0: np.array([3.0, 2.0]), 1: np.array([4.0, 1.0])})
    >>> order.take(3, 3.5), order.take(3, 3.5), order.lowest
    ({1: array([1]), 0: array([0, 1])}, {}, 4.0)
    >>> list(order.rest(8))
    [{1: array([0])}]
    """

    def __init__(self, costs: Mapping[int, NDArray[np.float64]]) -> None:
        first = sorted(costs, key=lambda place: float(costs[place].min()))
        self._order = {place: np.argsort(costs[place], kind="stable") for place in first}
        self._costs = {place: costs[place][order] for place, order in self._order.items()}
        self._taken = dict.fromkeys(first, 0)

    def take(self, most: int, worst: float) -> Mapping[int, NDArray[np.intp]]:
        """Return up to *most* of the next points that cost at most *worst*, by structure."""
        found: dict[int, NDArray[np.intp]] = {}
        for place, start in self._taken.items():
            costs = self._costs[place]
            known = len(costs) if worst == inf else int(np.searchsorted(costs, worst, side="right"))
            count = min(known - start, most)
            if count > 0:
                found[place] = np.sort(self._order[place][start : start + count])
                self._taken[place] += count
                most -= count
        return found

    @property
    def lowest(self) -> float:
        """The lowest cost of the points not taken yet, infinity if there are none."""
        left = (float(self._costs[p][n]) for p, n in self._taken.items() if n < len(self._costs[p]))
        return min(left, default=inf)

    def rest(self, most: int) -> Iterator[Mapping[int, NDArray[np.intp]]]:
        """Yield all points not taken yet, at most *most* at a time."""
        while block := self.take(most, inf):
            yield block
