"""Query plugins for all layouts of a group of structures; the first lower bounds are from serial
work.

If such a bound does not exclude a layout, all terms are used. An answer that does not depend on the
number of stages is an array over all structures; other answers are requested for each structure.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

import numpy as np
from attrs import evolve

from parcost.contract.counts import CountsByStructure, counts_at
from parcost.contract.pipelines import Pipeline
from parcost.contract.queries import key_of
from parcost.contract.study import Schedule
from parcost.contract.terms import Edge, Pass
from parcost.engine.schedule_calls import name_schedule_plugin
from parcost.engine.shapes import fits_shape, memory_limits_of
from parcost.records import replace_values
from parcost.search.axis_kinds import PROBES
from parcost.search.bounds import any_alike
from parcost.search.group_terms import GroupAnswers, PluginAnswers, TermTable, release_each
from parcost.search.memory_bounds import peak_memory
from parcost.search.mesh import Places, join_places
from parcost.search.scored_layouts import (
    LayoutCriteria,
    ScoredLayouts,
    report_missing_bound,
)
from parcost.search.scored_parts import (
    MOST_LAYOUTS,
    BoundPart,
    Part,
    ScoredPart,
    concatenate_counts,
    split_points,
    stage_kinds,
)
from parcost.search.serial_work import bound_seconds
from parcost.search.space import Structure, StructureGroup
from parcost.search.stage_loads import StageLoads, StructureLoads
from parcost.search.term_arrays import (
    Windows,
    at_points,
    merge_terms,
    select_choice,
    take,
    windows,
)
from parcost.search.timing import ScheduleTimes, SketchPlan

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from parcost.contract.plugin import Plugin
    from parcost.search.variants import Variants


import os

_MOST = int(os.environ.get("MOST", "4096"))
_SIZES = ("capacities", "usable_memory")  # hooks whose answers are numbers


class Scores:
    """The layouts of a group of structures, with first bounds; those not excluded are scored.

    An additional term never shortens a step. So the first bound uses serial work only. Each plugin
    is called once.
    """

    def __init__(self, group: StructureGroup) -> None:
        """Query the plugins."""
        self.group = group
        self._variants = group.variants
        answers = GroupAnswers(group)
        self._memory = TermTable(group, answers.answers_to("memory"), Windows())
        self._cuts = answers.answers_to("pipelines")
        self._choice = _schedule_choice(self._variants, self._cuts)
        self._answers = {hook: self._answers_of_probe(answers, hook) for hook in PROBES}
        terms = list(answers.answers_to("terms"))
        self._variants.release()  # what answers were made of
        self._hosts = windows(one for asked in terms for one in asked.every)
        self._all = TermTable(group, release_each(terms), self._hosts)
        self._sums: dict[int, Sequence[Any]] = {}  # of serial work
        self._bounds: dict[tuple[int, int], Any] = {}
        self._pipelines: dict[tuple[int, int], Pipeline] = {}
        self._schedules: dict[tuple[int, int], Schedule] = {}

    @property
    def _positions(self) -> range:
        """The positions of the schedules among the values of their axis."""
        return range(self._variants.shape[self._choice] if self._choice is not None else 1)

    def criteria(self, place: int) -> LayoutCriteria:
        """Return the limits and objectives for the layouts of a structure."""
        return self._criteria(self.group.structures[place], self.group.places(place))

    def least_seconds(self, place: int) -> NDArray[np.float64]:
        """Return a lower bound of the step time in seconds at each point of a structure.

        It is minus infinity where a time is not finite.
        """
        structure = self.group.structures[place]
        choices = tuple(range(structure.legal.ndim - 1))
        found = np.full(len(structure.kept), np.inf)
        for index in self._positions:
            legal = self._select_schedule(structure.legal, index)
            if legal.any():
                bound = self._serial_bound(place, index)
                here = np.where(any_alike(legal, bound), bound, np.inf)
                found = np.minimum(found, here.min(axis=choices))
        for serial, pick in self._all.serial_work(place, self.group.places(place)):
            found = np.where(serial.may_not_end(pick) | np.isnan(found), -np.inf, found)
        return found

    def _serial_bound(self, place: int, index: int) -> Any:
        """Return a lower bound of the seconds of a structure's layouts by a schedule.

        It is the time of serial work, or NaN if that is unknown.
        """
        if (place, index) not in self._bounds:
            structure = self.group.structures[place]
            if place not in self._sums:
                work = self._all.serial_work(place, self.group.places(place))
                self._sums[place] = [one for serial, pick in work for one in serial.sums(pick)]
            points = np.arange(len(structure.kept))
            pipeline, schedule = self._pipeline(place, index, points), self._schedule(place, index)
            with name_schedule_plugin(structure.whole, pipeline.schedule):
                legal = self._select_schedule(structure.legal, index)
                plan = SketchPlan.for_layouts(schedule, pipeline, legal)
                rows = self._serial_rows(place, index)
                self._bounds[place, index] = bound_seconds(plan, pipeline.micro_batches, rows)
        return self._bounds[place, index]

    def _serial_rows(self, place: int, index: int) -> Iterator[tuple[Pass, bool, Any, Any]]:
        """Yield the sums of :class:`SerialWork`, with counts by virtual stage."""
        _, stages = self._sizes(place, index)
        for pass_, kernels, row, times in self._sums[place]:
            count = counts_at(row, place)
            each = count if isinstance(count, tuple) else (count,) * stages
            yield pass_, kernels, each, self._select_schedule(times, index)

    def bound_layouts(self, block: Mapping[int, NDArray[np.intp]]) -> Iterator[ScoredLayouts]:
        """Yield layouts, by structure and schedule, with lower bounds of time and memory.

        *block* are points by structure.
        """
        wanted: dict[int, Any] = dict.fromkeys(self._positions, True)
        together: dict[Any, list[BoundPart]] = {}
        for place, points in block.items():
            for scored in self._layouts(place, points, wanted):
                with name_schedule_plugin(scored.structure.whole, scored.pipeline.schedule):
                    plan = SketchPlan.for_layouts(scored.schedule, scored.pipeline, scored.legal)
                key = (scored.index, None if self._memory.is_shared else place)
                together.setdefault(key, []).append(BoundPart(scored, plan))
        for parts in together.values():
            yield from self._bound(parts)

    def _bound(self, parts: Sequence[BoundPart]) -> Iterator[ScoredLayouts]:
        """Yield the layouts of several structures under one schedule, with lower bounds."""
        first = parts[0].scored
        places = join_places([self.group.places(p.scored.place, p.scored.points) for p in parts])
        points = np.concatenate([part.scored.points for part in parts])
        terms = self._memory.select_terms(first.place, points, places)
        if self._choice is not None:
            terms = select_choice(terms, self._choice, first.index)
        counted, kinds = self._with_counts(parts, merge_terms(terms, Windows()))
        plans, micro_batches = [p.plan for p in parts], [p.micro_batches for p in parts]
        bytes_ = peak_memory(counted, plans, kinds, micro_batches)
        start = 0
        for part in parts:
            scored, at = part.scored, slice(start, start + len(part))
            start = at.stop
            with name_schedule_plugin(scored.structure.whole, scored.pipeline.schedule):
                seconds = at_points(self._serial_bound(scored.place, scored.index), scored.points)
            least = np.where(np.isnan(seconds), 0.0, seconds)
            yield evolve(scored, bytes_=at_points(bytes_, at), seconds=least)

    def score_layouts(
        self, wanted: Iterable[tuple[ScoredLayouts, NDArray[np.bool_]]]
    ) -> Iterator[ScoredLayouts]:
        """Yield layouts scored with all terms, by structure and schedule.

        *wanted* are layouts with bounds, each with a mask of the layouts to score. The work of all
        structures is added up at once.
        """
        parts: dict[Any, list[ScoredPart]] = {}
        for bound, which in wanted:
            for points in split_points(which):
                part, alone = self._build_part(bound, which, points)
                key = (bound.index, bound.place if alone else None)
                some = parts.setdefault(key, [])
                if some and sum(map(len, some)) + len(part) > MOST_LAYOUTS:
                    yield from self._score(some)
                    some.clear()
                some.append(part)
        for some in parts.values():
            yield from self._score(some)

    def _build_part(
        self, bound: ScoredLayouts, which: NDArray[np.bool_], points: NDArray[np.intp]
    ) -> tuple[ScoredPart, bool]:
        """Return the layouts of a bound at some points, and whether they are scored separately."""
        kept = bound.points[points]
        (scored,) = self._layouts(bound.place, kept, {bound.index: which[..., points]})
        with name_schedule_plugin(scored.structure.whole, scored.pipeline.schedule):
            plan = SketchPlan.for_layouts(scored.schedule, scored.pipeline, scored.legal)
        part = self._part(scored, kept, np.nonzero(scored.legal), pairs=bool(plan.pairs))
        more = evolve(
            scored,
            bytes_=at_points(bound.bytes_, points),
            least=at_points(bound.seconds, points),
            terms=partial(self._terms_of, scored, kept),
        )
        return evolve(part, scored=more), part.pairs or not self._all.is_shared

    def _part(
        self,
        scored: ScoredLayouts,
        points: NDArray[np.intp],
        where: tuple[NDArray[np.intp], ...],
        *,
        pairs: bool = False,
    ) -> ScoredPart:
        """Return the layouts with the indices *where* of a structure; *points* are the points of
        all layouts.
        """
        choices = list(where[:-1])
        if self._choice is not None:
            choices[self._choice] = np.full(len(where[-1]), scored.index)
        return ScoredPart(scored, points, where, choices, pairs)

    def _terms_of(
        self,
        scored: ScoredLayouts,
        points: NDArray[np.intp],
        hook: str,
        where: tuple[NDArray[np.intp], ...],
    ) -> Sequence[tuple[Plugin, Any]]:
        """Return the terms of some layouts by *hook*, with counts by virtual stage."""
        part, place, at = self._part(scored, points, where), scored.place, points[where[-1]]
        table, hosts = (self._all, self._hosts) if hook == "terms" else (self._memory, Windows())
        terms = table.select_terms(place, at, self.group.places(place, at), part.choices)
        terms.sort(key=lambda pair: pair[0].name)  # as plugins are asked: terms share names
        found: list[tuple[Plugin, Any]] = []
        for plugin, term in terms:
            if isinstance(term, Edge):
                found += self._messages(plugin, term, scored.pipeline.stages)
            elif term.count.__class__ is not CountsByStructure:
                found.append((plugin, term))
            elif any(count := term.count.each[scored.place]):
                found.append((plugin, replace_values(term, {"count": count})))
        return merge_terms(found, hosts)

    def _score(self, parts: Sequence[ScoredPart]) -> Iterator[ScoredLayouts]:
        """Yield scored layouts of several structures under one schedule."""
        first = parts[0].scored
        choices = [np.concatenate(axis) for axis in zip(*(p.choices for p in parts), strict=True)]
        points = [part.points[part.where[-1]] for part in parts]
        places = join_places(
            [self.group.places(p.scored.place, at) for p, at in zip(parts, points, strict=True)]
        )
        terms = self._all.select_terms(first.place, np.concatenate(points), places, choices)
        terms.sort(key=lambda pair: pair[0].name)  # as plugins are asked: terms share names
        terms = merge_terms(terms, self._hosts)
        edges = [(plugin, term) for plugin, term in terms if isinstance(term, Edge)]
        others = [(plugin, term) for plugin, term in terms if not isinstance(term, Edge)]
        counted, kinds = self._with_counts(parts, others)
        stages = StageLoads(counted, pairs=parts[0].pairs)
        start = 0
        for part, own in zip(parts, kinds, strict=True):
            at = slice(start, start + len(part))
            start = at.stop
            yield self._score_part(part, StructureLoads(stages, own, at), edges)

    def _score_part(
        self, part: ScoredPart, loads: StructureLoads, edges: Sequence[tuple[Plugin, Any]]
    ) -> ScoredLayouts:
        """Return the scored layouts of one structure; *edges* are messages of all structures."""
        scored, pipeline = part.scored, part.scored.pipeline
        own = [
            edge
            for plugin, term in edges
            for _, edge in self._messages(plugin, _select_edge(term, loads.at), pipeline.stages)
        ]
        m = at_points(pipeline.micro_batches, part.where[-1])
        flat = np.ones(len(part), dtype=bool)
        with name_schedule_plugin(scored.structure.whole, pipeline.schedule):
            timed = ScheduleTimes(
                evolve(pipeline, micro_batches=m), scored.schedule, loads, own, flat
            )
            seconds, exact = timed.step()
        report_missing_bound(scored, timed)
        numbers = np.zeros(scored.legal.shape, dtype=np.intp)
        numbers[part.where] = np.arange(len(flat))
        return evolve(
            scored,
            seconds=_scatter(seconds, part.where, scored.legal.shape, np.inf),
            exact=_scatter(exact, part.where, scored.legal.shape, False),
            loads=loads,
            hop=timed.hop,
            numbers=numbers,
        )

    def _with_counts(
        self, parts: Sequence[Part], terms: Sequence[tuple[Plugin, Any]]
    ) -> tuple[Sequence[Any], Sequence[Sequence[int]]]:
        """Return terms with counts by kind of virtual stage, and the kinds by structure."""
        rows: dict[Any, Any] = {
            term.count: 0.0 for _, term in terms if not isinstance(term.count, (float, int))
        }
        counts = [[counts_at(row, part.scored.place) for row in rows] for part in parts]
        kinds, firsts = zip(*map(stage_kinds, parts, counts), strict=True)
        for number, row in enumerate(rows):
            each = [
                [float(own[number][x]) for x in first]
                for own, first in zip(counts, firsts, strict=True)
            ]
            rows[row] = tuple(concatenate_counts(column, parts) for column in zip_longest(*each))
        found = []
        for _, term in terms:
            by_kind = rows.get(term.count, (term.count,))
            if any(number.__class__ is not float or number for number in by_kind):
                changed = term.count in rows
                found.append(replace_values(term, {"count": by_kind}) if changed else term)
        return found, kinds

    def _layouts(
        self, place: int, points: NDArray[np.intp], wanted: Mapping[int, Any]
    ) -> Iterator[ScoredLayouts]:
        """Yield the layouts of a structure by schedule, without terms."""
        structure, places = (
            self.group.structures[place].select_points(points),
            self.group.places(place, points),
        )
        criteria = self._criteria(structure, places)
        for index, which in wanted.items():
            legal = self._select_schedule(structure.legal, index) & which
            if not legal.any():
                continue
            yield ScoredLayouts(
                structure=structure,
                place=place,
                points=points,
                criteria=criteria,
                schedule=self._schedule(place, index),
                choice=self._choice,
                index=index,
                pipeline=self._pipeline(place, index, points),
                legal=legal,
                seconds=0.0,
                exact=False,
                bytes_=0.0,
            )

    def _answers_of_probe(self, answers: GroupAnswers, hook: str) -> Sequence[PluginAnswers]:
        """Return the results of *hook*, which must be equal for all choices."""
        found = answers.answers_to(hook)
        for one in found:
            for reads, by_part in one.every:
                several = {key_of(PROBES[hook](x)) for a in by_part.values() for _, x in a}
                differ = len(several) > max(len(a) for a in by_part.values())
                self._variants.require_equal(reads if differ else (), hook)
        return found

    def _criteria(self, structure: Structure, places: Places) -> LayoutCriteria:
        """Return the limits and objectives for layouts of a structure at mesh indices *places*."""
        found: dict[str, list[Any]] = {}
        for hook, asked in self._answers.items():
            shared = [a.shared for a in asked if a.shared is not None]
            items = [x for _, by_part in shared for _, x in next(iter(by_part.values()))]
            arrays = any(_varies(hook, item) for item in items)
            points = self._variants.points
            fits = hook not in _SIZES or all(fits_shape(x, points) for x in items)
            if hook in _SIZES and (len(shared) < len(asked) or not fits):
                items = list(memory_limits_of(structure.variants.base, structure.faults, hook))
            elif len(shared) < len(asked) or arrays:
                items = [x for _, x in structure.variants.base.contributions(hook)]
            elif hook in _SIZES:
                items = [places.pick(x) for x in items]
            found[hook] = items
        return LayoutCriteria(
            capacities=found["capacities"],
            usable=found["usable_memory"],
            limits=[limit for goal in found["search_goals"] for limit in goal.limits],
            objectives={o.name: o for o in found["objectives"]},
            structure=structure,
        )

    def _pipeline(self, place: int, index: int, points: NDArray[np.intp]) -> Pipeline:
        """Return the pipeline of a structure by a schedule, at some of its *points*."""
        if (place, index) not in self._pipelines:
            study = self.group.structures[place].variants.study_of(self._where(index))
            self._pipelines[place, index] = study.pipeline
        found = self._pipelines[place, index]
        return evolve(found, micro_batches=at_points(found.micro_batches, points))

    def _schedule(self, place: int, index: int) -> Schedule:
        if (place, index) not in self._schedules:
            variants = self.group.structures[place].variants
            schedule, reads = variants.schedule(self._where(index))
            self._variants.require_equal(reads - {self._choice}, "schedule")
            self._schedules[place, index] = schedule
        return self._schedules[place, index]

    def _where(self, index: int) -> tuple[int, ...]:
        """Return the indices of a combination of choices with the schedule at position *index*."""
        combination = [0] * len(self._variants.shape)
        if self._choice is not None:
            combination[self._choice] = index
        return tuple(combination)

    def _select_schedule(self, value: Any, index: int) -> Any:
        """Return the part of an array for a schedule, or an array that all schedules share."""
        return value if self._choice is None else take(value, self._choice, index)

    def _messages(self, plugin: Plugin, edge: Edge, stages: int) -> Sequence[tuple[Plugin, Edge]]:
        """Yield an edge for *stages* devices; an edge may have more boundaries."""
        return list(_between(plugin, edge, stages)) if self._variants.point else [(plugin, edge)]

    def _sizes(self, place: int, index: int) -> tuple[int, int]:
        """Return the number of devices and of virtual stages of a structure."""
        pipeline = self._pipelines[place, index]
        return pipeline.stages, pipeline.stages * pipeline.chunks


def _select_edge(edge: Edge, at: slice | NDArray[np.intp]) -> Edge:
    """Return an edge for some layouts."""
    boundaries = tuple(at_points(seconds, at) for seconds in edge.boundaries)
    return replace_values(edge, {"seconds": at_points(edge.seconds, at), "boundaries": boundaries})


def _scatter(value: Any, where: Any, shape: tuple[int, ...], fill: Any) -> NDArray[Any]:
    """Return an array of that shape with *value* at some positions, and *fill* elsewhere."""
    found = np.full(shape, fill)
    found[where] = value
    return found


def _between(plugin: Plugin, edge: Edge, stages: int) -> Iterator[tuple[Plugin, Any]]:
    """Yield an edge reduced to *stages* devices; equal boundaries become a single number."""
    if stages > 1:
        boundaries = edge.boundaries[: stages - 1]
        alike = all(np.array_equal(seconds, edge.seconds) for seconds in boundaries)
        yield plugin, evolve(edge, boundaries=() if alike else boundaries)


def _varies(hook: str, item: Any) -> bool:
    """Return whether a goal or an objective has arrays over the points of its study."""
    if hook == "search_goals":
        return any(np.ndim(limit.holds(1.0, 1.0)) > 0 for limit in item.limits)
    return hook == "objectives" and np.ndim(item.value(item.cost(1.0))) > 0


def _schedule_choice(variants: Variants, cuts: Sequence[PluginAnswers]) -> int | None:
    """Return the position of the choice that selects the schedule, or None."""
    read = {k for answers in cuts for k in answers.read}
    several = sorted(k for k in read if variants.shape[k] > 1)  # the rest decides nothing
    variants.require_equal(several[1:], "pipeline")
    return several[0] if several else None
