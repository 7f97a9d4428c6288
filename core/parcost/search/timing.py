"""Step times of all layouts under one schedule: exact where a closed form is proven.

Without a closed form, the step time is a lower bound: the sum of the schedule's bound, a bound for
gathers and reductions, and the terms at the end. Memory is computed from the schedule's order, with
all micro-batches that affect it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from itertools import chain
from math import inf
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from attrs import evolve

from parcost.contract.pipelines import Case, Pipeline
from parcost.contract.study import Schedule
from parcost.contract.terms import Edge
from parcost.engine.bounds import ends, lower_bound
from parcost.engine.pipeline_run import PipelineRun
from parcost.engine.replay import Hop, PipelinePlan, Timeline, add_hops, hops_of
from parcost.engine.schedule_calls import case_of, closed_form, spans
from parcost.engine.step_costs import TermGroup, When
from parcost.numeric import all_of, any_of, maximum
from parcost.search.sketch import Sketch, sketch, sketch_size
from parcost.search.stage_loads import StructureLoads

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from parcost.numeric import Mask, Real


class ScheduleTimes:
    """The times of layouts of one structure under one schedule, from the *loads* of its stages."""

    def __init__(
        self,
        pipeline: Pipeline,
        schedule: Schedule,
        loads: StructureLoads,
        edges: Sequence[Edge],
        legal: NDArray[np.bool_],
    ) -> None:
        """Compute the times of all stages.

        *undefined* names a method of the schedule that returns NaN for a *legal* layout.
        """
        self.pipeline, self.schedule, self.legal = pipeline, schedule, legal
        self.undefined = ""
        self.plan = SketchPlan.for_layouts(schedule, pipeline, legal)
        self._structure, self.alike = loads, loads.kinds
        by_stage, self.times = loads.by_stage(self.plan)
        self.loads = [by_stage[x] for x in self.plan.stage]
        self.kinds = [loads.kinds[x] for x in self.plan.stage]
        self.hop = sum_hops(edges)

    def step(self) -> tuple[Any, Any]:
        """Return the step time in seconds or a lower bound, and where it is exact.

        The result for a layout does not depend on the other layouts that are timed with it.
        """
        exact: Mask
        terms = self._structure.stages.onces
        closed, mask = self._closed_form()
        timeline, known = self._closed_timeline(closed, mask)
        if timeline is None:
            timeline = Timeline(seconds=self._makespan(closed, mask), starts=(), ends=())
            run = self._run(timeline)
            if terms["fill"] or terms["drain"]:
                seconds, exact = self._between(run), False
            else:
                seconds, exact = timeline.seconds, mask
            return seconds + self._group("end", run).duration(), exact
        run = self._run(timeline)
        fill, drain = self._group("fill", run), self._group("drain", run)
        later, exact = fill.delay()
        first = fill.stages[0].exposed if fill.terms else 0.0  # which all passes wait for
        moved = Timeline(
            seconds=timeline.seconds + later,
            starts=(),
            ends=[end + first for end in timeline.ends],
        )
        seconds = moved.seconds + drain.outlasts(fill, moved)
        if not all_of(known):
            run = self._run(Timeline(seconds=self._makespan(closed, mask), starts=(), ends=()))
            seconds, exact = np.where(known, seconds, self._between(run)), exact & known
        return seconds + self._group("end", run).duration(), exact

    def _between(self, run: PipelineRun) -> Real:
        """Return a lower bound of the seconds of a pipeline with once-per-step terms.

        All passes wait for the first stage, and each device ends with the terms of its last stage.
        """
        seconds, terms = run.timeline.seconds, self._structure.stages.onces
        if terms["drain"]:
            stages = self._group("drain", run).stages
            for end, k in zip(
                ends(self.plan, self.times, self.pipeline.micro_batches),
                self.plan.drawn.final,
                strict=True,
            ):
                seconds = maximum(seconds, end + stages[k].exposed)
        if terms["fill"]:
            seconds = seconds + self._group("fill", run).stages[0].exposed
        return seconds

    def _run(self, timeline: Timeline) -> PipelineRun:
        return PipelineRun(
            plan=self.plan,
            loads=self.loads,
            kinds=self.kinds,
            times=self.times,
            hop=self.hop,
            timeline=timeline,
        )

    def _group(self, when: When, run: PipelineRun) -> TermGroup:
        return self._structure.group(when, run)

    def _closed_form(self) -> tuple[Real, Mask]:
        """Return the makespan in closed form in seconds, and where it is proven."""
        schedule = self.schedule
        uneven = isinstance(self.hop, tuple) and not schedule.hop_by_boundary
        if uneven or self.pipeline.blocking:
            return 0.0, False
        seconds, mask = closed_form(schedule, self._case)
        return seconds, mask & self._schedule_number(seconds, "closed_form", mask)

    def _closed_timeline(self, seconds: Real, mask: Mask) -> tuple[Timeline | None, Mask]:
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

    def _makespan(self, seconds: Real, mask: Mask) -> Real:
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
        """Return the mask where a method of the schedule returns a number instead of NaN.

        NaN at a legal layout with finite times is an error of the schedule.
        """
        unknown = np.isnan(value)
        if not unknown.any():
            return True
        if np.any(unknown & self._ends() & where & self.legal):
            self.undefined = f"`{method}`"
        known: Mask = ~unknown
        return known

    def _ends(self) -> NDArray[np.bool_]:
        """Return the mask where all passes and messages have finite times."""
        sums = [*self.times.F, *self.times.B, *self.times.W, *hops_of(self.hop)]
        return np.isfinite(sum(sums, start=np.zeros(1)))


def sum_hops(edges: Iterable[Edge]) -> Hop:
    """Return the seconds of all messages between devices."""
    hop: Hop = 0.0
    for edge in edges:
        hop = add_hops(hop, tuple(edge.boundaries) or edge.seconds)
    return hop


class SketchPlan(PipelinePlan):
    """A plan with a sketch of its order, which holds for every number of micro-batches."""

    @property
    def drawn(self) -> Sketch:
        """The sketch, used by a plan instead of an order."""
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
