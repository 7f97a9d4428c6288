"""Query plugins for all layouts of a group of structures; a subset of the terms bounds them first.

Where such a bound is not enough, all of them are asked. Answers that have read no number of
stages are arrays answers the points of all structures; others are asked for one by one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from attrs import evolve, frozen

from parcost.contract.pipelines import Pipeline
from parcost.contract.plugin import Fault
from parcost.contract.queries import key_of
from parcost.contract.searches import Limit, Objective
from parcost.contract.study import Schedule
from parcost.contract.terms import Edge, StageCounts, Work
from parcost.engine.reduce import term_problem
from parcost.engine.schedule_calls import schedule_blame
from parcost.engine.shapes import fits_points, rooms_of
from parcost.engine.study import plain_first
from parcost.records import replace_values
from parcost.search.axis_kinds import PROBES
from parcost.search.failures import objective_of
from parcost.search.result import spec_text
from parcost.search.space import Structure, StructureGroup
from parcost.search.term_arrays import (
    Windows,
    at,
    at_points,
    merge_terms,
    stack_terms,
    terms_under,
    windows,
)
from parcost.search.timing import ScheduleTimes

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from parcost.contract.plugin import Plugin
    from parcost.numeric import Real
    from parcost.search.variants import Contribution, VariantAnswers, Variants


_SIZES = ("capacities", "usable_memory")  # hooks whose answers are numbers
_SHARE = 0.75  # of the work, that a first bound has at least


@frozen(kw_only=True, eq=False)
class Judge:
    """What layouts of a structure are judged by: sizes in bytes, goals and objectives."""

    rooms: Sequence[Any]
    usable: Sequence[Any]
    limits: Sequence[Limit]
    objectives: Mapping[str, Objective]
    structure: Structure

    def objective(self, name: str) -> Objective:
        """Return the objective of that name.

        Raises:
            SpecError: There is none.
        """
        return self.objectives.get(name) or objective_of(self.structure.study, name)


@frozen(kw_only=True, eq=False)
class ScoredLayouts:
    """The layouts of one structure under one schedule: arrays that broadcast to the space.

    *seconds* is the step or, where not *exact*, no more than it; *least* is what a first bound
    says of it. The schedule is one of the values of the choice in position *choice*, if it is
    chosen at all: the one in position *index*. *place* is that of the structure in its group.
    """

    structure: Structure
    place: int
    judge: Judge
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


def values_at(scored: ScoredLayouts, index: Sequence[int]) -> dict[str, Any]:
    """Return the values of a layout by attribute, in the notation of the language."""
    structure = scored.structure
    values = {name: spec_text(value) for name, value in structure.values.items()}
    for name, numbers in structure.degrees.items():
        number = float(numbers[index[-1]])
        values[name] = int(number) if number.is_integer() else number
    for k, choice in enumerate(structure.choices):
        at = scored.index if k == scored.choice else index[k]
        values[choice.name] = spec_text(choice.values[at])
    return values


@frozen(kw_only=True, eq=False)
class _Answers:
    """What a plugin answers: the same for all structures, or by structure if that is None."""

    shared: VariantAnswers | None
    own: Sequence[VariantAnswers] = ()

    @property
    def every(self) -> Sequence[VariantAnswers]:
        """All answers."""
        return self.own if self.shared is None else [self.shared]

    @property
    def read(self) -> frozenset[int]:
        """The choices that any answer depends on."""
        return frozenset(k for read, _ in self.every for k in read)


class _GroupAnswers:
    """The answers of plugins to hooks for all structures of a group, where layouts are legal."""

    def __init__(self, group: StructureGroup, legal: Sequence[NDArray[np.bool_]]) -> None:
        """*legal* has, for each structure, a dimension for each choice."""
        self.group, self.variants, self._own = group, group.variants, legal
        self._any: NDArray[np.bool_] = np.any(legal, axis=0)

    def answers_to(self, hook: str) -> Sequence[_Answers]:
        """Return the answers of all plugins."""
        return [self.of(hook, i) for i in range(self.variants.plugins(hook))]

    def of(self, hook: str, position: int) -> _Answers:
        """Return the answers of one plugin in all legal variants."""
        shared = self.variants.common_answers(hook, position, self._any)
        if shared is not None:
            return _Answers(shared=shared)
        pairs = zip(self.group.structures, self._own, strict=True)
        own = [s.variants.plugin_answers(hook, position, occurs) for s, occurs in pairs]
        return _Answers(shared=None, own=own)

    def one(self, position: int) -> tuple[Contribution, frozenset[int]]:
        """Return the terms of a plugin in some legal variant, and the choices that it read."""
        found = self.variants.common_answer("terms", position, self._any)
        if found is not None:
            return found
        return self.group.structures[0].variants.one("terms", position, self._own[0])


class _Table:
    """The terms of some plugins: those that all structures share, and those of each."""

    def __init__(self, group: StructureGroup, answers: Iterable[_Answers], hosts: Windows) -> None:
        shape, answers = group.variants.shape, list(answers)
        self._slices = group.slices if len(group.structures) > 1 else None
        self._shared = stack_terms(
            (a.shared for a in answers if a.shared is not None), shape, hosts
        )
        self._own = [
            stack_terms((a.own[place] for a in answers if a.shared is None), shape, hosts)
            for place in range(len(group.structures))
        ]

    def at(self, place: int, points: NDArray[np.intp] | None = None) -> list[tuple[Plugin, Any]]:
        """Return the terms of one structure, at some of its points if not at all."""
        own = self._own[place]
        if self._slices is None:
            every = [*self._shared, *own]
            return every if points is None else at(every, points)
        span = self._slices[place]
        if points is None:
            return [*at(self._shared, span), *own]
        return [*at(self._shared, points + span.start), *at(own, points)]


class Scores:
    """The layouts of a group of structures: bounded first, and scored where that is too low.

    An additional term never shortens a step. So a first bound takes the terms of few plugins: the
    one with most of the work, and those that depend on the same choices only. They are arrays over
    these choices alone, and hold for all layouts that differ in others.
    """

    def __init__(self, group: StructureGroup, few: Sequence[int] = ()) -> None:
        """*few* are plugins to bound by, by position, as another group has found them."""
        self.group = group
        self._variants = group.variants
        self._slices = group.slices if len(group.structures) > 1 else None
        legal = [np.any(structure.legal, axis=-1) for structure in group.structures]
        answers = _GroupAnswers(group, legal)
        self._memory = _Table(group, answers.answers_to("memory"), Windows())
        self._cuts = answers.answers_to("pipelines")
        self._choice = _scheduling(self._variants, self._cuts)
        self._answers = {hook: self._answers_of_probe(answers, hook) for hook in PROBES}
        self.few = few or self._common(answers)
        first = [answers.of("terms", i) for i in self.few]
        self._hosts = windows(one for asked in first for one in asked.every)
        self._first = _Table(group, first, self._hosts)
        self._bytes: dict[tuple[int, int], Any] = {}
        self._least: dict[tuple[int, int], Any] = {}
        self._rows: dict[Any, Any] = {}
        self._variants.forget()

    def bound_layouts(self) -> Iterator[ScoredLayouts]:
        """Yield all layouts, by structure and schedule, with what few of their terms come to."""
        schedules = range(self._variants.shape[self._choice] if self._choice is not None else 1)
        for place, structure in enumerate(self.group.structures):
            wanted: dict[int, Any] = dict.fromkeys(schedules, True)
            terms, memory = self._first.at(place), self._memory.at(place)
            steady: dict[Any, Sequence[Real]] = {}
            for scored, timed in self._schedule_times(
                place, structure, None, terms, memory, wanted, self._hosts
            ):
                with schedule_blame(structure.study, scored.pipeline.schedule):
                    bytes_ = timed.peak_memory([m for _, m in scored.memory], steady)
                    seconds = timed.minimum_seconds()
                self._bytes[place, scored.index], self._least[place, scored.index] = bytes_, seconds
                self._note(timed)
                yield evolve(scored, seconds=seconds, bytes_=bytes_)

    def _schedule_times(
        self,
        place: int,
        structure: Structure,
        points: NDArray[np.intp] | None,
        terms: Sequence[tuple[Plugin, Any]],
        memory: Sequence[tuple[Plugin, Any]],
        wanted: Mapping[int, Any],
        hosts: Windows,
    ) -> Iterator[tuple[ScoredLayouts, ScheduleTimes]]:
        """Yield layouts without their seconds by schedule, and what times them."""
        judge = self._judge(structure, place, points)
        known: dict[Any, Any] = {}
        for index, which in wanted.items():
            legal = self.under(structure.legal, index) & which
            if not legal.any():
                continue
            here = self._under(place, index, "terms", terms, hosts)
            held = self._under(place, index, "memory", memory, Windows())
            pipeline, schedule = self._pipeline(place, index), self._schedule(place, index)
            if points is not None:
                pipeline = evolve(pipeline, micro_batches=at_points(pipeline.micro_batches, points))
            with schedule_blame(structure.study, pipeline.schedule):
                timed = ScheduleTimes(pipeline, schedule, [t for _, t in here], legal, known)
            layouts = ScoredLayouts(
                structure=structure,
                place=place,
                judge=judge,
                schedule=schedule,
                choice=self._choice,
                index=index,
                pipeline=pipeline,
                terms=here,
                memory=held,
                legal=legal,
                seconds=0.0,
                exact=False,
                bytes_=0.0,
            )
            yield layouts, timed

    def part(
        self, kept: Mapping[int, NDArray[np.intp]], wanted: Mapping[tuple[int, int], Any]
    ) -> ScoredPart:
        """Return points *kept* of the flat axis by structure, with the terms of all plugins.

        *wanted* is a mask of them by structure and position of the schedule, or true for all.
        """
        group = self.group.at(kept)
        occurs = []
        for place, structure in zip(kept, group.structures, strict=True):
            here = np.zeros(group.variants.shape, dtype=bool)
            for (owner, index), which in wanted.items():
                if owner == place:
                    legal = self.under(structure.legal, index) & which
                    self.under(here, index)[...] = legal.any(axis=-1)
            occurs.append(here)
        answers = _GroupAnswers(group, occurs).answers_to("terms")
        hosts = windows(one for asked in answers for one in asked.every)
        table = _Table(group, answers, hosts)
        group.forget()
        return ScoredPart(self, kept, table, hosts)

    def score(
        self,
        place: int,
        points: NDArray[np.intp],
        terms: Sequence[tuple[Plugin, Any]],
        wanted: Mapping[int, Any],
        hosts: Windows,
    ) -> Iterator[ScoredLayouts]:
        """Yield layouts at *points* of a structure, by schedule, scored by all *terms*."""
        structure = self.group.structures[place].at(points)
        memory = self._memory.at(place, points)
        for scored, timed in self._schedule_times(
            place, structure, points, terms, memory, wanted, hosts
        ):
            with schedule_blame(structure.study, scored.pipeline.schedule):
                seconds, exact = timed.step()
            self._note(timed)
            bytes_, least = self._bytes[place, scored.index], self._least[place, scored.index]
            yield evolve(
                scored,
                seconds=seconds,
                exact=exact,
                bytes_=at_points(bytes_, points),
                least=at_points(least, points),
            )

    def _answers_of_probe(self, answers: _GroupAnswers, hook: str) -> Sequence[_Answers]:
        """Return the answers to *hook*, which have to be the same under all choices."""
        found = answers.answers_to(hook)
        for one in found:
            for reads, by_part in one.every:
                several = {key_of(PROBES[hook](x)) for a in by_part.values() for _, x in a}
                differ = len(several) > max(len(a) for a in by_part.values())
                self._variants.refuse(reads if differ else (), hook)
        return found

    def _common(self, answers: _GroupAnswers) -> Sequence[int]:
        """Return the plugins that a first bound is made of, by position."""
        first = [answers.one(i) for i in range(self._variants.plugins("terms"))]
        works = [_seconds(answer) for answer, _ in first]
        reads = {self._choice}
        found = 0.0
        for i in np.argsort(works)[::-1]:
            if found < _SHARE * sum(works):
                reads |= first[i][1]
                found += works[i]
        return [i for i, (_, read) in enumerate(first) if read <= reads]

    def _judge(self, structure: Structure, place: int, kept: NDArray[np.intp] | None) -> Judge:
        """Return what layouts of a structure are judged by, at points *kept* if not at all."""
        found: dict[str, list[Any]] = {}
        for hook, asked in self._answers.items():
            shared = [a.shared for a in asked if a.shared is not None]
            items = [x for _, by_part in shared for _, x in next(iter(by_part.values()))]
            arrays = any(_varies(hook, item) for item in items)
            fits = hook not in _SIZES or all(fits_points(x, self._variants.count) for x in items)
            if hook in _SIZES and (len(shared) < len(asked) or not fits):
                items = list(rooms_of(structure.variants.base, self._variants.faults, hook))
            elif len(shared) < len(asked) or arrays:
                items = [x for _, x in structure.variants.base.contributions(hook)]
            elif hook in _SIZES:
                items = [at_points(x, self.group.slices[place]) for x in items]
                items = items if kept is None else [at_points(x, kept) for x in items]
            found[hook] = items
        return Judge(
            rooms=found["capacities"],
            usable=found["usable_memory"],
            limits=[limit for goal in found["search_goals"] for limit in goal.limits],
            objectives={o.name: o for o in found["objectives"]},
            structure=structure,
        )

    def _pipeline(self, place: int, index: int) -> Pipeline:
        where, span = self._where(index), self.group.slices[place]
        shared = [a.shared for a in self._cuts if a.shared is not None]
        found = [x for read, by in shared for _, x in by[tuple(where[k] for k in read)]]
        if len(shared) < len(self._cuts) or len(found) != 1:
            return self.group.structures[place].variants.at(where).pipeline
        cut: Pipeline = found[0]
        return evolve(
            cut,
            stages=int(plain_first(at_points(cut.stages, span))),
            chunks=int(plain_first(at_points(cut.chunks, span))),
            micro_batches=at_points(cut.micro_batches, span),
        )

    def _schedule(self, place: int, index: int) -> Schedule:
        schedule, reads = self.group.structures[place].variants.schedule(self._where(index))
        self._variants.refuse(reads - {self._choice}, "schedule")
        return schedule

    def _where(self, index: int) -> tuple[int, ...]:
        """Return a combination under the schedule in position *index*."""
        combination = [0] * len(self._variants.shape)
        if self._choice is not None:
            combination[self._choice] = index
        return tuple(combination)

    def under(self, which: NDArray[np.bool_], index: int) -> NDArray[np.bool_]:
        """Return what an array over the choices holds under the schedule in position *index*."""
        if self._choice is None:
            return which
        return which[(slice(None),) * self._choice + (slice(index, index + 1),)]

    def _under(
        self,
        place: int,
        index: int,
        hook: str,
        terms: Sequence[tuple[Plugin, Any]],
        hosts: Windows,
    ) -> Sequence[tuple[Plugin, Any]]:
        """Return the terms of a structure under one schedule, with counts by virtual stage."""
        if self._choice is not None:
            terms = terms_under(terms, self._choice, index)
        found: list[tuple[Plugin, Any]] = []
        for plugin, term in terms:
            if getattr(term, "count", None).__class__ is StageCounts:
                found += self._by_stage(place, index, hook, plugin, term)
            elif isinstance(term, Edge) and self._slices is not None:
                found += _between(plugin, term, self._pipeline(place, index).stages)
            else:
                found.append((plugin, term))
        return merge_terms(found, hosts)

    def _by_stage(
        self, place: int, index: int, hook: str, plugin: Plugin, term: Any
    ) -> Iterator[tuple[Plugin, Any]]:
        """Yield a term that is counted by row, once for each of the counts that choices make."""
        key = (place, index, hook, plugin.name, term.count)
        if key not in self._rows:
            self._rows[key] = self._counts(place, index, hook, plugin, term)
        for count, mask in self._rows[key]:
            if mask is None:
                yield plugin, replace_values(term, {"count": count})
            else:
                names = ("bytes_", "of_activations") if hook == "memory" else ("seconds",)
                amounts = {name: np.where(mask, getattr(term, name), 0.0) for name in names}
                yield plugin, replace_values(term, {"count": count, **amounts})

    def _counts(
        self, place: int, index: int, hook: str, plugin: Plugin, term: Any
    ) -> Sequence[tuple[Any, NDArray[np.bool_] | None]]:
        """Return the counts of a row and, where choices decide them, under which each holds."""
        variants = self.group.structures[place].variants
        by_part, read = variants.counts((plugin, term), hook, self._where(index), self._choice)
        pipeline = self._pipeline(place, index)
        found: dict[Any, NDArray[np.bool_]] = {}
        shape = [n if k in read else 1 for k, n in enumerate(variants.shape)]
        for part, count in by_part.items():
            if count is None:
                continue
            complaint = term_problem(
                evolve(term, count=count), pipeline.stages, pipeline.stages * pipeline.chunks
            )
            if complaint:
                fault = Fault(plugin=plugin, hook=hook, message=complaint)
                variants.faults.append(fault)
                continue
            mask = found.setdefault(count, np.zeros((*shape, 1), dtype=bool))
            where = [0] * len(shape)
            for k, i in zip(read, part, strict=True):
                where[k] = i
            mask[tuple(where)] = True
        return [
            (count, None if mask.all() else mask) for count, mask in found.items() if _occurs(count)
        ]

    def _note(self, timed: ScheduleTimes) -> None:
        """Note where the schedule says what is no number: a bound of 0 stands for that."""
        if timed.unsaid:
            message = f"{timed.unsaid} of schedule `{timed.schedule.name}` is no number for some "
            blame(self._variants, timed.pipeline, message + "layouts")


class ScoredPart:
    """Some points of the structures of a group, with the terms of all plugins."""

    def __init__(
        self, scores: Scores, kept: Mapping[int, NDArray[np.intp]], table: _Table, hosts: Windows
    ) -> None:
        self._scores, self._kept, self._table, self._hosts = scores, kept, table, hosts
        self._number = {place: number for number, place in enumerate(kept)}

    def score_layouts(
        self, place: int, which: NDArray[np.intp], wanted: Mapping[int, Any]
    ) -> Iterator[ScoredLayouts]:
        """Yield the layouts of a structure, by schedule, at the points in positions *which*.

        *wanted* is a mask of them by position of the schedule, or true for all.
        """
        terms = self._table.at(self._number[place], which)
        terms.sort(key=lambda pair: pair[0].name)  # as plugins are asked: terms share names
        points = self._kept[place][which]
        return self._scores.score(place, points, terms, wanted, self._hosts)


def _occurs(count: Any) -> bool:
    """Return whether what is counted so is on any virtual stage."""
    return any(count) if isinstance(count, (tuple, list)) else bool(count)


def _between(plugin: Plugin, edge: Edge, stages: int) -> Iterator[tuple[Plugin, Any]]:
    """Yield a message between so many devices, whose boundaries are alike if that is so."""
    if stages > 1:
        boundaries = edge.boundaries[: stages - 1]
        alike = all(np.array_equal(seconds, edge.seconds) for seconds in boundaries)
        yield plugin, evolve(edge, boundaries=() if alike else boundaries)


def _varies(hook: str, item: Any) -> bool:
    """Return whether a goal or an objective holds arrays answers the points of its study."""
    if hook == "search_goals":
        return any(np.ndim(limit.holds(1.0, 1.0)) > 0 for limit in item.limits)
    return hook == "objectives" and np.ndim(item.value(item.cost(1.0))) > 0


def blame(variants: Variants, pipeline: Pipeline, message: str) -> None:
    """Record, once, an error in the schedule of *pipeline*."""
    plugin = variants.base.plugins.offers("schedules")[pipeline.schedule][0]
    if all((f.plugin, f.message) != (plugin, message) for f in variants.faults):
        variants.faults.append(Fault(plugin=plugin, hook="schedules", message=message))


def doubt(scored: ScoredLayouts) -> None:
    """Note that layouts take less than their score, which ruled others out."""
    schedule = scored.schedule
    kind = type(schedule)
    methods = ["`closed_form`"] * (kind.closed_form is not Schedule.closed_form)
    methods += ["`lower_bound`"] * (kind.lower_bound is not Schedule.lower_bound)
    said = " or ".join(methods) or "the bound of its order"
    message = f"a step by schedule `{schedule.name}` takes less time than {said} says"
    blame(scored.structure.variants, scored.pipeline, message)


def score(group: StructureGroup) -> Iterator[ScoredLayouts]:
    """Yield the layouts of *group*, by structure and schedule, all of them scored."""
    scores = Scores(group)
    wanted = {(bound.place, bound.index): True for bound in scores.bound_layouts()}
    kept = {i: np.arange(s.legal.shape[-1]) for i, s in enumerate(group.structures)}
    part = scores.part(kept, wanted)
    for place, points in kept.items():
        own = {index: which for (owner, index), which in wanted.items() if owner == place}
        yield from part.score_layouts(place, points, own)


def _seconds(answer: Contribution) -> float:
    """Return about how many seconds of work a plugin contributes."""
    works = [term for _, term in answer if isinstance(term, Work)]
    return float(sum(np.mean(work.seconds) * np.sum(work.count) for work in works))


def _scheduling(variants: Variants, cuts: Sequence[_Answers]) -> int | None:
    """Return which choice is that of the schedule: the one that the pipeline reads."""
    read = {k for answers in cuts for k in answers.read}
    several = sorted(k for k in read if variants.shape[k] > 1)  # the rest decides nothing
    variants.refuse(several[1:], "pipeline")
    return several[0] if several else None
