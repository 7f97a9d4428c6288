"""The best layouts: bounds first, then exact replays, until nothing that is left can win.

Every layout of the space is scored, exactly or from below. Layouts are then replayed in
batches, the lowest score first. The search is over when no score that is left is below the
worst layout that is kept: then the ranking is proven. If the time runs out before, the gap
between the best layout and the lowest score that is left is what remains unproven; if not
even everything was scored, nothing is known about the rest.
"""

from __future__ import annotations

import heapq
import time
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import count
from math import inf, prod
from typing import Any

import numpy as np
from attrs import evolve, field, frozen

from parcost.diagnostics import SpecError
from parcost.search.failing import empty, nothing_found, objective_of
from parcost.search.found import Best, Found, Layout, pareto
from parcost.search.front import Front
from parcost.search.score import Scored, score
from parcost.search.space import Space, Structure
from parcost.search.waiting import Waiting, layouts_at, same_as
from parcost.terms import Limit, Objective

_CROWDED = 100_000  # layouts that wait, before the best of them are replayed
_MANY = 12  # schedules of structures that wait: their terms are kept
_FEW = 20_000  # replayed layouts, before those off the front are forgotten


@frozen(kw_only=True, eq=False)
class Wish:
    """What is looked for: *objective* by name, *keep* layouts, within some seconds."""

    objective: str = "step_time"
    keep: int = 10
    budget_seconds: float = 60.0


def search(
    space: Space,
    wish: Wish,
    *,
    told: Callable[[str], None] = lambda _: None,
    points: Callable[[Scored], None] | None = None,
    part: tuple[int, int] = (0, 1),
) -> Found:
    """Return the best layouts of *space*.

    *points* is called with all layouts, some at a time, as they are scored, however long
    that takes. Of the structures, only each n-th is looked at where *part* is (i, n).

    Raises:
        SpecError: There is no such objective, or no layout is legal, fits and is within
            the limits.
    """
    run = _Search(space, wish, told, points, part)
    with np.errstate(all="ignore"):
        interrupted = False
        try:
            run.score()
            run.prove()
        except KeyboardInterrupt:
            interrupted = True
            run.replay_some()
        return run.found(interrupted=interrupted)


@frozen(eq=False)
class _Counts:
    """What was left out, and how close it came."""

    refused: Counter[str] = field(factory=Counter)
    limits: Counter[str] = field(factory=Counter)
    totals: Counter[str] = field(factory=Counter)
    least: dict[str, float] = field(factory=dict)


class _Search:
    """A search as it goes on."""

    def __init__(
        self,
        space: Space,
        wish: Wish,
        told: Callable[[str], None],
        points: Callable[[Scored], None] | None,
        part: tuple[int, int],
    ) -> None:
        self.space, self.wish, self.told, self.points, self.part = space, wish, told, points, part
        self.start = time.monotonic()
        self.best = Best(wish.keep)
        self.front = Front()
        self.replayed: list[Layout] = []
        self.counts = _Counts()
        self.waiting: list[tuple[float, int, Waiting]] = []
        self.objective: Objective | None = None
        self.looked = 0
        self.crowd, self.crowded, self.many = 0, _CROWDED, _MANY
        self.tie = count()

    @property
    def late(self) -> bool:
        """Whether the time is over."""
        return time.monotonic() - self.start > self.wish.budget_seconds

    @property
    def structures(self) -> int:
        """How many structures the space has."""
        whole = prod(len(axis.values) for axis in (*self.space.structural, *self.space.cuts))
        i, n = self.part
        return len(range(i, whole, n))

    def score(self) -> None:
        """Score every layout."""
        i, n = self.part
        for number, structure in enumerate(self.space.structures()):
            if number % n != i:
                continue
            self.counts.refused.update(structure.refused)
            self.counts.totals["legal"] += structure.points
            self.told(f"{self.counts.totals['legal']:,} legal layouts")
            if structure.points:
                self._score(structure)
            self.looked += 1
            if self.crowd > self.crowded or len(self.waiting) > self.many:
                self._thin()
            if self.late and self.points is None and self.waiting:
                return

    def _score(self, structure: Structure) -> None:
        for scored in score(structure):
            objective, limits = self._judged_by(scored)
            self.objective = self.objective or objective
            if self.points is not None:
                self.points(scored)
            entry = Waiting(scored, objective, limits, self._costs(scored, objective, limits))
            if entry.lowest < self.best.worst:
                self.crowd += entry.left
                heapq.heappush(self.waiting, (entry.lowest, next(self.tie), entry))
        structure.variants.forget()

    def _costs(self, scored: Scored, objective: Objective, limits: Sequence[Limit]) -> Any:
        """Return the cost of each layout, infinite where it is out of the question."""
        shape = scored.legal.shape
        totals, least = self.counts.totals, self.counts.least
        bytes_ = np.broadcast_to(scored.bytes_, shape)
        fits: Any = np.ones(1, dtype=bool)
        for _, room in scored.structure.variants.base.contributions("rooms"):
            fits = fits & (scored.bytes_ <= room)
        legal = scored.legal
        left = legal & fits
        totals["large"] += int(legal.sum()) - int(left.sum())
        if not left.any():
            needed = float(np.min(bytes_, where=legal, initial=inf))
            least["needed"] = min(least.get("needed", inf), needed)
        for limit in limits:
            here = left & limit.holds(scored.seconds, scored.bytes_)
            self.counts.limits[limit.says] += int(left.sum()) - int(here.sum())
            left = here
        cost = np.where(left, objective.cost(scored.seconds), inf)
        self.front.offer(scored, left)
        return np.broadcast_to(cost, shape)

    def prove(self) -> None:
        """Replay layouts until no other one can be better, or the time is over."""
        while self.waiting and self.waiting[0][0] < self.best.worst:
            if self.late and self.replayed:
                return
            self.replay_some()

    def replay_some(self) -> None:
        """Replay the layouts with the lowest bounds."""
        if not self.waiting:
            return
        _, _, entry = heapq.heappop(self.waiting)
        before = entry.left
        for place, layout in entry.replay(self.best.worst):
            self.best.offer(place, layout)
            self.replayed.append(evolve(layout, place=None))
        self.crowd -= before - entry.left
        self.counts.totals["replayed"] = self.counts.totals["replayed"] + entry.last
        legal, tried = self.counts.totals["legal"], self.counts.totals["replayed"]
        self.told(f"{legal:,} legal layouts, {tried:,} replayed")
        if entry.lowest < self.best.worst:
            heapq.heappush(self.waiting, (entry.lowest, next(self.tie), entry))
        if len(self.replayed) > _FEW:
            self.replayed = pareto(self.replayed)

    def _thin(self) -> None:
        """Replay the best that wait, and forget whatever cannot be among the best any more."""
        self.replay_some()
        while self.waiting and self.waiting[0][0] < self.best.worst == inf:
            self.replay_some()
        entries = [entry for _, _, entry in self.waiting]
        for entry in entries:
            entry.drop(self.best.worst)
        self.waiting = [(e.lowest, next(self.tie), e) for e in entries if e.left]
        heapq.heapify(self.waiting)
        self.crowd = sum(entry.left for entry in entries)
        self.crowded = max(_CROWDED, 2 * self.crowd)
        self.many = max(_MANY, 2 * len(self.waiting))

    def found(self, *, interrupted: bool) -> Found:
        """Return what the search has come to."""
        totals = self.counts.totals
        if self.objective is None and not interrupted:
            raise SpecError([empty(self.space, self.counts.refused)])
        ranked = self.best.ranked()
        if not ranked or self.objective is None:
            if interrupted:
                raise KeyboardInterrupt
            raise SpecError(
                [
                    nothing_found(
                        self.space,
                        totals["legal"],
                        totals["large"],
                        self.counts.limits,
                        self.counts.least.get("needed", inf),
                    )
                ]
            )
        proven = self.looked == self.structures
        left = self.waiting[0][0] if self.waiting else inf
        gap = max(0.0, 1.0 - left / ranked[0].cost) if proven else None
        front = [*self.replayed, *(x for _, x in layouts_at(self.front.points(), self._judged_by))]
        return Found(
            objective=self.objective,
            best=[evolve(layout, same=same_as(layout)) for layout in ranked],
            front=[evolve(layout, place=None) for layout in pareto(front)],
            size=self.space.size,
            legal=totals["legal"],
            large=totals["large"],
            refused=dict(self.counts.refused),
            limits=dict(self.counts.limits),
            replayed=totals["replayed"],
            gap=gap,
            looked=self.looked,
            structures=self.structures,
            interrupted=interrupted,
            seconds=time.monotonic() - self.start,
        )

    def _judged_by(self, scored: Scored) -> tuple[Objective, Sequence[Limit]]:
        base = scored.structure.variants.base
        limits = [limit for _, goal in base.contributions("goals") for limit in goal.limits]
        return objective_of(base, self.wish.objective), limits
