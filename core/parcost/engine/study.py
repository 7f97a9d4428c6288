"""Calls of plugins by a study: each hook is called once, and its result is cached by the values
that it reads.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from operator import is_not
from threading import RLock
from typing import Any, TypeVar

from attrs import evolve, field

from parcost.contract.calls import CallError, call
from parcost.contract.collective_formulas import fastest_formula
from parcost.contract.counts import CountsByStructure, counts_at, join_numbers
from parcost.contract.formulas import Formula, plain_of
from parcost.contract.groups import Group
from parcost.contract.outcome import Outcome
from parcost.contract.pipelines import Pipeline
from parcost.contract.plugin import Fault, Plugin
from parcost.contract.queries import (
    OF_STAGES,
    PLAIN,
    PURE,
    READS,
    STRUCTURES,
    Answer,
    Branch,
    Memo,
    Reads,
    hash_key,
)
from parcost.contract.schema import change_values
from parcost.contract.study import Call, Collective, Schedule, Study
from parcost.contract.validation import key_of
from parcost.engine.reduce import evaluate
from parcost.engine.rules import rules
from parcost.engine.shapes import shape_of
from parcost.language.diagnostics import Diagnostic, did_you_mean, quote
from parcost.language.errors import (
    FaultError,
    ParcostError,
    SpecError,
)
from parcost.numeric import INFINITY, Mask, Real, array_kind, is_array, minimum, where
from parcost.records import record

T = TypeVar("T")


_WORDS: frozenset[type] = frozenset((str, float, int, bool, type(None)))  # the same at all points


@record(eq=False, repr=False)
class SpecStudy(Study):
    """A study that was bound from a spec: it calls plugins, and caches their answers."""

    _replace: Callable[[Mapping[str, Any]], Study] | None = field(default=None, repr=False)
    _command: Callable[[], str] | None = field(default=None, repr=False)
    _written: Callable[[], Study] | None = field(default=None, repr=False)
    _memo: Memo = field(factory=Memo, repr=False)
    _point: Mapping[str, Any] = field(factory=dict, repr=False)  # values on axes of the memo
    _rejection_reason: Callable[[str, Any, SpecStudy], str] | None = field(default=None, repr=False)
    _structures: Callable[[], Sequence[SpecStudy]] | None = field(default=None, repr=False)
    _cut: Callable[[], Pipeline | None] | None = field(default=None, repr=False)
    _left_out: set[tuple[str, str, str]] = field(factory=set, repr=False)  # hook, plugin, name
    reads: Reads | None = field(default=None, repr=False)  # of attributes that record them
    recording: Any = field(factory=RLock, repr=False)  # held while its blocks record reads

    # --- what plugins contribute, asked once --------------------------------------

    def query(self, function: Callable[..., T], *arguments: Any) -> T:
        source: Any = (function, *arguments)
        key, pure = source, function in PURE
        if pure:
            key = (function, arguments, *map(type, arguments))  # 1 and 1.0 are spelled apart
        try:
            memo = self.plugins.memo if pure else self._memo
            node = memo.get(key)
        except TypeError:  # an array, which has no hash
            key, memo, source = (function, *map(hash_key, arguments)), self._memo, None
            node = memo.get(key)
        if node.__class__ is Answer:
            return node.value  # type: ignore[no-any-return]
        if not self._point:
            token = None if self.reads is None else READS.set(self.reads)  # also below a rule
            try:
                value = function(*arguments) if pure else function(self, *arguments)
            finally:
                if token is not None:
                    READS.reset(token)
            memo.keep(key, {}, value)
            return value
        outer, reads = READS.get(), Reads()
        answer = self._find(node, reads)
        if answer is None:
            reads = Reads()
            token = READS.set(reads)
            try:
                if self._structures is not None and function in OF_STAGES:
                    value = _by_structure(self, function, arguments)
                else:
                    value = function(*arguments) if pure else function(self, *arguments)
            except BaseException:
                if outer is not None:
                    outer.include(reads)
                raise
            finally:
                READS.reset(token)
            answer = memo.keep(key, reads.values, value)
        if outer is not None and reads.axes:
            if answer.value.__class__ in PLAIN and source is not None:
                outer.depend(source, answer.value, reads.axes)
            else:
                outer.include(reads)
        return answer.value  # type: ignore[no-any-return]

    def _find(self, node: Any, reads: Reads) -> Answer | None:
        """Return the cached answer below *node* for the values of this study, or None."""
        while node.__class__ is Branch:
            source = node.source
            if isinstance(source, str):
                value = self._point[source]
                reads.record(source, value)
            else:
                inner = Reads()
                token = READS.set(inner)
                try:
                    value = self.query(*source)
                finally:
                    READS.reset(token)
                reads.depend(source, value, inner.axes)
            if is_array(value):  # here the answer is not a plain one: nothing is known by it
                return None
            node = node.children.get(value)
        return node  # type: ignore[no-any-return]

    def contributions(self, hook: str) -> Sequence[tuple[Plugin, Any]]:
        return self.query(_contributions, hook)

    def leave_out(self, fault: Fault, answer: Any) -> None:
        self.faults.append(fault)
        self.plugins.record(fault)
        self._left_out.add((fault.hook, fault.plugin.name, key_of(answer)))
        key = (_contributions, fault.hook)
        if isinstance(known := self._memo.get(key), Answer):
            kept = tuple(pair for pair in known.value if pair[1] is not answer)
            self._memo.keep(key, {}, kept)

    @property
    def pipeline(self) -> Pipeline:
        """The split of the step; for several structures, the split of the first one."""
        known = None if self._cut is None else self.query(_known_cut)
        only = super().pipeline if known is None else known
        return only if self._structures is None else self._of_first(only)

    def _of_first(self, cut: Pipeline) -> Pipeline:
        """Return *cut* with the stages and chunks of the first structure, and record the read."""
        reads = READS.get()
        if reads is not None:
            reads.record(STRUCTURES, self._point[STRUCTURES])
        stages, chunks = (int(plain_first(number)) for number in (cut.stages, cut.chunks))
        return evolve(cut, stages=stages, chunks=chunks)

    def schedule_named(self, name: str) -> Schedule:
        offered = self.plugins.offers("schedules")
        if name not in offered:
            message = f"no plugin provides the schedule `{name}`"
            hint = did_you_mean(name, offered)
            place = self.path or self.name
            notes = tuple(self.plugins.absences)
            raise SpecError(
                [Diagnostic("no-schedule", message, notes=notes, help=hint, place=place)]
            )
        plugin, schedule = offered[name]
        try:
            found = call(schedule.for_study, self, module=plugin.module, passing=ParcostError)
        except CallError as error:
            raise FaultError(
                f"plugin {plugin} failed in `schedules`: `for_study` {error}"
            ) from error
        if not isinstance(found, Schedule):
            said = f"`for_study` returned {type(found).__name__} where a schedule is expected"
            raise FaultError(f"plugin {plugin} failed in `schedules`: {said}")
        return found

    def algorithms(self, operation: str) -> Sequence[Collective]:
        return self.query(_algorithms, operation)

    def collective(
        self, operation: str, n: Real | Formula, group: str | Group, algorithm: str = "auto"
    ) -> Call:
        placed = group if isinstance(group, Group) else self.group(group)
        known = plain_of(n) if self._point else n  # a search prints no formula
        return self.query(_estimate_call, operation, known, placed, algorithm)

    def candidates(self, operation: str, algorithm: str = "auto") -> Sequence[Collective]:
        return self.query(_find_algorithms, operation, algorithm)

    def replace(self, values: Mapping[str, Any]) -> Study:
        if self._replace is None:
            message = "the study was built from objects, so it has no text to edit"
            raise SpecError([Diagnostic("no-text", message, place=self.path or self.name)])
        return self._replace(values)

    def as_written(self) -> Study:
        return self if self._written is None else self._written()

    @property
    def command(self) -> str:
        return "" if self._command is None else self._command()

    def legal(self) -> Mask:
        holds: Mask = rules(self).holds
        return holds

    def evaluate(self) -> Outcome:
        return evaluate(self)

    def with_blocks(self, blocks: Mapping[type, tuple[Any, ...]]) -> SpecStudy:
        return evolve(self, blocks={**self.blocks, **blocks}, faults=[], memo=Memo())

    def at_points(self, kept: Any) -> SpecStudy:
        """Return the study at some of its points, whose indices are *kept*."""
        count = len(self.axes[0][1]) if self.axes else 1
        if count == len(kept):
            return self

        def pick(value: Any) -> Any:
            if value.__class__ is tuple:
                found = tuple(map(pick, value))
                return found if any(map(is_not, found, value)) else value
            return value[kept] if array_kind(value) and value.shape == (count,) else value

        def values_of(block: object) -> Mapping[str, Any]:
            held = vars(block).items()
            return {name: pick(value) for name, value in held if value.__class__ not in _WORDS}

        blocks, made = change_values(self.blocks, values_of)
        origins = {id(made.get(key, key)): found for key, found in self.origins.items()}
        axes = [(name, values[kept]) for name, values in self.axes]
        return evolve(self.with_blocks(blocks), axes=axes, origins=origins)

    def fresh(self) -> SpecStudy:
        return evolve(self, faults=[], memo=Memo())

    def release(self) -> None:
        self._memo.clear()


def _known_cut(study: SpecStudy) -> Pipeline | None:
    """Return the pipeline of a structure if its group has already computed it, or None."""
    assert study._cut is not None  # noqa: SLF001
    cut = study._cut()  # noqa: SLF001
    if cut is None or shape_of(study):
        return cut
    return evolve(cut, micro_batches=plain_first(cut.micro_batches))  # of a single point


def _by_structure(study: SpecStudy, function: Callable[..., Any], arguments: Sequence[Any]) -> Any:
    """Return the answer of *function* for each structure, joined: numbers, or counts by stage."""
    assert study._structures is not None  # noqa: SLF001
    outer, reads = READS.get(), Reads()
    token = READS.set(reads)
    try:
        values = [
            one.query(function, *(counts_at(argument, place) for argument in arguments))
            for place, one in enumerate(study._structures())  # noqa: SLF001
        ]
    finally:
        READS.reset(token)
    if outer is not None:  # a plain answer is that of a structure, and not of the study
        for axis in reads.axes:
            outer.record(axis, study._point[axis])  # noqa: SLF001
    rank = len(shape_of(study))
    if OF_STAGES[function]:
        return CountsByStructure(values, rank)
    if isinstance(values[0], tuple):
        return tuple(join_numbers(row, rank) for row in zip(*values, strict=True))
    return join_numbers(values, rank)


def plain_first(number: Any) -> float:
    """Return a number, or the first element of an array."""
    return float(number.flat[0]) if hasattr(number, "flat") else float(number)


def _contributions(study: SpecStudy, hook: str) -> Sequence[tuple[Plugin, Any]]:
    """Return the results of all plugins for *hook*."""
    if study._point:  # noqa: SLF001  each plugin reads axes of its own
        every = range(len(study.plugins.implementers(hook)))
        each = (study.query(contribution, hook, position) for position in every)
        return tuple(pair for pairs in each for pair in pairs)
    out = study._left_out  # noqa: SLF001
    if hook == "checks" and study.reads is not None:
        READS.set(None)  # rules validate every attribute
    asked = tuple(study.plugins.ask(hook, study.faults, study=study))
    return (
        tuple(one for one in asked if (hook, one[0].name, key_of(one[1])) not in out)
        if out
        else asked
    )


def contribution(study: SpecStudy, hook: str, position: int) -> Sequence[tuple[Plugin, Any]]:
    """Return the valid answers to *hook* of the plugin at *position*; for queries on axes.

    Invalid answers are recorded as faults.
    """
    complaint = study._rejection_reason  # noqa: SLF001
    faults, found = len(study.faults), []
    for plugin, answer in study.plugins.ask(hook, study.faults, only=position, study=study):
        wrong = complaint(hook, answer, study) if complaint is not None else ""
        if wrong:
            study.faults.append(Fault(plugin=plugin, hook=hook, message=wrong))
        else:
            found.append((plugin, answer))
    reads = READS.get()
    several = study._structures is not None  # noqa: SLF001
    if several and reads is not None and len(study.faults) > faults:
        reads.record(STRUCTURES, study._point[STRUCTURES])  # noqa: SLF001  one by one it may not fail
    return tuple(found)


def _estimate_call(
    study: SpecStudy, operation: str, n: Real | Formula, group: Group, algorithm: str
) -> Call:
    size = plain_of(n)
    offered = _usable_algorithms(study, operation, algorithm)
    if not offered:
        return _impossible_call(operation, algorithm, group)
    offered, times = _times(study, operation, size, group, offered)
    best = times[0]
    for time in times[1:]:
        best = minimum(best, time)
    chosen = _fastest_algorithms(offered, times, best)
    used = [times[offered.index(algorithm)] for algorithm in chosen]
    found = fastest_formula(operation, n, group, chosen, used, best)
    return Call(
        seconds=best,
        algorithm=" or ".join([a.name for a in chosen]),
        formula=found,
        latency=_latency(study, operation, group, chosen, used, best),
    )


def _latency(
    study: SpecStudy,
    operation: str,
    group: Group,
    chosen: Sequence[Collective],
    times: Sequence[Real],
    best: Real,
) -> Real:
    """Return the time in seconds of an empty message with the fastest of the *chosen*
    algorithms.
    """
    if not (group.flat.also or group.pair.also):
        return 0.0
    found: Real = 0.0
    for one, time in zip(chosen, times, strict=True):
        empty = study.query(_empty_seconds, one, operation, group)
        found = where((time == best) & (time < INFINITY), empty, found)
    return found


def _empty_seconds(_: SpecStudy, one: Collective, operation: str, group: Group) -> Real:
    return one.seconds(operation, 0.0, group)


def _times(
    study: SpecStudy, operation: str, size: Real, group: Group, offered: Sequence[Collective]
) -> tuple[Sequence[Collective], Sequence[Real]]:
    """Return the algorithms that return a time, and the times; algorithms that fail are faults.

    Raises:
        FaultError: No algorithm is left.
    """
    found: list[tuple[Collective, Real]] = []
    complaint = ""
    for one in offered:
        try:
            time = call(one.seconds, operation, size, group, passing=ParcostError)
            is_number = time.__class__ is float or isinstance(time, (float, int))
            if (is_number and not time < 0) or array_kind(time):
                found.append((one, time))
                continue
            complaint = f"is {quote(time)}, where seconds of at least 0 are expected"
        except CallError as error:
            complaint = str(error)
        plugin, _ = study.plugins.offers("collectives")[one.name]
        message = f"`seconds` of `{one.name}` for {operation} {complaint}"
        fault = Fault(plugin=plugin, hook="collectives", message=message)
        if len(offered) == 1:
            raise FaultError(str(fault))
        study.plugins.record(fault)
        if str(fault) not in map(str, study.faults):
            study.faults.append(fault)
    if not found:
        raise FaultError(str(fault))
    if len(found) == len(offered):
        return offered, [time for _, time in found]
    return [one for one, _ in found], [time for _, time in found]


def _usable_algorithms(study: SpecStudy, operation: str, algorithm: str) -> Sequence[Collective]:
    """Return the algorithms that *algorithm* selects: one, or all for ``auto``."""
    offered = study.candidates(operation, algorithm)
    if not offered and algorithm == "auto":
        libraries = [name for _, name in study.contributions("library")]
        who = f"no algorithm of the library `{libraries[0]}`" if libraries else "no plugin"
        message = f"{who} offers `{operation}`"
        help = "choose another `collectives.library`, or name an algorithm" if libraries else None
        place = study.path or study.name
        notes = tuple(study.plugins.absences)
        raise SpecError([Diagnostic("no-collective", message, notes=notes, help=help, place=place)])
    return offered


def _algorithms(study: SpecStudy, operation: str) -> Sequence[Collective]:
    return tuple(one.for_study(study) for one in _algorithms_of(study, operation))


def _algorithms_of(study: SpecStudy, operation: str) -> Sequence[Collective]:
    """Return the algorithms that support *operation*, before they get options from the study."""
    offered = study.plugins.offers("collectives")
    every = [offered[name][1] for name in sorted(offered, reverse=True)]
    return [one for one in every if operation in one.operations]


def _find_algorithms(study: SpecStudy, operation: str, algorithm: str) -> Sequence[Collective]:
    every = _algorithms_of(study, operation)
    if algorithm != "auto":
        return tuple(one.for_study(study) for one in every if one.name == algorithm)
    for plugin, name in study.contributions("library"):
        offered = study.plugins.offers("libraries")
        if name not in offered:
            message = f"names the library `{name}`, which no plugin provides"
            study.leave_out(Fault(plugin=plugin, hook="library", message=message), name)
            continue
        has = offered[name][1].algorithms.get(operation, ())
        return tuple(one.for_study(study) for one in every if one.name in has)
    return tuple(one.for_study(study) for one in every if operation not in one.by_name_only)


def _impossible_call(operation: str, algorithm: str, group: Group) -> Call:
    """Return the cost of an operation that the algorithm does not support: infinite, or 0 for one
    rank.
    """
    seconds = where(group.ranks > 1, INFINITY, 0.0)
    text, inputs = f"{algorithm} does not support {operation}", {"P": group.ranks}
    formula = Formula(text=text, inputs=inputs, value=seconds)
    return Call(seconds=seconds, algorithm=algorithm, formula=formula)


def _fastest_algorithms(
    offered: Sequence[Collective], times: Sequence[Real], best: Real
) -> Sequence[Collective]:
    """Return the algorithms that are the fastest at some point; of equals, the first."""
    if best.__class__ is float:
        return (offered[times.index(best)],) if best in times else offered[:1]
    chosen: list[Collective] = []
    undecided: Any = True
    for algorithm, time in zip(offered, times, strict=True):
        wins = (time == best) & undecided
        if wins is True or (not isinstance(wins, bool) and wins.any()):
            chosen.append(algorithm)
        undecided = undecided & ~wins if not isinstance(wins, bool) else undecided and not wins
    return chosen or offered[:1]
