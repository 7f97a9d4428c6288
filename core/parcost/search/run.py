"""The best layouts: bounds first, then exact replays, until nothing that is left can win.

Every layout of the space is scored, exactly or from below. Layouts are then replayed in
batches, the lowest score first. The search is over when no score that is left is below the
worst layout that is kept: then the ranking is proven. If the time runs out before, the gap
between the best layout and the lowest score that is left is what remains unproven.
"""

from __future__ import annotations

import heapq
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import count
from typing import TYPE_CHECKING, Any

import numpy as np
from attrs import field, frozen

from parcost.diagnostics import Diagnostic, SpecError, did_you_mean
from parcost.search.exact import replayed
from parcost.search.score import Scored, score
from parcost.search.space import Space, Structure

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from parcost.study import Study
    from parcost.terms import Objective

_BATCH = 128  # layouts that are replayed together
_FRONT = 200  # points that a structure may offer to the front


@frozen(kw_only=True, eq=False)
class Layout:
    """One layout: its values by attribute, what it costs and what it holds."""

    values: Mapping[str, Any]
    cost: float
    seconds: float
    bytes_: float


@frozen(kw_only=True, eq=False)
class Found:
    """What a search came to.

    *gap* is how much lower than the best any layout that was not replayed might be, as a
    share; 0 where the ranking is proven. *refused* counts layouts by the rule that does not
    let them through, and *large* those that do not fit.
    """

    objective: Objective
    best: Sequence[Layout]
    front: Sequence[Layout]
    size: int
    legal: int
    large: int
    refused: Mapping[str, int]
    replayed: int
    gap: float
    seconds: float


@frozen(eq=False)
class _Best:
    """The best layouts so far, one for each structure, schedule and set of degrees."""

    keep: int
    _by_place: dict[Any, tuple[float, Layout]] = field(factory=dict)

    def offer(self, place: Any, layout: Layout) -> None:
        """Take *layout* if none of its place is better."""
        known = self._by_place.get(place)
        if known is None or layout.cost < known[0]:
            self._by_place[place] = (layout.cost, layout)

    @property
    def worst(self) -> float:
        """The cost above which nothing needs to be looked at."""
        costs = heapq.nsmallest(self.keep, (cost for cost, _ in self._by_place.values()))
        return costs[-1] if len(costs) == self.keep else float("inf")

    def ranked(self) -> list[Layout]:
        """Return the best, first."""
        found = sorted(self._by_place.values(), key=lambda entry: entry[0])
        return [layout for _, layout in found[: self.keep]]


class _Waiting:
    """The layouts of one structure and schedule that nobody has replayed, cheapest first."""

    def __init__(self, scored: Scored, cost: NDArray[np.float64]) -> None:
        self.scored = scored
        order = np.argsort(cost, axis=None)
        flat = cost.reshape(-1)
        self.points = order[: int(np.isfinite(flat).sum())]
        self.costs = flat[self.points]
        self.shape = cost.shape
        self.next = 0

    @property
    def lowest(self) -> float:
        """The lowest cost that is left."""
        return float(self.costs[self.next]) if self.next < len(self.costs) else float("inf")

    def take(self, below: float) -> NDArray[np.intp]:
        """Return the next points, none of whose costs reaches *below*."""
        last = min(self.next + _BATCH, len(self.costs))
        last = self.next + int(np.searchsorted(self.costs[self.next : last], below))
        found = self.points[self.next : last]
        self.next = last
        return found


def search(
    space: Space,
    objective: str,
    *,
    keep: int = 10,
    budget_seconds: float = 60.0,
    told: Callable[[str], None] = lambda _: None,
) -> Found:
    """Return the *keep* best layouts of *space* by *objective*.

    Raises:
        SpecError: There is no such objective, or no layout is legal.
    """
    start = time.monotonic()
    best, tie = _Best(keep), count()
    waiting: list[tuple[float, int, _Waiting]] = []
    refused: Counter[str] = Counter()
    legal = large = tried = 0
    chosen: Objective | None = None
    front: list[Layout] = []
    with np.errstate(all="ignore"):
        for structure in space.structures():
            refused.update(structure.refused)
            legal += structure.points
            told(f"{legal:,} legal layouts")
            if not structure.points:
                continue
            chosen = _objective(structure.variants.base, objective)
            for scored in score(structure):
                cost, over = _costs(scored, chosen)
                large += over
                entry = _Waiting(scored, cost)
                if entry.lowest < float("inf"):
                    heapq.heappush(waiting, (entry.lowest, next(tie), entry))
        if chosen is None:
            raise SpecError([_empty(space, refused)])
        while waiting and waiting[0][0] < best.worst:
            if time.monotonic() - start > budget_seconds and tried:
                break
            _, _, entry = heapq.heappop(waiting)
            points = entry.take(best.worst)
            for place, layout in _replayed(entry, points, chosen):
                best.offer(place, layout)
                front.append(layout)
            tried += len(points)
            told(f"{legal:,} legal layouts, {tried:,} replayed")
            if entry.lowest < best.worst:
                heapq.heappush(waiting, (entry.lowest, next(tie), entry))
    ranked = best.ranked()
    if not ranked:
        raise SpecError([_nothing_fits(space, legal, large, refused)])
    left = waiting[0][0] if waiting else float("inf")
    gap = max(0.0, 1.0 - left / ranked[0].cost)
    return Found(
        objective=chosen,
        best=ranked,
        front=pareto(front),
        size=space.size,
        legal=legal,
        large=large,
        refused=refused,
        replayed=tried,
        gap=gap,
        seconds=time.monotonic() - start,
    )


def pareto(layouts: Sequence[Layout]) -> list[Layout]:
    """Return the layouts that no other beats in both time and memory, fastest first."""
    found: list[Layout] = []
    least = float("inf")
    for layout in sorted(layouts, key=lambda x: (x.seconds, x.bytes_)):
        if layout.bytes_ < least:
            found.append(layout)
            least = layout.bytes_
    return found


def _objective(study: Study, name: str) -> Objective:
    offered = {o.name: o for _, o in study.contributions("objectives")}
    if name not in offered:
        help = did_you_mean(name, offered) or "objectives are " + ", ".join(offered)
        message = f"nothing called `{name}` can be looked for in this study"
        raise SpecError([Diagnostic("unknown-objective", message, help=help)])
    found: Objective = offered[name]
    return found


def _costs(scored: Scored, objective: Objective) -> tuple[NDArray[np.float64], int]:
    """Return the cost of each layout, infinite where it may not run, and how many are large."""
    study = scored.structure.variants.base
    shape = scored.legal.shape
    cost = np.array(np.broadcast_to(objective.cost(scored.seconds), shape), dtype=np.float64)
    cost[~scored.legal] = np.inf
    fits = np.ones(1, dtype=bool)
    for _, room in study.contributions("rooms"):
        fits = fits & (scored.bytes_ <= room)
    over = scored.legal & ~np.broadcast_to(fits, shape)
    cost[over] = np.inf
    return cost, int(over.sum())


def _replayed(
    entry: _Waiting, points: NDArray[np.intp], objective: Objective
) -> Iterator[tuple[Any, Layout]]:
    scored = entry.scored
    structure = scored.structure
    where = np.unravel_index(points, entry.shape)
    seconds, bytes_, fits = replayed(scored, where)
    for i, (step, held, runs) in enumerate(zip(seconds, bytes_, fits, strict=True)):
        if not runs:
            continue
        index = tuple(int(axis[i]) for axis in where)
        values = _values(structure, scored, index)
        degrees = {k: v for k, v in values.items() if k in structure.degrees}
        place = (tuple(structure.at.items()), scored.schedule, tuple(degrees.items()))
        costs = np.atleast_1d(objective.cost(step))
        cost = float(costs[index[-1] if costs.size > 1 else 0])
        layout = Layout(values=values, cost=cost, seconds=float(step), bytes_=float(held))
        yield place, layout


def _values(structure: Structure, scored: Scored, index: Sequence[int]) -> dict[str, Any]:
    values: dict[str, Any] = dict(structure.at)
    for name, numbers in structure.degrees.items():
        values[name] = float(numbers[index[-1]])
    for k, choice in enumerate(structure.variants.choices):
        at = scored.index if k == scored.choice else index[k]
        values[choice.name] = choice.values[at]
    return values


def _empty(space: Space, refused: Mapping[str, int]) -> Diagnostic:
    worst = ", ".join(f"`{rule}` {n:,}" for rule, n in Counter(refused).most_common(3))
    message = f"none of {space.size:,} layouts is legal: rules refuse {worst}"
    help = "widen the axes, or change the devices or the batch"
    return Diagnostic("empty-space", message, place=space.scenario.path, help=help)


def _nothing_fits(space: Space, legal: int, large: int, refused: Mapping[str, int]) -> Diagnostic:
    del refused
    message = f"none of {legal:,} legal layouts fits: {large:,} need more memory than there is"
    help = "take more devices, or let more be sharded or recomputed"
    return Diagnostic("nothing-fits", message, place=space.scenario.path, help=help)
