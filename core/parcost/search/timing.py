"""Step times of all layouts under one schedule: exact where a closed form is proven.

Without a closed form, the step time is a lower bound: the bound of the schedule, plus the least
that gathers and reductions add, plus the terms at the end. Memory follows from the schedule's
order, with as many micro-batches as affect it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property, reduce
from itertools import chain
from math import inf
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from attrs import evolve

from parcost.contract.pipelines import Case, Pipeline, Times
from parcost.contract.study import Schedule
from parcost.contract.terms import Edge, Memory, Once, Work
from parcost.engine.bounds import ends, lower_bound
from parcost.engine.load import Load
from parcost.engine.memory import DeviceMemory
from parcost.engine.pairs import PlanPairs
from parcost.engine.pipeline_run import PipelineRun
from parcost.engine.replay import Hop, PipelinePlan, Timeline, add_hops, hops_of
from parcost.engine.schedule_calls import case_of, closed_form, spans
from parcost.engine.stage_costs import PASSES, kinds, load
from parcost.engine.step_costs import WHENS, TermGroup, When
from parcost.numeric import all_of, any_of, maximum
from parcost.search.sketch import Sketch, sketch, sketch_size

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from parcost.engine.orders import AliveCounts
    from parcost.numeric import Mask, Real


class ScheduleTimes:
    """The times of layouts under one schedule; terms have a dimension for each choice."""

    def __init__(
        self,
        pipeline: Pipeline,
        schedule: Schedule,
        terms: Sequence[Any],
        legal: NDArray[np.bool_],
        known: dict[Any, Any],
    ) -> None:
        """Compute the loads of all stages; *known* caches loads that schedules share.

        *unsaid* names the methods of the schedule that return NaN for legal layouts.
        """
        self.pipeline, self.schedule, self.legal = pipeline, schedule, legal
        self.unsaid = ""
        self.plan = SketchPlan.for_layouts(schedule, pipeline, legal)
        stages = pipeline.stages * pipeline.chunks
        works = [t for t in terms if isinstance(t, Work)]
        works.sort(key=lambda w: (PASSES.index(w.pass_), w.name))
        self.onces = sorted((t for t in terms if isinstance(t, Once)), key=lambda o: o.name)
        alike = kinds([*works, *self.onces], stages)
        split = not self.plan.orders[0][1].fused
        by_kind: dict[int, Load] = {}
        for x in dict.fromkeys(alike):
            key = (split, x, *map(id, works))
            if key not in known:
                known[key] = works, load(works, x, split=split)  # the ids of terms stay theirs
            by_kind[x] = known[key][1]
        by_stage = [by_kind[x] for x in alike]
        paired = PlanPairs(self.plan, works, by_stage)
        self.loads = [by_stage[x] for x in self.plan.stage]
        passes = {x: _passes(by_kind[x].seconds) for x in by_kind}
        forward, backward, weights = zip(*(passes[x] for x in alike), strict=True)
        self.times = Times(forward, backward, weights, paired.seconds)
        self.hop: Hop = 0.0
        for edge in (t for t in terms if isinstance(t, Edge)):
            self.hop = add_hops(self.hop, tuple(edge.boundaries) or edge.seconds)
        self.alike, self.kinds = alike, [alike[x] for x in self.plan.stage]

    def minimum_seconds(self) -> Real:
        """Return a lower bound of the step time in seconds; further terms cannot shorten it."""
        seconds, mask = self._closed()
        timeline = Timeline(seconds=self._mixed(seconds, mask), starts=(), ends=())
        return timeline.seconds + TermGroup(self._onces("end"), self._run(timeline)).duration()

    def step(self) -> tuple[Any, Any]:
        """Return the step time in seconds or a lower bound, and where it is exact.

        The result for a layout does not depend on the other layouts that are timed with it.
        """
        exact: Mask
        terms = {when: self._onces(when) for when in WHENS}
        closed, mask = self._closed()
        timeline, known = self._spanned(closed, mask)
        if timeline is None:
            timeline = Timeline(seconds=self._mixed(closed, mask), starts=(), ends=())
            run = self._run(timeline)
            if terms["fill"] or terms["drain"]:
                seconds, exact = self._between(terms["fill"], terms["drain"], run), False
            else:
                seconds, exact = timeline.seconds, mask
            return seconds + TermGroup(terms["end"], run).duration(), exact
        run = self._run(timeline)
        fill, drain = TermGroup(terms["fill"], run), TermGroup(terms["drain"], run)
        later, exact = fill.delay()
        first = fill.stages[0].exposed if fill.terms else 0.0  # which all passes wait for
        moved = Timeline(
            seconds=timeline.seconds + later,
            starts=(),
            ends=[end + first for end in timeline.ends],
        )
        seconds = moved.seconds + drain.outlasts(fill, moved)
        if not all_of(known):
            run = self._run(Timeline(seconds=self._mixed(closed, mask), starts=(), ends=()))
            below = self._between(terms["fill"], terms["drain"], run)
            seconds, exact = np.where(known, seconds, below), exact & known
        return seconds + TermGroup(terms["end"], run).duration(), exact

    def _between(self, fill: Sequence[Once], drain: Sequence[Once], run: PipelineRun) -> Real:
        """Return a lower bound of the seconds of a pipeline without spans, with once terms.

        Once terms occur once per step. All passes wait for the first stage, and each device ends
        with the terms of its last stage.
        """
        seconds = run.timeline.seconds
        if drain:
            stages = TermGroup(drain, run).stages
            for end, k in zip(
                ends(self.plan, self.times, self.pipeline.micro_batches),
                self.plan.drawn.final,
                strict=True,
            ):
                seconds = maximum(seconds, end + stages[k].exposed)
        return seconds + TermGroup(fill, run).stages[0].exposed if fill else seconds

    def _run(self, timeline: Timeline) -> PipelineRun:
        return PipelineRun(
            plan=self.plan,
            loads=self.loads,
            kinds=self.kinds,
            times=self.times,
            hop=self.hop,
            timeline=timeline,
        )

    def _onces(self, when: When) -> Sequence[Once]:
        return [term for term in self.onces if term.when == when]

    def _closed(self) -> tuple[Real, Mask]:
        """Return the makespan in closed form in seconds, and where it is proven."""
        schedule = self.schedule
        uneven = isinstance(self.hop, tuple) and not schedule.hop_by_boundary
        if uneven or self.pipeline.blocking:
            return 0.0, False
        seconds, mask = closed_form(schedule, self._case)
        return seconds, mask & self._schedule_number(seconds, "closed_form", mask)

    def _spanned(self, seconds: Real, mask: Mask) -> tuple[Timeline | None, Mask]:
        """Return the timeline with the spans of stages, or None, and where it holds."""
        found = spans(self.schedule, self._case) if any_of(mask) else None
        if found is None:
            return None, False
        for value in chain(*found):
            mask = mask & self._schedule_number(value, "spans", mask)
        runs = [k for k, stages in enumerate(self._case.counts) for _ in range(int(stages))]
        starts, ends = ([times[runs[x]] for x in self.plan.stage] for times in found)
        return Timeline(seconds=seconds, starts=starts, ends=ends), mask

    @cached_property
    def _case(self) -> Case:
        """The pipeline to be timed, as the input of the schedule."""
        return case_of(self.pipeline, self.times, self.hop, alike=self.alike)

    def _mixed(self, seconds: Real, mask: Mask) -> Real:
        """Return the makespan in seconds where it is proven, and a lower bound elsewhere."""
        if mask is False:
            return self._bound()
        if all_of(mask):
            return seconds
        mixed: Real = np.where(mask, seconds, self._bound())
        return mixed

    def _bound(self) -> Real:
        m = self.pipeline.micro_batches
        bound = lower_bound(self.plan, self.times, self.hop, m, self.alike)
        if (known := self._schedule_number(bound, "lower_bound")) is True:
            return bound
        least: Real = np.where(known, bound, np.where(self._ends(), 0.0, inf))
        return least

    def _schedule_number(self, value: Real, method: str, where: Mask = True) -> Mask:
        """Return where a method of the schedule returns a number instead of NaN.

        NaN is an error of the schedule at legal layouts of finite time only.
        """
        unknown = np.isnan(value)
        if not unknown.any():
            return True
        if np.any(unknown & self._ends() & where & self.legal):
            self.unsaid = f"`{method}`"
        known: Mask = ~unknown
        return known

    def _ends(self) -> NDArray[np.bool_]:
        """Return which layouts have a finite time: in others a pass or a message takes forever."""
        sums = [*self.times.F, *self.times.B, *self.times.W, *hops_of(self.hop)]
        return np.isfinite(sum(sums, start=np.zeros(1)))


def peak_memory(
    plan: SketchPlan,
    micro_batches: Real,
    terms: Sequence[Memory],
    known: dict[Any, Sequence[Real]],
) -> Real:
    """Return the peak memory over all devices in bytes; *known* caches parts of schedules."""
    growing = plan.drawn.growing
    held = DeviceMemory(terms, plan, most=micro_batches, growing=growing, steady=known)
    return reduce(maximum, (b for d in _distinct_devices(held, plan) for b in held.moments(d)))


def _distinct_devices(held: DeviceMemory, plan: SketchPlan) -> Iterator[int]:
    """Yield the devices, without those that hold at most as much as another with equal stages."""
    order = plan.drawn
    first: dict[tuple[int, ...], list[AliveCounts]] = {}
    for d, copies in enumerate(plan.held):
        (peak,) = order.peaks[d]
        others = first.setdefault(tuple(held.kinds[k] for k in copies), [])
        if not any(other.covers(peak) for other in others):
            others.append(peak)
            yield d


def _passes(seconds: Any) -> tuple[Real, Real, Real]:
    return seconds["F"], seconds["R"] + seconds["B"], seconds["W"]


class SketchPlan(PipelinePlan):
    """A plan with a sketch of its order, which holds for every number of micro-batches."""

    @property
    def drawn(self) -> Sketch:
        """The sketch that takes the place of the orders of a plan."""
        ((_, drawn),) = self.orders
        return cast("Sketch", drawn)

    @classmethod
    def for_layouts(
        cls, schedule: Schedule, pipeline: Pipeline, legal: NDArray[np.bool_]
    ) -> SketchPlan:
        """Return the plan for the largest number of micro-batches among *legal* layouts."""
        p, v = pipeline.stages, pipeline.chunks
        alive = np.atleast_1d(legal.reshape(-1, legal.shape[-1]).any(axis=0))
        m = np.broadcast_to(np.asarray(pipeline.micro_batches, dtype=np.float64), alive.shape)
        most = int(m[alive].max())
        drawn = sketch(schedule, p, sketch_size(schedule, p, v, most), v)
        plan = object.__new__(cls)
        object.__setattr__(plan, "schedule", schedule)
        object.__setattr__(
            plan, "pipeline", evolve(pipeline, micro_batches=float(drawn.micro_batches))
        )
        object.__setattr__(plan, "orders", [(float(drawn.micro_batches), drawn)])
        return plan
