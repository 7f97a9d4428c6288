"""Queues of layouts to replay, and the results of replays."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from math import inf
from typing import TYPE_CHECKING, Any

import numpy as np
from attrs import define, evolve, field

from parcost.search.replays import replay_layouts
from parcost.search.result import ALIKE, SearchedLayout
from parcost.search.scored_layouts import ScoredLayouts, report_wrong_bound, values_at

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from parcost.contract.searches import Limit, Objective


@define(eq=False)
class ReplayResult:
    """The result of replaying layouts: valid layouts with their degrees, and counts of others.

    *cheaper*: a layout costs less than its score, which should be a lower bound.
    """

    layouts: list[tuple[Any, SearchedLayout]] = field(factory=list)
    cheaper: bool = False
    unfit: int = 0
    broken: Counter[str] = field(factory=Counter)


class ReplayQueue:
    """The layouts of one structure and schedule that are not replayed yet, cheapest first."""

    def __init__(
        self,
        scored: ScoredLayouts,
        objective: Objective,
        limits: Sequence[Limit],
        cost: NDArray[np.float64],
    ) -> None:
        # What a replay needs, and not the numbers of all layouts.
        self.scored = evolve(scored, seconds=None, exact=None, bytes_=None, least=None)
        self.objective, self.limits = objective, limits
        self.shape = cost.shape
        self.last = 0  # that were replayed together
        flat = cost.reshape(-1)
        self._points = np.flatnonzero(np.isfinite(flat))
        self._costs = flat[self._points]
        self._next = 0
        self._sorted = False
        self._lowest = float(self._costs.min()) if len(self._costs) else inf

    @property
    def lowest(self) -> float:
        """The lowest cost of a layout in the queue."""
        if not self._sorted:
            return self._lowest
        return float(self._costs[self._next]) if self.left else inf

    @property
    def left(self) -> int:
        """The number of layouts in the queue."""
        return len(self._costs) - self._next

    def drop(self, above: float) -> None:
        """Drop all layouts that cost more than *above*."""
        kept = np.flatnonzero(self._costs[self._next :] <= above) + self._next
        self._points, self._costs, self._next = self._points[kept], self._costs[kept], 0
        if not self._sorted:
            self._lowest = float(self._costs.min()) if len(self._costs) else inf

    def replay(self, worst: float, most: int) -> ReplayResult:
        """Replay the next layouts that cost at most *worst*, at most *most* of them."""
        if not self._sorted:
            self.drop(worst)
            order = np.argsort(self._costs, kind="stable")
            self._points, self._costs = self._points[order], self._costs[order]
            self._sorted = True
        if worst == inf and self.left:
            most = self._lead_with_points(most)
        last = min(self._next + most, len(self._costs))
        last = self._next + int(
            np.searchsorted(self._costs[self._next : last], worst, side="right")
        )
        points = self._points[self._next : last]
        where = np.unravel_index(points, self.shape)
        costs = self._costs[self._next : last]
        found = _replay_result(self.scored, where, costs, self.objective, self.limits)
        if found.cheaper:
            report_wrong_bound(self.scored)
        self._next, self.last = (last if last > self._next else len(self._costs)), len(points)
        return found

    def _lead_with_points(self, most: int) -> int:
        """Move the cheapest layouts of up to *most* combinations of degrees to the front; return
        their number.

        The ranking keeps one layout per combination, so *most* combinations are enough.
        """
        degrees = (self._points[self._next :] % self.shape[-1]).tolist()
        first = {point: i for i, point in reversed([*enumerate(degrees)])}
        leading = np.sort([*first.values()])[:most] + self._next
        for values in (self._points, self._costs):
            values[self._next :] = np.concatenate(
                [values[leading], np.delete(values, leading)[self._next :]]
            )
        return len(leading)


def _replay_result(
    scored: ScoredLayouts,
    where: Sequence[NDArray[np.intp]],
    costs: NDArray[np.float64],
    objective: Objective,
    limits: Sequence[Limit],
) -> ReplayResult:
    found = ReplayResult()
    if not len(where[0]):
        return found
    structure = scored.structure
    seconds, bytes_, fits = replay_layouts(scored, where)
    for i, (step, held, runs) in enumerate(zip(seconds, bytes_, fits, strict=True)):
        index = tuple(int(axis[i]) for axis in where)
        broken = [limit.says for limit in limits if not _element(limit.holds(step, held), index)]
        if not runs:
            found.unfit += 1
            continue
        if broken:
            found.broken[broken[0]] += 1
            continue
        values = values_at(scored, index)
        degrees = tuple(
            float(v)
            for k, v in values.items()
            if k in structure.degrees or (k in structure.values and isinstance(v, (int, float)))
        )
        cost = float(_element(objective.cost(step), index))
        found.cheaper = found.cheaper or cost < costs[i] - ALIKE * abs(costs[i])
        layout = SearchedLayout(
            values=values,
            cost=cost,
            value=float(_element(objective.value(cost), index)),
            seconds=float(step),
            bytes_=float(held),
        )
        found.layouts.append((degrees, layout))
    return found


def _element(value: Any, index: Sequence[int]) -> Any:
    """Return the element at one layout of an array over combinations of degrees."""
    found = np.atleast_1d(value)
    return found[index[-1] if found.shape[-1] > 1 else 0]
