"""Every layout of a structure, timed at once: exactly where a closed form is proven.

Where the schedule has none, the step is a bound from below: that of the schedule, what
gathers and reductions add to it at least, and what comes once at the end. Memory is
that of the schedule's order for as many micro-batches as change it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import reduce
from math import inf
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from attrs import evolve, frozen

from parcost.evaluation.bounds import ends, lower_bound
from parcost.evaluation.memory import Held
from parcost.evaluation.once import WHENS, Grouped, Pipelined, When
from parcost.evaluation.pairs import Paired
from parcost.evaluation.replay import Hop, Plan, Timeline, hops_of, slower
from parcost.evaluation.said import blamed, closed_form, spans
from parcost.evaluation.work import PASSES, Load, kinds, load
from parcost.numeric import maximum
from parcost.outcome import Fault
from parcost.search.apart import PROBES
from parcost.search.found import spelled
from parcost.search.sketch import Sketch, settled, sketch
from parcost.search.space import Structure
from parcost.search.stack import at, at_points, stacked, under, windows
from parcost.study import key_of
from parcost.terms import Edge, Memory, Once, Pipeline, Schedule, Times, Work

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from parcost.numeric import Mask, Real
    from parcost.plugins import Plugin
    from parcost.search.variants import Answer, Asked, Variants


@frozen(kw_only=True, eq=False)
class Scored:
    """The layouts of one structure under one schedule: arrays that broadcast to the space.

    *seconds* is the step or, where not *exact*, no more than it; *least* is what a first bound
    says of it. The schedule is one of the values of the choice in position *choice*, if it is
    chosen at all: the one in position *index*.
    """

    structure: Structure
    schedule: Schedule
    choice: int | None
    index: int
    pipeline: Pipeline
    terms: Sequence[tuple[Plugin, Any]]
    memory: Sequence[tuple[Plugin, Any]]
    legal: NDArray[np.bool_]
    seconds: Any
    exact: Any
    bytes_: Any
    least: Any = 0.0


def values_at(scored: Scored, index: Sequence[int]) -> dict[str, Any]:
    """Return the values of a layout by attribute, as the language spells them."""
    structure = scored.structure
    values = {name: spelled(value) for name, value in structure.values.items()}
    for name, numbers in structure.degrees.items():
        number = float(numbers[index[-1]])
        values[name] = int(number) if number.is_integer() else number
    for k, choice in enumerate(structure.variants.choices):
        at = scored.index if k == scored.choice else index[k]
        values[choice.name] = spelled(choice.values[at])
    return values


class Scores:
    """The layouts of a structure: bounded at first, and scored where that is not enough.

    A step never gets shorter by a term that is added. So a first bound takes the terms of
    few plugins: the one that the step owes most of its work, and those that depend on no
    other choices than that one does. They are arrays over these choices alone, and answer
    for all layouts that differ in others.
    """

    def __init__(self, structure: Structure, few: Sequence[int] = ()) -> None:
        """*few* are plugins to bound by, by position, as another structure has found them."""
        self.structure = structure
        self._variants, self._legal = structure.variants, structure.legal
        self._occurs: NDArray[np.bool_] = np.any(self._legal, axis=-1)
        memory = self._variants.over("memory", self._occurs)
        self._memory = stacked(memory, self._variants.shape, frozenset())
        self._choice = _scheduling(self._variants, self._occurs)
        for hook, probe in PROBES.items():
            for reads, answers in self._variants.over(hook, self._occurs):
                found = {key_of(probe(x)) for a in answers.values() for _, x in a.contributed}
                several = len(found) > max(len(a.contributed) for a in answers.values())
                self._variants.refuse(reads if several else (), hook)
        self._few = self._common(few)
        self._bytes: dict[int, Any] = {}
        self._least: dict[int, Any] = {}
        self._stacked: dict[frozenset[str], Sequence[tuple[Plugin, Any]]] = {}

    @property
    def few(self) -> Sequence[int]:
        """The plugins that a first bound is made of, by position: the most work comes first."""
        return list(self._few)

    def bounded(self) -> Iterator[Scored]:
        """Yield all layouts, by schedule, with what few of their terms come to."""
        terms = self._of_few(windows(self._few.values()))
        known: dict[Any, Load] = {}
        steady: dict[Any, Sequence[Real]] = {}
        for index in range(self._variants.shape[self._choice] if self._choice is not None else 1):
            legal = self._part(self._legal, index)
            if not legal.any():
                continue
            here, memory = self._under(index, terms, self._memory)
            pipeline = self._pipeline(index)
            with blamed(self._variants.base, pipeline.schedule):
                timed = self._timed(index, pipeline, here, legal, known)
                bytes_ = self._bytes[index] = timed.fullest([m for _, m in memory], steady)
                seconds = self._least[index] = timed.least()
            self._note(timed)
            yield Scored(
                structure=self.structure,
                schedule=self._schedule(index),
                choice=self._choice,
                index=index,
                pipeline=pipeline,
                terms=here,
                memory=memory,
                legal=legal,
                seconds=seconds,
                exact=False,
                bytes_=bytes_,
            )

    def scored(self, kept: NDArray[np.intp], wanted: Mapping[int, Any]) -> Iterator[Scored]:
        """Yield layouts at points *kept* of the flat axis, by schedule: those that are *wanted*.

        That says which layouts, of those points, by the position of the schedule.
        """
        structure = self.structure.at(kept)
        variants = structure.variants
        legal = {i: self._part(structure.legal, i) & which for i, which in wanted.items()}
        occurs = np.zeros(variants.shape, dtype=bool)
        for index, which in legal.items():
            self._part(occurs, index)[...] = which.any(axis=-1)
        rest = [i for i in range(variants.plugins("terms")) if i not in self._few]
        asked = [variants.asked("terms", i, occurs) for i in rest]
        hosts = windows([*self._few.values(), *asked])
        terms = [*at(self._of_few(hosts), kept), *stacked(asked, variants.shape, hosts)]
        memory = at(self._memory, kept)
        known: dict[Any, Load] = {}
        for index, which in legal.items():
            if not which.any():
                continue
            here, held = self._under(index, terms, memory)
            whole = self._pipeline(index)
            pipeline = evolve(whole, micro_batches=at_points(whole.micro_batches, kept))
            with blamed(self._variants.base, pipeline.schedule):
                timed = self._timed(index, pipeline, here, which, known)
                seconds, exact = timed.step()
            self._note(timed)
            yield Scored(
                structure=structure,
                schedule=self._schedule(index),
                choice=self._choice,
                index=index,
                pipeline=pipeline,
                terms=here,
                memory=held,
                legal=which,
                seconds=seconds,
                exact=exact,
                bytes_=at_points(self._bytes[index], kept),
                least=at_points(self._least[index], kept),
            )
        variants.forget()

    def _common(self, few: Sequence[int]) -> dict[int, Asked]:
        """Return the answers, by position of the plugin, that a first bound is made of."""
        variants, legal = self._variants, self._occurs
        if not few:
            first = [variants.one("terms", i, legal) for i in range(variants.plugins("terms"))]
            works = [_seconds(answer) for answer, _ in first]
            most = int(np.argmax(works))
            wanted = {*variants.asked("terms", most, legal)[0], self._choice}
            few = [
                most,
                *(i for i, (_, reads) in enumerate(first) if reads <= wanted and i != most),
            ]
        found = {i: variants.asked("terms", i, legal) for i in few}
        wanted = {*found[few[0]][0], self._choice}
        return {i: asked for i, asked in found.items() if wanted.issuperset(asked[0])}

    def _of_few(self, hosts: frozenset[str]) -> Sequence[tuple[Plugin, Any]]:
        """Return the terms of the first bound, where these windows have guests."""
        if hosts not in self._stacked:
            self._stacked[hosts] = stacked(self._few.values(), self._variants.shape, hosts)
        return self._stacked[hosts]

    def _pipeline(self, index: int) -> Pipeline:
        return self._variants.at(self._where(index)).pipeline

    def _schedule(self, index: int) -> Schedule:
        schedule, reads = self._variants.schedule(self._where(index))
        self._variants.refuse(reads - {self._choice}, "schedule")
        return schedule

    def _where(self, index: int) -> tuple[int, ...]:
        """Return a combination under the schedule in position *index*."""
        combination = [0] * len(self._variants.shape)
        if self._choice is not None:
            combination[self._choice] = index
        return tuple(combination)

    def _part(self, which: NDArray[np.bool_], index: int) -> NDArray[np.bool_]:
        """Return what an array over the choices holds under the schedule in position *index*."""
        if self._choice is None:
            return which
        return which[(slice(None),) * self._choice + (slice(index, index + 1),)]

    def _under(
        self, index: int, terms: Sequence[tuple[Plugin, Any]], memory: Sequence[tuple[Plugin, Any]]
    ) -> tuple[Sequence[tuple[Plugin, Any]], Sequence[tuple[Plugin, Any]]]:
        if self._choice is None:
            return terms, memory
        return under(terms, self._choice, index), under(memory, self._choice, index)

    def _timed(
        self,
        index: int,
        pipeline: Pipeline,
        terms: Sequence[tuple[Plugin, Any]],
        legal: NDArray[np.bool_],
        known: dict[Any, Load],
    ) -> _Timed:
        return _Timed(pipeline, self._schedule(index), [t for _, t in terms], legal, known)

    def _note(self, timed: _Timed) -> None:
        """Note where the schedule says what is no number: a bound of 0 stands for that."""
        if not timed.unsaid:
            return
        name, base = timed.schedule.name, self._variants.base
        message = f"{timed.unsaid} of schedule `{name}` is no number for some layouts"
        plugin = base.plugins.named("schedules")[timed.pipeline.schedule][0]
        if all((f.plugin, f.message) != (plugin, message) for f in self._variants.faults):
            fault = Fault(plugin=plugin, hook="schedules", message=message)
            self._variants.faults.append(fault)


def score(structure: Structure) -> Iterator[Scored]:
    """Yield the layouts of *structure*, by schedule, all of them scored."""
    scores = Scores(structure)
    wanted = {bound.index: True for bound in scores.bounded()}
    return scores.scored(np.arange(structure.legal.shape[-1]), wanted)


def _seconds(answer: Answer) -> float:
    """Return about how many seconds of work a plugin contributes."""
    works = [term for _, term in answer.contributed if isinstance(term, Work)]
    return float(sum(np.mean(work.seconds) * np.sum(work.count) for work in works))


def _scheduling(variants: Variants, legal: NDArray[np.bool_]) -> int | None:
    """Return which choice is that of the schedule: the one that the pipeline reads."""
    read = {k for reads, _ in variants.over("pipelines", legal) for k in reads}
    several = sorted(k for k in read if variants.shape[k] > 1)  # the rest decides nothing
    variants.refuse(several[1:], "pipeline")
    return several[0] if several else None


class _Timed:
    """The terms of a schedule, with a dimension for each choice."""

    def __init__(
        self,
        pipeline: Pipeline,
        schedule: Schedule,
        terms: Sequence[Any],
        legal: NDArray[np.bool_],
        known: dict[Any, Load],
    ) -> None:
        """*known* are loads that other schedules have in common with this one.

        *unsaid* are methods of the schedule that return what is no number for legal layouts.
        """
        self.pipeline, self.schedule, self.legal = pipeline, schedule, legal
        self.unsaid = ""
        alive = np.atleast_1d(legal.reshape(-1, legal.shape[-1]).any(axis=0))
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

    def least(self) -> Real:
        """Return seconds that the step is never below, with whatever terms there are besides."""
        timeline, _ = self._timeline()
        return timeline.seconds + Grouped(self._onces("end"), self._run(timeline)).longest()

    def step(self) -> tuple[Any, Any]:
        """Return seconds of the step or less, and where they are exact."""
        timeline, exact = self._timeline()
        run = self._run(timeline)
        terms = {when: self._onces(when) for when in WHENS}
        seconds = timeline.seconds
        if timeline.starts:
            fill, drain = Grouped(terms["fill"], run), Grouped(terms["drain"], run)
            later, in_time = fill.released()
            exact = exact & in_time
            first = fill.stages[0].exposed if fill.terms else 0.0  # which all passes wait for
            moved = Timeline(
                seconds=timeline.seconds + later,
                starts=(),
                ends=[end + first for end in timeline.ends],
            )
            seconds = moved.seconds + drain.outlasts(fill, moved)
        elif terms["fill"] or terms["drain"]:
            seconds, exact = self._between(terms["fill"], terms["drain"], run), False
        seconds = seconds + Grouped(terms["end"], run).longest()
        return seconds, exact

    def _between(self, fill: Sequence[Once], drain: Sequence[Once], run: Pipelined) -> Real:
        """Return seconds that a pipeline of unknown spans takes at least, with what is beside it.

        All passes wait for the first stage, and a device that is done has its last stage left.
        """
        seconds = run.timeline.seconds
        if drain:
            stages = Grouped(drain, run).stages
            for end, k in zip(
                ends(self.plan, self.times, self.pipeline.micro_batches),
                self.plan.drawn.final,
                strict=True,
            ):
                seconds = maximum(seconds, end + stages[k].exposed)
        return seconds + Grouped(fill, run).stages[0].exposed if fill else seconds

    def _run(self, timeline: Timeline) -> Pipelined:
        return Pipelined(
            plan=self.plan,
            loads=self.loads,
            kinds=self.kinds,
            times=self.times,
            hop=self.hop,
            timeline=timeline,
        )

    def _onces(self, when: When) -> Sequence[Once]:
        return [term for term in self.onces if term.when == when]

    def _timeline(self) -> tuple[Timeline, Mask]:
        """Return the makespan, exactly or from below, with the spans where all are exact."""
        schedule = self.schedule
        closed = getattr(schedule, "closed_form", None) is not None
        by_boundary = getattr(schedule, "hop_by_boundary", False)
        uneven = isinstance(self.hop, tuple) and not by_boundary
        if not closed or uneven or self.pipeline.blocking:
            return Timeline(seconds=self._bound(), starts=(), ends=()), False
        seconds, mask = closed_form(schedule, self._asked)
        if (known := self._known(seconds, "closed_form", mask)) is not True:
            mask = mask & known
        if getattr(schedule, "spans", None) is None:
            return Timeline(seconds=self._mixed(seconds, mask), starts=(), ends=()), mask
        if mask is True or np.all(mask):
            starts, ends = spans(schedule, self._asked)
            if all(self._known(value, "spans") is True for value in (*starts, *ends)):
                return Timeline(seconds=seconds, starts=starts, ends=ends), True
        return Timeline(seconds=self._mixed(seconds, mask), starts=(), ends=()), False

    @property
    def _asked(self) -> tuple[Times, Hop, int, Real, int]:
        """What the schedule is asked with."""
        p, m, v = self.pipeline.stages, self.pipeline.micro_batches, self.pipeline.chunks
        return self.times, self.hop, p, m, v

    def _mixed(self, seconds: Real, mask: Mask) -> Real:
        if mask is True or np.all(mask):
            return seconds
        mixed: Real = np.where(mask, seconds, self._bound())
        return mixed

    def _bound(self) -> Real:
        bound = lower_bound(self.plan, self.times, self.hop, self.pipeline.micro_batches)
        if (known := self._known(bound, "lower_bound")) is True:
            return bound
        least: Real = np.where(known, bound, np.where(self._ends(), 0.0, inf))
        return least

    def _known(self, value: Real, method: str, where: Mask = True) -> Mask:
        """Return where a method of the schedule returns a number.

        It is to blame at layouts that are legal and end: of no others is a number asked for.
        """
        unknown = np.isnan(value)
        if not unknown.any():
            return True
        if np.any(unknown & self._ends() & where & self.legal):
            self.unsaid = f"`{method}`"
        known: Mask = ~unknown
        return known

    def _ends(self) -> NDArray[np.bool_]:
        """Return which layouts end: others have a pass or a message that takes for ever."""
        sums = [*self.times.F, *self.times.B, *self.times.W, *hops_of(self.hop)]
        return np.isfinite(sum(sums, start=np.zeros(1)))

    def fullest(self, terms: Sequence[Memory], known: dict[Any, Sequence[Real]]) -> Real:
        """Return the bytes of the fullest device; *known* is what schedules have in common."""
        m, growing = self.pipeline.micro_batches, self.plan.drawn.growing
        held = Held(terms, self.plan, most=m, growing=growing, steady=known)
        return reduce(maximum, (b for d in self._unlike(held) for b in held.moments(d)))

    def _unlike(self, held: Held) -> Iterator[int]:
        """Yield the devices but for those that hold no more than one with the same stages."""
        order = self.plan.drawn
        first: dict[tuple[int, ...], list[Sequence[int]]] = {}
        for d, copies in enumerate(self.plan.held):
            ((at_f,), (at_b,)) = order.alive_forward[d], order.alive_backward[d]
            most = (*at_f.alive, *at_f.whole, *at_b.alive, *at_b.whole)
            others = first.setdefault(tuple(held.kinds[k] for k in copies), [])
            if not any(all(a >= b for a, b in zip(o, most, strict=True)) for o in others):
                others.append(most)
                yield d


def _passes(seconds: Any) -> tuple[Real, Real, Real]:
    return seconds["F"], seconds["R"] + seconds["B"], seconds["W"]


class _Sketched(Plan):
    """A plan whose order is sketched, and holds for every number of micro-batches."""

    @property
    def drawn(self) -> Sketch:
        """The sketch, which stands where a plan has orders."""
        ((_, drawn),) = self.orders
        return cast("Sketch", drawn)

    @classmethod
    def of(cls, schedule: Schedule, pipeline: Pipeline, most: int) -> _Sketched:
        """Return the plan where up to *most* micro-batches occur."""
        p, v = pipeline.stages, pipeline.chunks
        drawn = sketch(schedule, p, settled(schedule, p, v, most), v)
        plan = object.__new__(cls)
        object.__setattr__(plan, "schedule", schedule)
        object.__setattr__(
            plan, "pipeline", evolve(pipeline, micro_batches=float(drawn.micro_batches))
        )
        object.__setattr__(plan, "orders", [(float(drawn.micro_batches), drawn)])
        return plan
