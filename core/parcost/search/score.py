"""Every layout of a structure, timed at once: exactly where a closed form is proven.

Where the schedule has none, the step is a bound from below: that of the schedule, and what
comes once at the end of the step. What gathers and reductions add in fill and drain
is left out there, so that no layout is ever ruled out that might be the best. Memory is
that of the schedule's order for as many micro-batches as change it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import reduce
from typing import TYPE_CHECKING, Any

import numpy as np
from attrs import evolve, frozen

from parcost.evaluation.bounds import lower_bound
from parcost.evaluation.memory import Held
from parcost.evaluation.once import WHENS, Grouped, Pipelined
from parcost.evaluation.pairs import Paired
from parcost.evaluation.replay import Hop, Plan, Timeline, slower
from parcost.evaluation.work import PASSES, Load, kinds, load
from parcost.numeric import maximum
from parcost.search.sketch import settled, sketch
from parcost.search.space import Structure
from parcost.search.stack import stacked, under
from parcost.terms import Edge, Memory, Once, Pipeline, Schedule, Times, Work

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from parcost.numeric import Mask, Real
    from parcost.plugins import Plugin


@frozen(kw_only=True, eq=False)
class Scored:
    """The layouts of one structure under one schedule: arrays that broadcast to the space.

    *seconds* is the step or, where not *exact*, no more than it. *schedule* is the index of
    the value that all these layouts have of the choice in position *choice*, if any.
    """

    structure: Structure
    schedule: str
    choice: int | None
    index: int
    pipeline: Pipeline
    terms: Sequence[tuple[Plugin, Any]]
    memory: Sequence[tuple[Plugin, Any]]
    legal: NDArray[np.bool_]
    seconds: Any
    exact: Any
    bytes_: Any


def score(structure: Structure) -> Iterator[Scored]:
    """Yield the layouts of *structure*, by schedule."""
    variants = structure.variants
    terms = stacked(variants.over("terms", structure.legal), variants.shape)
    memory = stacked(variants.over("memory", structure.legal), variants.shape)
    choice = _scheduling(structure)
    loads: dict[Any, Load] = {}
    for index in range(variants.shape[choice] if choice is not None else 1):
        legal = structure.legal
        combination = [0] * len(variants.shape)
        here, held = terms, memory
        if choice is not None:
            combination[choice] = index
            legal = legal[(slice(None),) * choice + (slice(index, index + 1),)]
            here, held = under(terms, choice, index), under(memory, choice, index)
        if not legal.any():
            continue
        pipeline = variants.at(tuple(combination)).pipeline
        schedule = variants.base.plugins.named("schedules")[pipeline.schedule][1]
        alive = np.atleast_1d(legal.reshape(-1, legal.shape[-1]).any(axis=0))
        timed = _Timed(pipeline, schedule, [t for _, t in here], alive, loads)
        seconds, exact = timed.step()
        yield Scored(
            structure=structure,
            schedule=pipeline.schedule,
            choice=choice,
            index=index,
            pipeline=pipeline,
            terms=here,
            memory=held,
            legal=legal,
            seconds=seconds,
            exact=exact,
            bytes_=timed.fullest([m for _, m in held]),
        )


def _scheduling(structure: Structure) -> int | None:
    """Return which choice is that of the schedule: the one that the pipeline reads."""
    read: set[int] = set()
    for reads, _ in structure.variants.over("pipelines", structure.legal):
        read.update(reads)
    several = [k for k in read if structure.variants.shape[k] > 1]  # the rest decides nothing
    return several[0] if several else None


class _Timed:
    """The terms of a schedule, with a dimension for each choice."""

    def __init__(
        self,
        pipeline: Pipeline,
        schedule: Schedule,
        terms: Sequence[Any],
        alive: NDArray[np.bool_],
        known: dict[Any, Load],
    ) -> None:
        """*known* are loads that other schedules have in common with this one."""
        self.pipeline, self.schedule = pipeline, schedule
        m = np.broadcast_to(np.asarray(pipeline.micro_batches, dtype=np.float64), alive.shape)
        self.plan = _Sketched.of(schedule, pipeline, int(m[alive].max()))
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
                known[key] = load(works, x, split=split)
            by_kind[x] = known[key]
        by_stage = [by_kind[x] for x in alike]
        paired = Paired(self.plan, works, by_stage)
        self.loads = [by_stage[x] for x in self.plan.stage]
        passes = {x: _passes(by_kind[x].seconds) for x in by_kind}
        forward, backward, weights = zip(*(passes[x] for x in alike), strict=True)
        self.times = Times(forward, backward, weights, paired.seconds)
        self.hop: Hop = 0.0
        for edge in (t for t in terms if isinstance(t, Edge)):
            self.hop = slower(self.hop, tuple(edge.boundaries) or edge.seconds)
        self.kinds = [alike[x] for x in self.plan.stage]

    def step(self) -> tuple[Any, Any]:
        """Return seconds of the step or less, and where they are exact."""
        timeline, exact = self._timeline()
        run = Pipelined(
            plan=self.plan,
            loads=self.loads,
            kinds=self.kinds,
            times=self.times,
            hop=self.hop,
            timeline=timeline,
        )
        terms = {when: [t for t in self.onces if t.when == when] for when in WHENS}
        seconds = timeline.seconds
        if timeline.starts:
            fill, drain = Grouped(terms["fill"], run), Grouped(terms["drain"], run)
            later, in_time = fill.released()
            exact = exact & in_time
            moved = Timeline(
                seconds=timeline.seconds + later,
                starts=(),
                ends=[end + later for end in timeline.ends],
            )
            seconds = moved.seconds + drain.outlasts(fill, moved)
        else:
            exact = exact & (not terms["fill"] and not terms["drain"])
        seconds = seconds + Grouped(terms["end"], run).longest()
        return seconds, exact

    def _timeline(self) -> tuple[Timeline, Mask]:
        """Return the makespan, exactly or from below, with the spans where all are exact."""
        p, m, v = self.pipeline.stages, self.pipeline.micro_batches, self.pipeline.chunks
        closed = getattr(self.schedule, "closed_form", None)
        spans = getattr(self.schedule, "spans", None)
        by_boundary = getattr(self.schedule, "hop_by_boundary", False)
        uneven = isinstance(self.hop, tuple) and not by_boundary
        if closed is None or uneven or self.pipeline.blocking:
            return Timeline(seconds=self._bound(), starts=(), ends=()), False
        seconds, mask = closed(self.times, self.hop, p, m, v)
        if spans is None:
            return Timeline(seconds=self._mixed(seconds, mask), starts=(), ends=()), mask
        starts, ends = spans(self.times, self.hop, p, m, v)
        if mask is True or np.all(mask):
            return Timeline(seconds=seconds, starts=starts, ends=ends), True
        return Timeline(seconds=self._mixed(seconds, mask), starts=(), ends=()), False

    def _mixed(self, seconds: Real, mask: Mask) -> Real:
        if mask is True or np.all(mask):
            return seconds
        mixed: Real = np.where(mask, seconds, self._bound())
        return mixed

    def _bound(self) -> Real:
        return lower_bound(self.plan, self.times, self.hop, self.pipeline.micro_batches)

    def fullest(self, terms: Sequence[Memory]) -> Real:
        """Return the bytes of the fullest device."""
        ((_, drawn),) = self.plan.orders
        m = self.pipeline.micro_batches
        held = Held(terms, self.plan, most=m, grown=drawn.grows)  # type: ignore[attr-defined]
        return reduce(maximum, (b for d in range(len(self.plan.held)) for b in held.moments(d)))


def _passes(seconds: Any) -> tuple[Real, Real, Real]:
    return seconds["F"], seconds["R"] + seconds["B"], seconds["W"]


class _Sketched(Plan):
    """A plan whose order is sketched, and holds for every number of micro-batches."""

    @classmethod
    def of(cls, schedule: Schedule, pipeline: Pipeline, most: int) -> _Sketched:
        """Return the plan where up to *most* micro-batches occur."""
        p, v = pipeline.stages, pipeline.chunks
        known: Any = schedule
        drawn = sketch(known, p, settled(schedule, p, v, most), v)
        plan = object.__new__(cls)
        object.__setattr__(plan, "schedule", schedule)
        object.__setattr__(
            plan, "pipeline", evolve(pipeline, micro_batches=float(drawn.micro_batches))
        )
        object.__setattr__(plan, "orders", [(float(drawn.micro_batches), drawn)])
        return plan
