"""Layouts that wait to be replayed, and the ones that were."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from math import inf
from typing import TYPE_CHECKING, Any

import numpy as np

from parcost.search.exact import replayed
from parcost.search.found import Layout, Place
from parcost.search.front import slim
from parcost.search.score import Scored

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
        """Forget all layouts whose cost is not below *above*."""
        kept = np.flatnonzero(self._costs[self._next :] < above) + self._next
        self._points, self._costs, self._next = self._points[kept], self._costs[kept], 0
        if not self._sorted:
            self._lowest = float(self._costs.min()) if len(self._costs) else inf

    def replay(self, below: float) -> Iterator[tuple[Any, Layout]]:
        """Replay the next layouts that cost less than *below*; yield degrees and layouts."""
        if not self._sorted:
            self.drop(below)
            order = np.argsort(self._costs, kind="stable")
            self._points, self._costs = self._points[order], self._costs[order]
            self._sorted = True
        last = min(self._next + _BATCH, len(self._costs))
        last = self._next + int(np.searchsorted(self._costs[self._next : last], below))
        points = self._points[self._next : last]
        self._next, self.last = (last if last > self._next else len(self._costs)), len(points)
        where = np.unravel_index(points, self.shape)
        return _replayed(self.scored, where, self.objective, self.limits)


def layouts_at(
    places: Sequence[Place],
    judge: Callable[[Scored], tuple[Objective, Sequence[Limit]]],
) -> Iterator[tuple[Any, Layout]]:
    """Yield the layouts at some places, replayed.

    Those whose replay would take long, and whose step is known exactly, are taken as scored.
    """
    together: dict[int, list[Place]] = {}
    for place in places:
        if _long(place) and place.score is not None and place.score[1]:
            yield _as_scored(place, judge(place.scored)[0])
        else:
            together.setdefault(id(place.scored), []).append(place)
    for group in together.values():
        scored = group[0].scored
        yield from _replayed(scored, _where([p.index for p in group]), *judge(scored))


def _long(place: Place) -> bool:
    pipeline = place.scored.pipeline
    batches = _at(pipeline.micro_batches, place.index)
    return bool(pipeline.stages * pipeline.chunks * batches > _MOST_OPS)


def _as_scored(place: Place, objective: Objective) -> tuple[Any, Layout]:
    assert place.score is not None
    seconds, _, bytes_ = place.score
    cost = float(_at(objective.cost(seconds), place.index))
    values = _values(place.scored, place.index)
    layout = Layout(
        values=values,
        cost=cost,
        value=float(_at(objective.value(cost), place.index)),
        seconds=seconds,
        bytes_=bytes_,
        bounded=True,
    )
    return (), layout


def _where(indices: Sequence[tuple[int, ...]]) -> tuple[NDArray[np.intp], ...]:
    return tuple(np.array(axis, dtype=np.intp) for axis in zip(*indices, strict=True))


def _replayed(
    scored: Scored,
    where: Sequence[NDArray[np.intp]],
    objective: Objective,
    limits: Sequence[Limit],
) -> Iterator[tuple[Any, Layout]]:
    if not len(where[0]):
        return
    structure = scored.structure
    seconds, bytes_, fits = replayed(scored, where)
    for i, (step, held, runs) in enumerate(zip(seconds, bytes_, fits, strict=True)):
        index = tuple(int(axis[i]) for axis in where)
        holds = all(_at(limit.holds(step, held), index) for limit in limits)
        if not (runs and holds):
            continue
        values = _values(scored, index)
        degrees = tuple(
            float(v)
            for k, v in values.items()
            if k in structure.degrees or (k in structure.values and isinstance(v, (int, float)))
        )
        cost = float(_at(objective.cost(step), index))
        yield (
            degrees,
            Layout(
                values=values,
                cost=cost,
                value=float(_at(objective.value(cost), index)),
                seconds=float(step),
                bytes_=float(held),
                place=Place(scored, index),
            ),
        )


def _at(value: Any, index: Sequence[int]) -> Any:
    """Return a number of the flat axis at one point."""
    found = np.atleast_1d(value)
    return found[index[-1] if found.shape[-1] > 1 else 0]


def _values(scored: Scored, index: Sequence[int]) -> dict[str, Any]:
    structure = scored.structure
    values: dict[str, Any] = dict(structure.values)
    for name, numbers in structure.degrees.items():
        values[name] = float(numbers[index[-1]])
    for k, choice in enumerate(structure.variants.choices):
        at = scored.index if k == scored.choice else index[k]
        values[choice.name] = choice.values[at]
    return values


def same_as(layout: Layout) -> Mapping[str, Sequence[Any]]:
    """Return, for each choice, the other values with which *layout* is the same to the bit."""
    if layout.place is None:
        return {}
    scored, index = layout.place.scored, layout.place.index
    found: dict[str, list[Any]] = {}
    tried: list[tuple[str, Any]] = []
    indices: list[tuple[int, ...]] = []
    for k, choice in enumerate(scored.structure.variants.choices):
        for i, value in enumerate(choice.values):
            other = (*index[:k], i, *index[k + 1 :])
            if k != scored.choice and other != index and scored.legal[other]:
                tried.append((choice.name, value))
                indices.append(other)
    if not indices:
        return {}
    seconds, bytes_, _ = replayed(scored, _where(indices))
    for (name, value), step, held in zip(tried, seconds, bytes_, strict=True):
        if step == layout.seconds and held == layout.bytes_:
            found.setdefault(name, []).append(value)
    return found
