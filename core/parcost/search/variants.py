"""One study under many combinations of choices, each contribution asked for only once.

A plugin that never looks at the ZeRO stage gives the same answer for all four. Which
attributes an answer depends on is seen by looking: the blocks of a variant are of classes
whose chosen attributes tell when they are read. An answer is kept under the values of
just these, together with what the answers read that it used on its way.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import product
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import numpy as np
from attrs import Factory, define, evolve, field, frozen

from parcost.diagnostics import Diagnostic, SpecError
from parcost.evaluation.reduce import unfit
from parcost.evaluation.shapes import misfit, points_of
from parcost.formulas import Formula, plain_of
from parcost.outcome import Fault
from parcost.study import Study, key_of
from parcost.terms import Group

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from parcost.numeric import Real
    from parcost.plugins import Plugin
    from parcost.study import Call
    from parcost.terms import Pipeline, Schedule

T = TypeVar("T")
Fact = Callable[[Any], Any]  # made of a study: a plain value

Combination = tuple[int, ...]  # the index of the value of every choice
Reads = frozenset[int]  # choices, by position


@frozen(kw_only=True, eq=False)
class Choice:
    """An attribute of a block with the values that it may have, apart from all others."""

    name: str
    schema: type
    label: str
    attribute: str
    values: Sequence[Any]


@frozen(eq=False)
class Answer:
    """What a plugin contributed, and what that depends on: choices, and facts by value."""

    contributed: tuple[tuple[Plugin, Any], ...]
    reads: Reads
    facts: frozenset[Fact]


#: The choices that answers depend on, and the answers by the indices of these.
Asked: TypeAlias = tuple[Sequence[int], Mapping[Combination, Answer]]

_SUMMED = ("terms", "memory")  # hooks
_NOTHING = Answer((), frozenset(), frozenset())


@define(eq=False)
class Question:
    """Something being asked: what it has read, and what it made to answer."""

    reads: set[int] = Factory(set)
    facts: set[Fact] = Factory(set)
    made: dict[Any, Any] = Factory(dict)

    def depends(self, answer: Answer | Question) -> None:
        """Note that this depends on whatever *answer* does."""
        self.reads |= answer.reads
        self.facts |= answer.facts


#: Answers under the choices and facts that they depend on.
_Table = tuple[tuple[int, ...], tuple[Fact, ...], dict[Any, Any]]


class Variants:
    """The variants of *base*: ``at(combination)`` is a study whose answers are shared."""

    def __init__(
        self, base: Study, choices: Sequence[Choice], faults: list[Fault] | None = None
    ) -> None:
        """Plugins that fail under any variant are noted in *faults*."""
        self.base = base
        self.choices = choices
        self.faults: list[Fault] = [] if faults is None else faults
        self._points = points_of(base)
        self.asking: list[Question] = []  # in progress, the innermost last
        self._kept: dict[Any, list[_Table]] = {}
        self._studies: dict[Combination, Variant] = {}
        self._chosen: dict[tuple[int, str], int] = {}  # by id of a block, and attribute
        self._inside: dict[int, tuple[int, ...]] = {}  # choices of a block and those below it
        self._made: dict[tuple[int, ...], Any] = {}
        self._classes: dict[Any, type] = {}
        self._find_choices()

    @property
    def shape(self) -> tuple[int, ...]:
        """The number of values of each choice."""
        return tuple(len(choice.values) for choice in self.choices)

    def at(self, combination: Combination) -> Variant:
        """Return the study with the values of *combination*."""
        if combination not in self._studies:
            self._studies[combination] = self._study(combination)
        return self._studies[combination]

    def forget(self) -> None:
        """Let go of every study and answer: they refer to one another, and hold arrays."""
        self._kept.clear()
        self._studies.clear()
        self._made.clear()

    def over(self, hook: str, legal: NDArray[np.bool_] | None = None) -> Iterator[Asked]:
        """Yield what each plugin answers to *hook* in all variants.

        *legal* has a dimension for each choice: nobody is asked where nothing is.
        """
        for position in range(self.plugins(hook)):
            yield self.asked(hook, position, legal)

    def plugins(self, hook: str) -> int:
        """Return how many plugins answer *hook*."""
        return len(self.base.plugins.implementing(hook))

    def asked(self, hook: str, position: int, legal: NDArray[np.bool_] | None = None) -> Asked:
        """Return the choices that the answers of one plugin to *hook* depend on, and these.

        Answers are by the indices of these choices alone; those that facts make equal are
        one object.
        """
        read: tuple[int, ...] = ()
        while True:
            found = {
                part: self._answer_if(legal, hook, position, read, part)
                for part in product(*(range(self.shape[k]) for k in read))
            }
            union = set(read)
            for answer in {id(answer): answer for answer in found.values()}.values():
                union |= self._reads(answer)
            if len(union) == len(read):
                return read, found
            read = tuple(sorted(union))

    def one(
        self, hook: str, position: int, legal: NDArray[np.bool_]
    ) -> tuple[Answer, frozenset[int]]:
        """Return what a plugin answers in some legal variant, and the choices that it read."""
        answer = self._answer_if(legal, hook, position, (), ())
        return answer, self._reads(answer)

    def schedule(self, combination: Combination) -> tuple[Schedule, frozenset[int]]:
        """Return the schedule under *combination*, and the choices that decide it."""
        found, answer = self._kept_or(
            "schedule", combination, lambda: (self.at(combination).schedule,)
        )
        return found, self._reads(answer)

    def read_by_schedules(self) -> frozenset[int]:
        """Return the choices that any schedule reads to be one for a study."""
        found: set[int] = set()
        for name in self.base.plugins.named("schedules"):
            for combination in product(*map(range, self.shape)):
                self.asking.append(Question())
                try:
                    self.at(combination).scheduled(name)
                finally:
                    found |= self.asking.pop().reads
        return frozenset(found)

    def refuse(self, reads: Iterable[int], what: str) -> None:
        """Require that nothing in *reads* is a choice: *what* has to hold for all layouts.

        Raises:
            SpecError: It depends on a choice.
        """
        names = [self.choices[k].name for k in sorted(reads) if self.shape[k] > 1]
        if names:
            said = " and ".join(f"`{name}`" for name in names)
            message = f"the {what} of this study depends on {said}, which a search cannot choose"
            help = "give it one value, or search under each of its values apart"
            place = self.base.path
            raise SpecError([Diagnostic("depends-on-choice", message, place=place, help=help)])

    def _reads(self, answer: Answer) -> frozenset[int]:
        return answer.reads.union(*map(self._behind, answer.facts))

    def _answer_if(
        self,
        legal: NDArray[np.bool_] | None,
        hook: str,
        position: int,
        read: Sequence[int],
        part: Combination,
    ) -> Answer:
        """Return an answer under a combination of the choices *read*, if any such is legal.

        The others are taken as they are in a legal combination.
        """
        whole = self._whole(read, part)
        if legal is not None:
            index: list[Any] = [slice(None)] * len(self.shape)
            for k, i in zip(read, part, strict=True):
                index[k] = i
            here = legal[tuple(index)]
            if not here.any():
                return _NOTHING
            others = iter(np.unravel_index(int(here.argmax()), here.shape))
            whole = tuple(int(next(others)) if i == slice(None) else i for i in index)
        return self._answer(hook, position, whole)

    def answers(self, hook: str, combination: Combination) -> tuple[tuple[Plugin, Any], ...]:
        """Return every plugin's answer to *hook* under *combination*; its reads are noted."""
        found: list[tuple[Plugin, Any]] = []
        for position in range(len(self.base.plugins.implementing(hook))):
            answer = self._answer(hook, position, combination)
            found += answer.contributed
            if self.asking:
                self.asking[-1].reads |= answer.reads
                self.asking[-1].facts |= answer.facts
        return tuple(found)

    def note(self, choice: int) -> None:
        """Note that *choice* is read by the question in progress."""
        if self.asking:
            self.asking[-1].reads.add(choice)

    def fact(self, make: Fact, combination: Combination) -> Any:
        """Return a fact under *combination*; the question in progress depends on its value."""
        if self.asking:
            self.asking[-1].facts.add(make)
        return self._kept_or(make, combination, lambda: (make(self.at(combination)),))[0]

    def number(self, key: Any, study: Variant, make: Callable[..., T], numbers: Sequence[Any]) -> T:
        """Return the value kept under *key*, or made; the question in progress depends on it."""
        made, answer = self._kept_or(key, study.combination, lambda: (make(study, *numbers),))
        if self.asking:
            self.asking[-1].depends(answer)
        found: T = made
        return found

    def _behind(self, fact: Fact) -> set[int]:
        """Return the choices that decide a fact, as far as it has been asked for."""
        return {k for choices, _, _ in self._kept.get(fact, ()) for k in choices}

    def _whole(self, read: Sequence[int], part: Combination) -> Combination:
        whole = [0] * len(self.choices)
        for k, index in zip(read, part, strict=True):
            whole[k] = index
        return tuple(whole)

    def _answer(self, hook: str, position: int, combination: Combination) -> Answer:
        def ask() -> tuple[tuple[Plugin, Any], ...]:
            study = self.at(combination)
            asked = study.plugins.ask(hook, study.faults, only=position, study=study)
            return tuple(self._sound(hook, asked, study))

        return self._kept_or((hook, position), combination, ask)[1]

    def _sound(
        self, hook: str, stamped: Iterable[tuple[Plugin, Any]], study: Variant
    ) -> Iterator[tuple[Plugin, Any]]:
        """Yield what an evaluation of *study* would not leave out; the rest are faults."""
        cut: Pipeline | None = None
        for plugin, answer in stamped:
            complaint = misfit(answer, self._points)
            if hook in _SUMMED and not complaint:
                cut = cut or self._unread(lambda: study.pipeline)  # any has the same stages
                complaint = unfit(answer, cut.stages, cut.stages * cut.chunks)
            if complaint:
                study.faults.append(Fault(plugin=plugin, hook=hook, message=complaint))
            else:
                yield plugin, answer

    def _kept_or(
        self, key: Any, combination: Combination, ask: Callable[[], tuple[Any, ...]]
    ) -> tuple[Any, Answer]:
        """Return what is kept under *key* for *combination*, or what asking gives."""
        tables = self._kept.setdefault(key, [])
        for choices, facts, table in tables:
            kept = table.get(self._under(choices, facts, combination))
            if kept is not None:
                return _first(kept), kept
        self.asking.append(Question())
        try:
            contributed = ask()
        finally:
            question = self.asking.pop()
        answer = Answer(contributed, frozenset(question.reads), frozenset(question.facts))
        choices = tuple(sorted(answer.reads))
        facts = tuple(sorted(answer.facts, key=lambda f: f"{f.__module__}.{f.__qualname__}"))
        own = [table for c, f, table in tables if c == choices and f == facts]
        if not own:
            own.append({})
            tables.append((choices, facts, own[0]))
        own[0][self._under(choices, facts, combination)] = answer
        return _first(answer), answer

    def _under(
        self, choices: Sequence[int], facts: Sequence[Fact], combination: Combination
    ) -> tuple[Any, ...]:
        told = self._unread(lambda: tuple(self.fact(fact, combination) for fact in facts))
        return (*(combination[k] for k in choices), *told)

    def _unread(self, look: Callable[[], T]) -> T:
        """Return ``look()``, which is not reading: no question depends on it."""
        asking, self.asking = self.asking, []
        try:
            return look()
        finally:
            self.asking = asking

    def _study(self, combination: Combination) -> Variant:
        blocks = {
            schema: tuple(self._told(block, combination) for block in found)
            for schema, found in self.base.blocks.items()
        }
        return Variant(
            **{name: getattr(self.base, name) for name in _KEPT},
            blocks=blocks,
            replace=None,
            faults=self.faults,
            variants=self,
            combination=combination,
        )

    def _told(self, value: Any, combination: Combination) -> Any:
        """Return *value* with blocks in it, and below, that tell when a choice is read.

        A block is the same object under all combinations of what others choose.
        """
        if isinstance(value, tuple):
            return tuple(self._told(item, combination) for item in value)
        inside = self._inside.get(id(value), ())
        if not inside:
            return value
        key = (id(value), *(combination[k] for k in inside))
        if key not in self._made:
            self._made[key] = self._told_block(value, combination)
        return self._made[key]

    def _told_block(self, value: Any, combination: Combination) -> Any:
        told = copy.copy(value)
        held = vars(value)
        vars(told).update({n: self._told(inner, combination) for n, inner in held.items()})
        chosen = {a: k for (block, a), k in self._chosen.items() if block == id(value)}
        vars(told).update({a: self.choices[k].values[combination[k]] for a, k in chosen.items()})
        if chosen:
            object.__setattr__(told, "__class__", self._telling(type(value), chosen))
        return told

    def _find_choices(self) -> None:
        """Find the block of every choice, and which choices stand in and below each block."""
        for k, choice in enumerate(self.choices):
            schema: type[Any] = choice.schema
            for block in self.base.all(schema):
                if getattr(block, "label", "") == choice.label:
                    self._chosen[id(block), choice.attribute] = k
        for blocks in self.base.blocks.values():
            for block in blocks:
                self._look_into(block)

    def _look_into(self, value: Any) -> tuple[int, ...]:
        if isinstance(value, tuple):
            return tuple(k for item in value for k in self._look_into(item))
        if not hasattr(type(value), "__block__"):
            return ()
        if id(value) not in self._inside:
            own = [k for (block, _), k in self._chosen.items() if block == id(value)]
            for inner in vars(value).values():
                own += self._look_into(inner)
            self._inside[id(value)] = tuple(sorted(set(own)))
        return self._inside[id(value)]

    def _telling(self, schema: type, chosen: Mapping[str, int]) -> type:
        key = (schema, *chosen.items())
        if key not in self._classes:
            members: dict[str, Any] = {
                name: property(self._reader(name, k), _writer(name)) for name, k in chosen.items()
            }
            self._classes[key] = type(schema.__name__, (schema,), members)
        return self._classes[key]

    def _reader(self, name: str, k: int) -> Callable[[Any], Any]:
        def read(block: object) -> Any:
            self.note(k)
            return vars(block)[name]

        return read


def _writer(name: str) -> Callable[[Any, Any], None]:
    def write(block: object, value: object) -> None:
        vars(block)[name] = value

    return write


def _first(answer: Answer) -> Any:
    return answer.contributed[0] if answer.contributed else None


_KEPT = ("name", "plugins", "axes", "origins", "path", "lacking")


@frozen(eq=False)
class Variant(Study):
    """A study under one combination of choices."""

    variants: Variants = field(kw_only=True, repr=False)
    combination: Combination = field(kw_only=True)

    def contributions(self, hook: str) -> Sequence[tuple[Plugin, Any]]:
        """Return every plugin's answer, kept by what it reads."""
        return self.variants.answers(hook, self.combination)

    def once(self, make: Callable[[Study], T]) -> T:
        """Return ``make(self)``, made once for each question: another one may read less."""
        if not self.variants.asking:
            return make(self)
        made = self.variants.asking[-1].made
        if make not in made:
            made[make] = make(self)
        found: T = made[make]
        return found

    def collective(
        self, operation: str, n: Real | Formula, group: str | Group, algorithm: str = "auto"
    ) -> Call:
        """Return the time of a collective; the same one of the same group is priced once."""
        placed = group if isinstance(group, Group) else self.group(group)
        key = ("collective", operation, algorithm, id(placed), key_of(plain_of(n)))

        def price(study: Study) -> tuple[Call, Group]:  # the group keeps its identity
            return Study.collective(study, operation, n, placed, algorithm), placed

        return self.variants.number(key, self, price, ())[0]

    def once_for(self, make: Callable[..., T], *numbers: Any) -> T:
        """Return ``make(self, *numbers)``, made once under all choices that it does not read."""
        return self.variants.number((make, *map(key_of, numbers)), self, make, numbers)

    def once_for_all(self, make: Callable[..., T], *arguments: Any) -> T:
        """Return ``make(*arguments)``: whoever asks depends on what it reads of its blocks."""

        def made(_: Study) -> T:
            return make(*arguments)

        return self.variants.number((make, *map(key_of, arguments)), self, made, ())

    def fact(self, make: Callable[[Study], T]) -> T:
        """Return ``make(self)``; what is asked depends on the value and not on its making."""
        found: T = self.variants.fact(make, self.combination)
        return found

    def fresh(self) -> Study:
        """Return the same study with nothing asked yet."""
        return evolve(self, faults=[], answers={})
