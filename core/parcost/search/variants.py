"""One study under many combinations of choices; each contribution is computed only once.

A plugin that does not read the ZeRO stage returns the same result for all four stages. Chosen
attributes record their reads, so the attributes of each result are known. All variants share one
memo, which stores a result by the values of these attributes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property, partial
from itertools import chain, product
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import numpy as np
from attrs import evolve, frozen

from parcost.contract.fields import LEGAL
from parcost.contract.queries import READS, Memo, Reads
from parcost.contract.schema import block_attributes, on_axes
from parcost.engine.reduce import term_problem
from parcost.engine.shapes import shape_of, shape_problem
from parcost.engine.study import SpecStudy, contribution, plain_first
from parcost.language.diagnostics import Diagnostic
from parcost.language.errors import ParcostError, SpecError
from parcost.records import replace_values
from parcost.search.term_numbers import drop_unread_numbers

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from parcost.contract.pipelines import Pipeline
    from parcost.contract.plugin import Fault, Plugin
    from parcost.contract.study import Schedule

T = TypeVar("T")

Combination = tuple[int, ...]  # the index of the value of every choice
STAGES = -1  # stands among choices for what differs between structures


@frozen(kw_only=True, eq=False)
class Choice:
    """An attribute of a block and its possible values, independent of all others."""

    name: str
    schema: type
    label: str
    attribute: str
    values: Sequence[Any]


#: What a plugin contributes, stamped.
Contribution: TypeAlias = "Sequence[tuple[Plugin, Any]]"
#: The choices that answers depend on, and the answers by the indices of these.
VariantAnswers: TypeAlias = tuple[Sequence[int], Mapping[Combination, Contribution]]

_SUMMED = ("terms", "memory")  # hooks


class Variants:
    """The variants of *base*: ``study_of(combination)`` is a study; all of them share one memo."""

    def __init__(
        self,
        base: SpecStudy,
        choices: Sequence[Choice],
        faults: list[Fault] | None = None,
        point: Mapping[str, Any] = MappingProxyType({}),
        legal: Callable[[Any], Any] | None = None,
        cut: Callable[[Combination], Pipeline | None] | None = None,
    ) -> None:
        """Make the variants; plugins that fail under any variant are recorded in *faults*.

        *legal* selects the legal points of an array of *base*: other points may hold any number.

        *point* has the values of axes that are no choices, but differ between the points of *base*:
        the stages, for example. The points belong to ``parts``. An answer that reads such an axis
        does not hold for all of them. *cut* returns the pipeline of a part, or None if it is
        unknown.
        """
        self.base = base
        self.point = point
        self.parts: Sequence[Callable[[], Variants]] = ()
        self.legal = legal
        self.cut = cut
        self.choices = choices
        self.faults: list[Fault] = [] if faults is None else faults
        self.points = shape_of(base)
        self._memo = Memo()
        self.shape = tuple(len(choice.values) for choice in choices)
        self._number = {choice.name: k for k, choice in enumerate(choices)}
        self._studies: dict[Combination, SpecStudy] = {}
        self._chosen: dict[int, dict[str, int]] = {}  # by id of a block, and attribute
        self._inside: dict[int, tuple[int, ...]] = {}  # choices of a block and those below it
        self._made: dict[tuple[int, ...], Any] = {}
        self._blocks: dict[tuple[Any, ...], Any] = {}  # by class, and the choices in its blocks
        #: By id of a study: the largest number of devices, and the virtual stages by structure.
        self._cuts: dict[int, tuple[int, Sequence[int]]] = {}
        self._find_choices()

    def study_of(self, combination: Combination) -> SpecStudy:
        """Return the study with the values of *combination*."""
        if combination not in self._studies:
            self._studies[combination] = self._study(combination)
        return self._studies[combination]

    def release(self) -> None:
        """Release every study and answer: they have reference cycles, and hold arrays."""
        self._memo.clear()
        self._studies.clear()
        self._cuts.clear()
        self._made.clear()
        self._blocks.clear()

    def plugins(self, hook: str) -> int:
        """Return the number of plugins that implement *hook*."""
        return len(self.base.plugins.implementers(hook))

    def plugin_answers(
        self, hook: str, position: int, legal: NDArray[np.bool_] | None = None
    ) -> VariantAnswers:
        """Return the choices that the answers of one plugin to *hook* depend on, and the answers.

        Answers are by the indices of these choices alone; equal ones are one object. *legal* has a
        dimension for each choice: the plugin is not called where no layout is legal.
        """
        return self._by_reads(lambda read, part: self._answer(hook, position, read, part, legal))

    def _by_reads(
        self,
        ask: Callable[[Combination, Combination], tuple[T, frozenset[int]]],
        read: tuple[int, ...] = (),
    ) -> tuple[Sequence[int], Mapping[Combination, T]]:
        """Return the choices that answers depend on, and the answers by the indices of these.

        *ask* takes choices and their indices, and returns an answer and the choices that it read.
        It is called with the choices *read*, then with the choices read so far, until it reads no
        others.
        """
        while True:
            found = {}
            union = set(read)
            for part in product(*(range(self.shape[k]) for k in read)):
                found[part], reads = ask(read, part)
                union |= reads
                if STAGES in union:
                    return (STAGES,), {}
            if len(union) == len(read):
                return read, found
            read = tuple(sorted(union))

    def common_answers(
        self, hook: str, position: int, legal: NDArray[np.bool_] | None = None
    ) -> VariantAnswers | None:
        """Return :meth:`plugin_answers` for all structures, or None if each needs its own call.

        Structures need separate calls if a result depends on the stages, or has counts by virtual
        stage. Plugins that fail, possibly only at illegal points of the mesh, need them, too.
        """
        undo = self._undo()
        faults = len(self.faults)
        try:
            found = self.plugin_answers(hook, position, legal)
        except ParcostError:
            found = (STAGES,), {}
        answers = {id(answer): answer for answer in found[1].values()}.values()
        by_stage = self.point and any(_by_stage(item) for answer in answers for _, item in answer)
        if found[0] != (STAGES,) and not by_stage and len(self.faults) == faults:
            return found
        undo()
        return None

    def _undo(self) -> Callable[[], None]:
        """Return a function that removes the faults recorded since this call."""
        plugins: Any = self.base.plugins
        noted, faults = plugins.noted, len(self.faults)
        known = dict(noted)

        def undo() -> None:
            del self.faults[faults:]
            noted.clear()
            noted.update(known)

        return undo

    def schedule(self, combination: Combination) -> tuple[Schedule, frozenset[int]]:
        """Return the schedule for *combination*, and the choices that determine it."""
        return self._trace(combination, _schedule)

    def choices_that_decide(self, function: Callable[[SpecStudy], Any]) -> frozenset[int]:
        """Return the choices whose values change the answer of a query, each one alone.

        The query is called only with values of choices that it reads.
        """
        first, reads = self._trace((0,) * len(self.shape), function)
        left, seen, found = [*reads], {*reads}, set()
        while left:
            k = left.pop()
            for i in range(1, self.shape[k]):
                changed = tuple(i if j == k else 0 for j in range(len(self.shape)))
                answer, reads = self._trace(changed, function)
                if answer != first:
                    found.add(k)
                left += reads - seen
                seen |= reads
        return frozenset(found)

    def require_equal(self, reads: Iterable[int], what: str) -> None:
        """Raise if *reads* contains a choice: *what* must be equal for all layouts.

        Raises:
            SpecError: *what* depends on a choice.
        """
        names = [self.choices[k].name for k in sorted(reads) if k >= 0 and self.shape[k] > 1]
        if names:
            said = " and ".join(f"`{name}`" for name in names)
            message = f"the {what} of this study depends on {said}, which a search cannot choose"
            help = "give it one value, or search with each of its values separately"
            place = self.base.path
            raise SpecError([Diagnostic("depends-on-choice", message, place=place, help=help)])

    def _trace(
        self, combination: Combination, function: Callable[..., T], *arguments: Any
    ) -> tuple[T, frozenset[int]]:
        """Return the answer of a query for *combination*, and the choices that it depends on."""
        reads = Reads()
        token, checked = READS.set(reads), LEGAL.set(self.legal)
        try:
            answer = self.study_of(combination).query(function, *arguments)
        finally:
            READS.reset(token)
            LEGAL.reset(checked)
        return answer, frozenset(self._number.get(axis, STAGES) for axis in reads.axes)

    def _answer(
        self,
        hook: str,
        position: int,
        read: Sequence[int],
        part: Combination,
        legal: NDArray[np.bool_] | None,
    ) -> tuple[Contribution, frozenset[int]]:
        """Return the answer to a hook at a legal layout with values *part* of the choices *read*.

        Return an empty answer and no choices if no such layout is legal.
        """
        index: list[Any] = [0 if legal is None else slice(None)] * len(self.shape)
        for k, i in zip(read, part, strict=True):
            index[k] = i
        if legal is not None:
            here = legal[tuple(index)]
            if not here.any():
                return (), frozenset()
            others = iter(np.unravel_index(int(here.argmax()), here.shape))
            index = [int(next(others)) if i == slice(None) else i for i in index]
        asked = _drop_unread_numbers if hook in _SUMMED else contribution
        return self._trace(tuple(index), asked, hook, position)

    def _rejection_reason(self, hook: str, answer: Any, study: SpecStudy) -> str:
        """Return why an evaluation of *study* would reject an answer, or ""."""
        complaint = shape_problem(answer, self.points)
        if hook in _SUMMED and not complaint:
            if id(study) not in self._cuts:
                token = READS.set(None)  # an answer does not depend on it
                try:
                    some = [study] if study._structures is None else study._structures()  # noqa: SLF001
                    cuts = [one.pipeline for one in some]
                finally:
                    READS.reset(token)
                virtual = tuple(cut.stages * cut.chunks for cut in cuts)
                self._cuts[id(study)] = max(cut.stages for cut in cuts), virtual
            complaint = term_problem(answer, *self._cuts[id(study)])
        return complaint

    @cached_property
    def _part_cuts(self) -> Sequence[VariantAnswers] | None:
        """The answers to `pipelines` for all parts, or None if each part must be asked."""
        found = [self.common_answers("pipelines", i) for i in range(self.plugins("pipelines"))]
        shared = [answers for answers in found if answers is not None]
        return shared if len(shared) == len(found) else None

    def part_pipeline(
        self, pick: Callable[[Any], Any], combination: Combination
    ) -> Pipeline | None:
        """Return the pipeline of the part whose points *pick* selects, and record the reads.

        It is None if the part itself must be queried.
        """
        if self._part_cuts is None:
            return None
        found: list[Any] = []
        for read, by_part in self._part_cuts:
            found += by_part[tuple(combination[k] for k in read)]
            if (reads := READS.get()) is not None:
                for k in read:
                    reads.record(self.choices[k].name, combination[k])
        if len(found) != 1:
            return None
        cut: Pipeline = found[0][1]
        stages, chunks = (int(plain_first(pick(number))) for number in (cut.stages, cut.chunks))
        return evolve(
            cut,
            stages=stages,
            chunks=chunks,
            micro_batches=pick(cut.micro_batches),
            blocking=cut.blocking and stages > 1,  # one stage sends no messages
        )

    def _study(self, combination: Combination) -> SpecStudy:
        chosen = {}
        for schema, found, inside in self._observed:
            key = (schema, *(combination[k] for k in inside))
            if key not in self._blocks:
                self._blocks[key] = self._observe(found, combination)
            chosen[schema] = self._blocks[key]
        names = [choice.name for choice in self.choices]
        values: dict[str, Any] = {
            "blocks": {**self.base.blocks, **chosen},
            "_replace": None,
            "faults": self.faults,
            "_left_out": set(),
            "_memo": self._memo,
            "_point": {**self.point, **dict(zip(names, combination, strict=True))},
            "_rejection_reason": self._rejection_reason,
            "_cut": None if self.cut is None else partial(self.cut, combination),
            "_structures": partial(self._structures, combination) if self.point else None,
        }
        return replace_values(self.base, values)

    def _structures(self, combination: Combination) -> Sequence[SpecStudy]:
        """Return the study of each part for *combination*."""
        return [part().study_of(combination) for part in self.parts]

    def _observe(self, value: Any, combination: Combination) -> Any:
        """Return *value* with its blocks replaced by blocks that record reads of choices.

        Combinations that differ only in choices outside of a block share its object.
        """
        if isinstance(value, tuple):
            return tuple(self._observe(item, combination) for item in value)
        inside = self._inside.get(id(value), ())
        if not inside:
            return value
        key = (id(value), *(combination[k] for k in inside))
        if key not in self._made:
            self._made[key] = self._wrap_block(value, combination)
        return self._made[key]

    def _wrap_block(self, value: Any, combination: Combination) -> Any:
        held = vars(value)
        names = block_attributes(value.__class__)
        values = {name: self._observe(held[name], combination) for name in names if name in held}
        axes: dict[str, tuple[str, int]] = {}
        for attribute, k in self._chosen.get(id(value), {}).items():
            values[attribute] = self.choices[k].values[combination[k]]
            axes[attribute] = (self.choices[k].name, combination[k])
        return on_axes(value, values, axes)

    def _find_choices(self) -> None:
        """Find the block of every choice, and the choices in and below each block."""
        for k, choice in enumerate(self.choices):
            schema: type[Any] = choice.schema
            for block in self.base.all(schema):
                if getattr(block, "label", "") == choice.label:
                    self._chosen.setdefault(id(block), {})[choice.attribute] = k
        every = self.base.blocks.items()
        inner = {schema: {*chain(*map(self._inner_choices, found))} for schema, found in every}
        self._observed = [
            (schema, found, inner[schema]) for schema, found in every if inner[schema]
        ]

    def _inner_choices(self, block: Any) -> tuple[int, ...]:
        if (found := self._inside.get(id(block))) is None:
            own = set(self._chosen.get(id(block), {}).values())
            values = vars(block)
            for name in block_attributes(block.__class__):
                held = values.get(name)
                for inner in held if held.__class__ is tuple else [held] if held else ():
                    own.update(self._inner_choices(inner))
            found = self._inside[id(block)] = tuple(sorted(own)) if own else ()
        return found


def _drop_unread_numbers(study: SpecStudy, hook: str, position: int) -> Contribution:
    """Return terms without the numbers that no sum of a search reads, so that arrays are freed.

    It is a separate query, because a plugin may read complete terms of other plugins.
    """
    return tuple(
        (plugin, drop_unread_numbers(term)) for plugin, term in contribution(study, hook, position)
    )


def _by_stage(item: Any) -> bool:
    """Return whether a term has counts by virtual stage that are of one structure."""
    count = getattr(item, "count", 1.0)
    return isinstance(count, tuple)


def _schedule(study: SpecStudy) -> Schedule:
    return study.schedule


def _find_schedule(study: SpecStudy, name: str) -> Schedule:
    return study.schedule_named(name)
