"""Layouts that wait to be replayed, and the ones that were."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from math import inf
from typing import TYPE_CHECKING, Any

import numpy as np

from parcost.search.exact import replayed
from parcost.search.found import Layout, Place
from parcost.search.front import slim
from parcost.search.score import Scored, values_at

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from parcost.terms import Limit, Objective

_BATCH = 128  # layouts that are replayed together
_MOST_OPS = 4096  # of a schedule, forward passes alone, that are replayed for the front


class Waiting:
    """The layouts of one structure and schedule that nobody has replayed, cheapest first."""

    def __init__(
        self,
        scored: Scored,
        objective: Objective,
        limits: Sequence[Limit],
        cost: NDArray[np.float64],
    ) -> None:
        self.scored, self.objective, self.limits = slim(scored), objective, limits
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
        """The lowest cost that is left."""
        if not self._sorted:
            return self._lowest
        return float(self._costs[self._next]) if self.left else inf

    @property
    def left(self) -> int:
        """How many layouts wait."""
        return len(self._costs) - self._next

    def drop(self, above: float) -> None:
        """Forget all layouts that cost more than *above*."""
        kept = np.flatnonzero(self._costs[self._next :] <= above) + self._next
        self._points, self._costs, self._next = self._points[kept], self._costs[kept], 0
        if not self._sorted:
            self._lowest = float(self._costs.min()) if len(self._costs) else inf

    def replay(self, worst: float) -> Iterator[tuple[Any, Layout]]:
        """Replay the next layouts that cost no more than *worst*; yield degrees and layouts."""
        if not self._sorted:
            self.drop(worst)
            order = np.argsort(self._costs, kind="stable")
            self._points, self._costs = self._points[order], self._costs[order]
            self._sorted = True
        last = min(self._next + _BATCH, len(self._costs))
        last = self._next + int(
            np.searchsorted(self._costs[self._next : last], worst, side="right")
        )
        points = self._points[self._next : last]
        self._next, self.last = (last if last > self._next else len(self._costs)), len(points)
        where = np.unravel_index(points, self.shape)
        for _, degrees, layout in _replayed(self.scored, where, self.objective, self.limits):
            yield degrees, layout


def layouts_at(
    places: Sequence[Place],
    judge: Callable[[Scored], tuple[Objective, Sequence[Limit]]],
) -> list[Layout | None]:
    """Return the layouts at some places, replayed, or None where they do not run after all.

    Those whose replay would take long, and whose step is known exactly, are taken as scored.
    """
    found: list[Layout | None] = [None] * len(places)
    together: dict[int, list[int]] = {}
    for i, place in enumerate(places):
        if place.exact and _long(place):
            found[i] = _as_scored(place, judge(place.scored)[0])
        else:
            together.setdefault(id(place.scored), []).append(i)
    for group in together.values():
        scored = places[group[0]].scored
        where = _where([places[i].index for i in group])
        at = {places[i].index: i for i in group}
        for index, _, layout in _replayed(scored, where, *judge(scored)):
            found[at[index]] = layout
    return found


def _long(place: Place) -> bool:
    pipeline = place.scored.pipeline
    batches = _at(pipeline.micro_batches, place.index)
    return bool(pipeline.stages * pipeline.chunks * batches > _MOST_OPS)


def _as_scored(place: Place, objective: Objective) -> Layout:
    cost = float(_at(objective.cost(place.seconds), place.index))
    return Layout(
        values=values_at(place.scored, place.index),
        cost=cost,
        value=float(_at(objective.value(cost), place.index)),
        seconds=place.seconds,
        bytes_=place.bytes_,
        bounded=True,
    )


def _where(indices: Sequence[tuple[int, ...]]) -> tuple[NDArray[np.intp], ...]:
    return tuple(np.array(axis, dtype=np.intp) for axis in zip(*indices, strict=True))


def _replayed(
    scored: Scored,
    where: Sequence[NDArray[np.intp]],
    objective: Objective,
    limits: Sequence[Limit],
) -> Iterator[tuple[tuple[int, ...], Any, Layout]]:
    if not len(where[0]):
        return
    structure = scored.structure
    seconds, bytes_, fits = replayed(scored, where)
    for i, (step, held, runs) in enumerate(zip(seconds, bytes_, fits, strict=True)):
        index = tuple(int(axis[i]) for axis in where)
        holds = all(_at(limit.holds(step, held), index) for limit in limits)
        if not (runs and holds):
            continue
        values = values_at(scored, index)
        degrees = tuple(
            float(v)
            for k, v in values.items()
            if k in structure.degrees or (k in structure.values and isinstance(v, (int, float)))
        )
        cost = float(_at(objective.cost(step), index))
        yield (
            index,
            degrees,
            Layout(
                values=values,
                cost=cost,
                value=float(_at(objective.value(cost), index)),
                seconds=float(step),
                bytes_=float(held),
            ),
        )


def _at(value: Any, index: Sequence[int]) -> Any:
    """Return a number of the flat axis at one point."""
    found = np.atleast_1d(value)
    return found[index[-1] if found.shape[-1] > 1 else 0]
