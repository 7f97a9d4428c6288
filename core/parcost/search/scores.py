"""What to ask plugins for every layout of a structure: few of them at first, to bound.

Where such a bound is not enough, all of them are asked, under the choices that it leaves.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from attrs import evolve, frozen

from parcost.contract.plugin import Fault
from parcost.contract.queries import key_of
from parcost.contract.study import Schedule
from parcost.contract.terms import Pipeline, Work
from parcost.engine.schedule_calls import schedule_blame
from parcost.search.axis_kinds import PROBES
from parcost.search.result import spec_text
from parcost.search.space import Structure
from parcost.search.term_arrays import Windows, at, at_points, stack_terms, terms_under, windows
from parcost.search.timing import ScheduleTimes

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from parcost.contract.plugin import Plugin
    from parcost.engine.stage_costs import Load
    from parcost.numeric import Real
    from parcost.search.variants import Contribution, VariantAnswers, Variants


@frozen(kw_only=True, eq=False)
class ScoredLayouts:
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


def values_at(scored: ScoredLayouts, index: Sequence[int]) -> dict[str, Any]:
    """Return the values of a layout by attribute, in the notation of the language."""
    structure = scored.structure
    values = {name: spec_text(value) for name, value in structure.values.items()}
    for name, numbers in structure.degrees.items():
        number = float(numbers[index[-1]])
        values[name] = int(number) if number.is_integer() else number
    for k, choice in enumerate(structure.variants.choices):
        at = scored.index if k == scored.choice else index[k]
        values[choice.name] = spec_text(choice.values[at])
    return values


class Scores:
    """The layouts of a structure: bounded first, and scored where the bound is not enough.

    An additional term never shortens a step. So a first bound takes the terms of few plugins: the
    one with most of the work, and those that depend on the same choices only. They are arrays over
    these choices alone, and hold for all layouts that differ in others.
    """

    def __init__(self, structure: Structure, few: Sequence[int] = ()) -> None:
        """*few* are plugins to bound by, by position, as another structure has found them."""
        self.structure = structure
        self._variants, self._legal = structure.variants, structure.legal
        self._occurs: NDArray[np.bool_] = np.any(self._legal, axis=-1)
        memory = self._variants.answers("memory", self._occurs)
        self._memory = stack_terms(memory, self._variants.shape, Windows())
        self._choice = _scheduling(self._variants, self._occurs)
        for hook, probe in PROBES.items():
            for reads, answers in self._variants.answers(hook, self._occurs):
                found = {key_of(probe(x)) for a in answers.values() for _, x in a}
                several = len(found) > max(len(a) for a in answers.values())
                self._variants.refuse(reads if several else (), hook)
        self._few = self._common(few)
        self._bytes: dict[int, Any] = {}
        self._least: dict[int, Any] = {}
        self._stacked: dict[Windows, Sequence[tuple[Plugin, Any]]] = {}

    @property
    def few(self) -> Sequence[int]:
        """The plugins that a first bound is made of, by position: the most work comes first."""
        return list(self._few)

    def bound_layouts(self) -> Iterator[ScoredLayouts]:
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
            with schedule_blame(self._variants.base, pipeline.schedule):
                timed = self._schedule_times(index, pipeline, here, legal, known)
                bytes_ = self._bytes[index] = timed.peak_memory([m for _, m in memory], steady)
                seconds = self._least[index] = timed.minimum_seconds()
            self._note(timed)
            yield ScoredLayouts(
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

    def score_layouts(
        self, kept: NDArray[np.intp], wanted: Mapping[int, Any]
    ) -> Iterator[ScoredLayouts]:
        """Yield layouts at points *kept* of the flat axis, by schedule.

        *wanted* is a mask of them by the position of the schedule, or true for all.
        """
        structure = self.structure.at(kept)
        variants = structure.variants
        legal = {i: self._part(structure.legal, i) & which for i, which in wanted.items()}
        occurs = np.zeros(variants.shape, dtype=bool)
        for index, which in legal.items():
            self._part(occurs, index)[...] = which.any(axis=-1)
        rest = [i for i in range(variants.plugins("terms")) if i not in self._few]
        asked = [variants.plugin_answers("terms", i, occurs) for i in rest]
        hosts = windows([*self._few.values(), *asked])
        terms = [*at(self._of_few(hosts), kept), *stack_terms(asked, variants.shape, hosts)]
        terms.sort(key=lambda pair: pair[0].name)  # as plugins are asked: terms may share a name
        memory = at(self._memory, kept)
        known: dict[Any, Load] = {}
        for index, which in legal.items():
            if not which.any():
                continue
            here, held = self._under(index, terms, memory)
            whole = self._pipeline(index)
            pipeline = evolve(whole, micro_batches=at_points(whole.micro_batches, kept))
            with schedule_blame(self._variants.base, pipeline.schedule):
                timed = self._schedule_times(index, pipeline, here, which, known)
                seconds, exact = timed.step()
            self._note(timed)
            yield ScoredLayouts(
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

    def _common(self, few: Sequence[int]) -> dict[int, VariantAnswers]:
        """Return the answers, by position of the plugin, that a first bound is made of."""
        variants, legal = self._variants, self._occurs
        if not few:
            first = [variants.one("terms", i, legal) for i in range(variants.plugins("terms"))]
            works = [_seconds(answer) for answer, _ in first]
            most = int(np.argmax(works))
            wanted = {*variants.plugin_answers("terms", most, legal)[0], self._choice}
            few = [
                most,
                *(i for i, (_, reads) in enumerate(first) if reads <= wanted and i != most),
            ]
        found = {i: variants.plugin_answers("terms", i, legal) for i in few}
        wanted = {*found[few[0]][0], self._choice}
        return {i: asked for i, asked in found.items() if wanted.issuperset(asked[0])}

    def _of_few(self, hosts: Windows) -> Sequence[tuple[Plugin, Any]]:
        """Return the terms of the first bound, where these windows have guests."""
        if hosts not in self._stacked:
            self._stacked[hosts] = stack_terms(self._few.values(), self._variants.shape, hosts)
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
        return terms_under(terms, self._choice, index), terms_under(memory, self._choice, index)

    def _schedule_times(
        self,
        index: int,
        pipeline: Pipeline,
        terms: Sequence[tuple[Plugin, Any]],
        legal: NDArray[np.bool_],
        known: dict[Any, Load],
    ) -> ScheduleTimes:
        return ScheduleTimes(pipeline, self._schedule(index), [t for _, t in terms], legal, known)

    def _note(self, timed: ScheduleTimes) -> None:
        """Note where the schedule says what is no number: a bound of 0 stands for that."""
        if timed.unsaid:
            message = f"{timed.unsaid} of schedule `{timed.schedule.name}` is no number for some "
            blame(self._variants, timed.pipeline, message + "layouts")


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


def score(structure: Structure) -> Iterator[ScoredLayouts]:
    """Yield the layouts of *structure*, by schedule, all of them scored."""
    scores = Scores(structure)
    wanted = {bound.index: True for bound in scores.bound_layouts()}
    return scores.score_layouts(np.arange(structure.legal.shape[-1]), wanted)


def _seconds(answer: Contribution) -> float:
    """Return about how many seconds of work a plugin contributes."""
    works = [term for _, term in answer if isinstance(term, Work)]
    return float(sum(np.mean(work.seconds) * np.sum(work.count) for work in works))


def _scheduling(variants: Variants, legal: NDArray[np.bool_]) -> int | None:
    """Return which choice is that of the schedule: the one that the pipeline reads."""
    read = {k for reads, _ in variants.answers("pipelines", legal) for k in reads}
    several = sorted(k for k in read if variants.shape[k] > 1)  # the rest decides nothing
    variants.refuse(several[1:], "pipeline")
    return several[0] if several else None
