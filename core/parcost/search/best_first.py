"""Best-first search: bounds, then exact replays, until no remaining layout can be better.

Every layout of the space gets a lower bound. Layouts that may be in the ranking are scored with all
of their terms: exactly, or by a better lower bound. Layouts are then replayed in batches, the
lowest score first. The search ends when no remaining score is below the worst layout in the
ranking; then the ranking is proven. If the time limit is reached first, the result has an
optimality gap: the difference between the best layout and the lowest remaining score. Parts of the
space that were not visited have no bound.
"""

from __future__ import annotations

import heapq
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import cache, reduce
from itertools import count
from math import inf, nan
from operator import and_
from typing import TYPE_CHECKING, Any

import numpy as np
from attrs import evolve, field, frozen

from parcost.contract.searches import STEP_TIME, Limit, Objective
from parcost.search.bounds import LayoutBounds
from parcost.search.complexity import sort_by_complexity
from parcost.search.failures import objective_of
from parcost.search.front import Front
from parcost.search.layout_evaluation import evaluate_layout
from parcost.search.point_order import PointOrder
from parcost.search.queue import ReplayQueue
from parcost.search.result import Best, SearchedLayout, SearchResult
from parcost.search.scored_layouts import ScoredLayouts
from parcost.search.scores import Scores
from parcost.search.space import Space, StructureGroup
from parcost.search.tally import RejectedLayoutError, Tally, result_of
from parcost.system.garbage import rare_collections

if TYPE_CHECKING:
    from numpy.typing import NDArray

_BLOCK = 4096  # points of the flat axis that are bounded together
_ROUND = 10_000  # layouts that are scored together, the lowest bounds first
_MOST_REPLAYED = 32  # layouts that are replayed together
_CROWDED = 100_000  # layouts that wait, before the best of them are replayed
_NEVER = "cannot-run"  # what an evaluation says of a step without an end
_MANY = 12  # schedules of structures that wait: their terms are kept


@frozen(kw_only=True, eq=False)
class SearchRequest:
    """The request of a search: *objective* by name, *keep* layouts, a time limit in seconds.

    With *careful*, a layout is evaluated separately before it excludes others. Only a separate
    evaluation runs the rules about outcomes, which may reject it. With a *strict_budget*, the time
    limit also ends a search that returns all layouts. Layouts whose cost differs by less than
    *tolerance*, a fraction, are listed with the simpler ones first. At least *compared* layouts are
    found for this sorting, so that the best layout does not depend on *keep*. Without *front* the
    Pareto front is computed when it is read, by a second search.
    """

    objective: str = STEP_TIME
    keep: int = 10
    budget_seconds: float = 60.0
    careful: bool = False
    strict_budget: bool = False
    tolerance: float = 0.0
    compared: int = 10
    front: bool = False

    @property
    def found(self) -> int:
        """The number of layouts to find: the larger of the listed and the compared layouts."""
        return max(self.keep, self.compared) if self.tolerance > 0.0 else self.keep


def search(
    space: Space,
    request: SearchRequest,
    *,
    on_progress: Callable[[str], None] = lambda _: None,
    points: Callable[[ScoredLayouts], None] | None = None,
) -> SearchResult:
    """Return the best layouts of *space*.

    *points* is called with batches of scored layouts, until all are scored. A strict budget ends
    this earlier.

    Raises:
        SpecError: There is no such objective, or no layout is legal, fits and is within
            the limits.
    """
    start = time.monotonic()
    objective = objective_of(space.scenario.first, request.objective)
    with rare_collections():
        found = _tally(space, request, on_progress, points)
        try:
            result = result_of(space, objective, found, start)
        except RejectedLayoutError:
            left = max(request.budget_seconds - (time.monotonic() - start), 0.0)
            careful = evolve(request, careful=True, budget_seconds=left)
            found = _tally(space, careful, on_progress, None)
            result = result_of(space, objective, found, start, careful=True)
    if not request.front:
        wanted = evolve(request, front=True)
        result = evolve(result, make_front=cache(lambda: search(space, wanted).front))
    return sort_by_complexity(
        result, request.tolerance, keep=request.keep, compared=request.compared
    )


def _tally(
    space: Space,
    request: SearchRequest,
    on_progress: Callable[[str], None],
    points: Callable[[ScoredLayouts], None] | None,
) -> Tally:
    """Return the best layouts of *space*, and the counts of excluded layouts."""
    run = _Search(space, request, on_progress, points)
    with np.errstate(all="ignore"):
        interrupted = False
        try:
            run.score()
            run.prove()
        except KeyboardInterrupt:
            interrupted = True
            run.replay_some()
        return run.tally(interrupted=interrupted)


@frozen(eq=False)
class _Counts:
    """Counts of the excluded layouts by reason, and the smallest memory or cost among them."""

    rejected: Counter[str] = field(factory=Counter)
    limits: Counter[str] = field(factory=Counter)
    broken: Counter[str] = field(factory=Counter)  # limits, beyond what first bounds tell
    verdicts: Counter[str] = field(factory=Counter)  # rules about outcomes
    totals: Counter[str] = field(factory=Counter)
    least: dict[str, float] = field(factory=dict)


class _Search:
    """The state of a running search."""

    def __init__(
        self,
        space: Space,
        request: SearchRequest,
        on_progress: Callable[[str], None],
        points: Callable[[ScoredLayouts], None] | None,
    ) -> None:
        self.space, self.request, self.on_progress, self.points = (
            space,
            request,
            on_progress,
            points,
        )
        self.start = time.monotonic()
        self.best = Best(request.found)
        self.front = Front() if request.front else None
        self.counts = _Counts()
        self.waiting: list[tuple[float, int, ReplayQueue]] = []
        self.looked = 0
        self.crowded, self.many = _CROWDED, _MANY
        self.tie = count()
        self.unscored = inf  # the lowest bound of layouts that are not scored, for want of time
        self.batch = request.keep  # the first ones are kept, and spare the replay of many others

    @property
    def late(self) -> bool:
        """Whether the time limit is reached."""
        return time.monotonic() - self.start > self.request.budget_seconds

    @property
    def _ends_early(self) -> bool:
        """Whether the time limit is reached and layouts may remain unscored."""
        return self.late and (self.points is None or self.request.strict_budget)

    def score(self) -> None:
        """Score every layout that may be in the ranking or on the front."""
        for group in self.space.groups():
            self.counts.rejected.update(group.rejected)
            self.counts.totals["legal"] += group.points
            self.on_progress(f"{self.counts.totals['legal']:,} legal layouts")
            whole = True
            if group.structures:
                whole = self._score_group(group)
                group.release()
            self.looked += group.looked if whole else 0
            if self._queue_length > self.crowded or len(self.waiting) > self.many:
                self._thin()
            if self._ends_early:
                return

    def _score_group(self, group: StructureGroup) -> bool:
        """Score the layouts of a group that may be in the ranking; return whether all have a bound.

        Combinations of degrees that the bound of serial work excludes are not scored. It may end
        early, at the time limit.
        """
        scores = Scores(group)
        order = PointOrder(self._least_costs(scores))
        while block := order.take(_BLOCK, self.best.worst):
            self._score(scores, block)
            if self._ends_early and self.best.ranking():
                self.unscored = min(self.unscored, order.lowest)
                return order.lowest > -inf
        for block in order.rest(_BLOCK):  # counted, and for the front
            if self._ends_early and self.best.ranking():
                return False
            self._score(scores, block)
        return True

    def _least_costs(self, scores: Scores) -> Mapping[int, NDArray[np.float64]]:
        """Return a lower bound of the cost at each combination of degrees, by structure.

        It is minus infinity if every layout must be bounded, as for a limit.
        """
        found: dict[int, NDArray[np.float64]] = {}
        for place, structure in enumerate(scores.group.structures):
            criteria = scores.criteria(place)
            found[place] = whole = np.full(len(structure.kept), -inf)
            if self.points is None and not criteria.limits:
                seconds = scores.least_seconds(place)
                cost = criteria.objective(self.request.objective).cost(seconds)
                found[place] = np.where(seconds > -inf, cost, whole)
        return found

    def _score(self, scores: Scores, block: Mapping[int, NDArray[np.intp]]) -> None:
        """Score the layouts of a block that may be in the ranking, the lowest bounds first.

        If the time limit is reached, the lowest bound of the others is recorded.
        """
        bounds = [self._apply_bound(bound) for bound in scores.bound_layouts(block)]
        if self.front is not None and bounds:  # for one that excludes others, in every band
            least = reduce(np.minimum, (bound.least_by_band() for bound in bounds))
            for bound in bounds:
                bound.order_by_band(least)
        while True:
            worst = self.best.worst if self.points is None else nan  # all points are expected
            matters = [bound.matters(worst, self.front) for bound in bounds]
            each = [bound.order(which) for bound, which in zip(bounds, matters, strict=True)]
            order = np.concatenate(each)
            if not len(order):
                return
            if self._is_over:
                lowest = [bound.lowest_cost(w) for bound, w in zip(bounds, matters, strict=True)]
                self.unscored = min(self.unscored, *lowest)
                return
            if self.points is not None:  # in any order, and cheaper by structure
                sizes = np.cumsum(list(map(len, each)))
                least = sizes[np.flatnonzero(sizes)[0]]
                here = int(np.searchsorted(sizes, max(_ROUND, least), side="right"))
                order, matters = order[: sizes[here - 1]], matters[:here]
            limit = np.partition(order, _ROUND)[_ROUND] if len(order) > _ROUND else inf
            taken = [
                (bound.bound, bound.take(which, limit))
                for bound, which in zip(bounds, matters, strict=False)
            ]
            for scored in scores.score_layouts(taken):
                self._offer(scored)
            self.prove()

    @property
    def _is_over(self) -> bool:
        """Whether the time limit is reached and some layout has a score."""
        known = self.waiting or self.looked or self.best.ranking()
        return bool(self._ends_early and known)

    @property
    def _may_gain(self) -> bool:
        """Whether a queued layout may be among the best."""
        return bool(self.waiting) and self.waiting[0][0] <= self.best.worst

    def _apply_bound(self, bound: ScoredLayouts) -> LayoutBounds:
        """Return the layouts that *bound* does not exclude, and count the excluded ones."""
        objective, limits = self._goal_and_limits(bound)
        left = self._select_finite(self._select_by_memory(bound), bound.seconds)
        for limit in limits:
            here = left & limit.holds(bound.seconds, bound.bytes_)
            self.counts.limits[limit.says] += int(left.sum()) - int(here.sum())
            left = here
        if self.points is not None:
            left = bound.legal
        return LayoutBounds(bound, objective.cost(bound.seconds), left)

    def _select_by_memory(self, held: ScoredLayouts) -> NDArray[np.bool_]:
        """Return the mask of layouts whose lower bound fits in memory, and count the others."""
        legal, rooms = held.legal, held.criteria.capacities
        left: NDArray[np.bool_] = legal & reduce(and_, (held.bytes_ <= r for r in rooms), True)
        self.counts.totals["large"] += int(legal.sum()) - int(left.sum())
        if not left.any():
            bytes_ = np.broadcast_to(held.bytes_, legal.shape)
            needed = float(np.min(bytes_, where=legal, initial=inf))
            self.counts.least["needed"] = min(self.counts.least.get("needed", inf), needed)
        return left

    def _select_finite(self, left: NDArray[np.bool_], seconds: Any) -> NDArray[np.bool_]:
        """Return the mask of layouts with a finite step time, and count the others as rejected."""
        ends: NDArray[np.bool_] = left & (seconds < inf)
        if never := int(left.sum()) - int(ends.sum()):
            self.counts.verdicts[_NEVER] += never
        return ends

    def _offer(self, scored: ScoredLayouts) -> None:
        """Queue the layouts that fit for a replay, and offer them to the front."""
        objective, limits = self._goal_and_limits(scored)
        if self.points is not None:
            self.points(scored)
        rooms = scored.criteria.capacities
        left = scored.legal & reduce(and_, (scored.bytes_ <= room for room in rooms), True)
        for limit in limits:
            bounded = left & limit.holds(scored.least, scored.bytes_)
            here = bounded & limit.holds(scored.seconds, scored.bytes_)
            self.counts.broken[limit.says] += int(bounded.sum()) - int(here.sum())
            left = here
        left = self._select_finite(left, scored.seconds)
        cost = np.where(left, objective.cost(scored.seconds), inf)
        if self.front is not None:
            self.front.offer(scored, left)
        entry = ReplayQueue(scored, objective, limits, np.broadcast_to(cost, left.shape))
        if entry.left and entry.lowest <= self.best.worst:
            heapq.heappush(self.waiting, (entry.lowest, next(self.tie), entry))

    def prove(self) -> None:
        """Replay layouts until no other one can be better, or the time limit is reached."""
        while self._may_gain:
            if self.late and self.best.ranking():
                return
            self.replay_some()

    def replay_some(self) -> None:
        """Replay the layouts with the lowest bounds."""
        if not self.waiting:
            return
        _, tie, entry = self.waiting[0]
        found = entry.replay(self.best.worst, self.batch)
        self.batch = min(2 * self.batch, _MOST_REPLAYED)
        for degrees, layout in sorted(found.layouts, key=lambda kept: kept[1].rank):
            if not self.request.careful or self._runs(layout):
                self.best.offer(degrees, layout)
        totals, legal = self.counts.totals, self.counts.totals["legal"]
        totals["replayed"] += entry.last
        totals["unfit"] += found.unfit
        self.counts.broken.update(found.broken)
        self.on_progress(f"{legal:,} legal layouts, {totals['replayed']:,} replayed")
        if entry.left and entry.lowest <= self.best.worst:
            heapq.heapreplace(self.waiting, (entry.lowest, tie, entry))
        else:
            heapq.heappop(self.waiting)

    def _runs(self, layout: SearchedLayout) -> bool:
        """Return whether a layout is valid in a separate evaluation; count the reasons if it is
        not.
        """
        if layout.cost > self.best.worst:
            return False
        one = evaluate_layout(self.space.scenario, layout.values, self.request.objective)
        self.counts.verdicts.update(one.rule_errors)
        return one.layout is not None

    def _thin(self) -> None:
        """Replay the best layouts in the queue, and remove layouts that cannot be among the
        best.
        """
        self.replay_some()
        while self.waiting and self.best.worst == inf:
            self.replay_some()
        entries = [entry for _, _, entry in self.waiting]
        for entry in entries:
            entry.drop(self.best.worst)
        self.waiting = [(e.lowest, next(self.tie), e) for e in entries if e.left]
        heapq.heapify(self.waiting)
        self.crowded = max(_CROWDED, 2 * self._queue_length)
        self.many = max(_MANY, 2 * len(self.waiting))

    @property
    def _queue_length(self) -> int:
        """The number of layouts in the queue."""
        return sum(entry.left for _, _, entry in self.waiting)

    def tally(self, *, interrupted: bool) -> Tally:
        """Return the best layouts, and the counts."""
        totals = self.counts.totals
        return Tally(
            best=self.best,
            front=self.front.candidates() if self.front is not None else (),
            rejected=dict(self.counts.rejected),
            limits=dict(self.counts.limits),
            legal=totals["legal"],
            large=totals["large"],
            replayed=totals["replayed"],
            least_bytes=self.counts.least.get("needed", inf),
            left=min(self.waiting[0][0] if self.waiting else inf, self.unscored),
            looked=self.looked,
            unfit=totals["unfit"],
            broken=dict(self.counts.broken),
            verdicts=dict(self.counts.verdicts),
            faults=list(dict.fromkeys(fault.line for fault in self.space.faults)),
            interrupted=interrupted,
        )

    def _goal_and_limits(self, scored: ScoredLayouts) -> tuple[Objective, Sequence[Limit]]:
        return scored.criteria.objective(self.request.objective), scored.criteria.limits
