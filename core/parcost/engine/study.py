"""A study: one scenario's blocks as typed objects, and what plugins make of them.

Plugins read blocks by class, ``study[Layout].tp``, and use the contributions of other
plugins through the study, never by importing them: ``study.collective(...)`` picks
among the algorithms that plugins offer, ``study.operators`` are the operators that
model plugins describe. Everything is frozen; answers are computed once per evaluation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from attrs import evolve, field

from parcost.contract.formulas import Formula, plain_of
from parcost.contract.outcome import Fault
from parcost.contract.prices import price
from parcost.contract.queries import (
    PLAIN,
    PURE,
    READS,
    STRUCTURES,
    Answer,
    Branch,
    Memo,
    Reads,
    hashed,
)
from parcost.contract.schema import block_type
from parcost.contract.term_validation import plain_count
from parcost.contract.terms import Collective, Group, Pipeline, Row, Schedule
from parcost.language.diagnostics import (
    Diagnostic,
    FaultError,
    ParcostError,
    SpecError,
    did_you_mean,
    quote,
    raised,
    reraise_interrupt,
)
from parcost.numeric import INFINITY, Real, minimum, where
from parcost.records import record

if TYPE_CHECKING:
    from parcost.contract.outcome import Outcome
    from parcost.language.text import Span
    from parcost.numeric import Mask
    from parcost.plugins.discovery import Plugin, Plugins
    from parcost.spec.modules import Origin

T = TypeVar("T")

COUNTED = ("terms", "memory", "operators", "parameters")  # hooks whose answers have counts


@record(kw_only=True, eq=False)
class Call:
    """A collective, priced: its time, the algorithm (or algorithms) and the formula."""

    seconds: Real
    algorithm: str
    formula: Formula


@record(eq=False, repr=False)
class Study:
    """One scenario. ``study[Layout]`` is its only block of that class.

    *axes* are the swept attributes: names and values, in the order of array axes. *lets*
    are what names outside of blocks stand for, as written.
    """

    name: str
    blocks: Mapping[type, tuple[Any, ...]]
    plugins: Plugins
    axes: Sequence[tuple[str, Sequence[Any]]] = ()
    origins: Mapping[int, Mapping[str, Origin]] = field(factory=dict, repr=False)
    path: str = ""
    lacking: Mapping[type, Sequence[Diagnostic]] = field(factory=dict, repr=False)
    faults: list[Fault] = field(factory=list, repr=False)
    lets: Mapping[str, str] = field(factory=dict, repr=False)
    _replace: Callable[[Mapping[str, Any]], Study] | None = field(default=None, repr=False)
    _memo: Memo = field(factory=Memo, repr=False)
    _point: Mapping[str, Any] = field(factory=dict, repr=False)  # values on axes of the memo
    _complaint: Callable[[str, Any, Study], str] | None = field(default=None, repr=False)
    _structures: Callable[[], Sequence[tuple[Study, int]]] | None = field(default=None, repr=False)
    _left_out: set[tuple[str, str, str]] = field(factory=set, repr=False)  # hook, plugin, name

    def __repr__(self) -> str:
        """Return the name and the file, in one line."""
        return f"<Study `{self.name}` of `{self.path}`: {len(self.blocks)} kinds of blocks>"

    def __getitem__(self, schema: type[T]) -> T:
        """Return the only block of this class.

        Raises:
            SpecError: The study has none, or several.
        """
        found = self.blocks.get(schema, ())
        if len(found) == 1:
            only: T = found[0]
            return only
        if not found and schema in self.lacking:
            raise SpecError(self.lacking[schema])
        kind = block_type(schema).kind
        labels = ", ".join(f"`{b.label}`" for b in found)
        message = (
            f"the study has {len(found)} blocks `{kind}` ({labels}), and one is needed"
            if found
            else f"the study has no block `{kind}`, and one is needed"
        )
        raise SpecError([Diagnostic("missing-block", message, place=self.path or self.name)])

    def get(self, schema: type[T]) -> T | None:
        """Return the only block of this class, or None without one."""
        return self[schema] if self.blocks.get(schema) else None

    def all(self, schema: type[T]) -> Sequence[T]:
        """Return every block of this class."""
        return self.blocks.get(schema, ())

    # --- what plugins contribute, asked once --------------------------------------

    def query(self, function: Callable[..., T], *arguments: Any) -> T:
        """Return ``function(self, *arguments)``, computed once for what it reads.

        Hooks and functions of plugins that have something in common share it so: a cache of
        their own would hide what an answer depends on. *arguments* are numbers, words, arrays
        and blocks. A :func:`parcost.pure_function` gets no study.
        """
        source: Any = (function, *arguments)
        key, pure = source, function in PURE
        if pure:
            key = (function, arguments, *map(type, arguments))  # 1 and 1.0 are spelled apart
        try:
            memo = self.plugins.memo if pure else self._memo
            node = memo.get(key)
        except TypeError:  # an array, which has no hash
            key, memo, source = (function, *map(hashed, arguments)), self._memo, None
            node = memo.get(key)
        if node.__class__ is Answer:
            return node.value  # type: ignore[no-any-return]
        if not self._point:
            value = function(*arguments) if pure else function(self, *arguments)
            memo.keep(key, {}, value)
            return value
        outer, reads = READS.get(), Reads()
        answer = self._find(node, reads)
        if answer is None:
            reads = Reads()
            token = READS.set(reads)
            try:
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
        """Return the answer below *node* at the values of this study, if it is known."""
        while node.__class__ is Branch:
            source = node.source
            if isinstance(source, str):
                value = self._point[source]
                reads.note(source, value)
            else:
                inner = Reads()
                token = READS.set(inner)
                try:
                    value = self.query(*source)
                finally:
                    READS.reset(token)
                reads.depend(source, value, inner.axes)
            node = node.children.get(value)
        return node  # type: ignore[no-any-return]

    def contributions(self, hook: str) -> Sequence[tuple[Plugin, Any]]:
        """Return every plugin's answer to *hook* about this study, stamped."""
        return self.query(_contributions, hook)

    def contributions_by_row(self, hook: str) -> Sequence[tuple[Plugin, Any]]:
        """Return the same with counts as plugins have them, which depend on no stages."""
        return self.query(_by_row, hook)

    def row(
        self,
        function: Callable[..., tuple[Any, ...]],
        *arguments: Any,
        total: Callable[[], float],
    ) -> tuple[Any, ...]:
        """Return how often something stands on each virtual stage, as *function* counts it.

        Where attributes are on axes it is a :class:`parcost.Row`, which depends on no stages:
        there are *total* on all of them.
        """
        if self._point:
            return Row(total(), function, *arguments)
        return self.query(function, *arguments)

    def number(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Return ``function(study, *arguments)``, a number that depends on the stages.

        Where a search evaluates structures with other stages at once, and they differ in it, it
        is an array, with the number of each at all of its points; of several numbers it is a
        tuple of those. A plugin that reads the stages otherwise is asked again for each of them.
        """
        if self._structures is None:
            return self.query(function, *arguments)
        return self.query(_by_structure, function, *arguments)

    @property
    def has_structures(self) -> bool:
        """Whether a search evaluates several numbers of stages at once."""
        return self._structures is not None

    def faults_beyond(self, base: Study) -> Sequence[Fault]:
        """Return the faults of plugins that answered the same hook of *base*."""
        known = {(fault.plugin, fault.hook) for fault in base.faults}
        return [fault for fault in self.faults if (fault.plugin, fault.hook) not in known]

    def leave_out(self, fault: Fault, answer: Any) -> None:
        """Note a fault in what a plugin contributes, and leave that out from here on.

        Also where the study is varied: whoever does that would fail for the sake of another.
        """
        self.faults.append(fault)
        self.plugins.note(fault)
        self._left_out.add((fault.hook, fault.plugin.name, _called(answer)))
        key = (_contributions, fault.hook)
        if isinstance(known := self._memo.get(key), Answer):
            kept = tuple(pair for pair in known.value if pair[1] is not answer)
            self._memo.keep(key, {}, kept)

    @property
    def operators(self) -> Sequence[Any]:
        """The operators of one rank that plugins describe."""
        return [operator for _, operator in self.contributions("operators")]

    @property
    def parameters(self) -> Sequence[Any]:
        """The parameters of one rank that plugins describe."""
        return [held for _, held in self.contributions("parameters")]

    @property
    def flops(self) -> Sequence[Any]:
        """The model FLOPs per token that plugins describe."""
        return [counted for _, counted in self.contributions("flops")]

    @property
    def trains(self) -> bool:
        """Whether there is a step: without one, a study consists of its calculations."""
        return bool(self.contributions("pipelines"))

    @property
    def calculates(self) -> bool:
        """Whether a calculation answers, or would: a plugin failed in the attempt."""
        answered = bool(self.contributions("calculations"))
        return answered or any(fault.hook == "calculations" for fault in self.faults)

    @property
    def pipeline(self) -> Pipeline:
        """How the step is cut into stages and micro-batches."""
        found = [p for _, p in self.contributions("pipelines")]
        if len(found) != 1:
            plugins = ", ".join(str(p) for p, _ in self.contributions("pipelines")) or "none"
            message = f"one plugin must say how the step is cut, not {len(found)} ({plugins})"
            raise SpecError([Diagnostic("no-pipeline", message, place=self.path or self.name)])
        only: Pipeline = found[0]
        return only if self._structures is None else self._of_first(only)

    def _of_first(self, cut: Pipeline) -> Pipeline:
        """Return how the first of several structures is cut, which depends on the structure."""
        reads = READS.get()
        if reads is not None:
            reads.note(STRUCTURES, self._point[STRUCTURES])
        stages, chunks = (int(plain_first(number)) for number in (cut.stages, cut.chunks))
        return evolve(cut, stages=stages, chunks=chunks)

    @property
    def schedule(self) -> Schedule:
        """The schedule that the step is cut for, with what the study says of it."""
        return self.scheduled(self.pipeline.schedule)

    def scheduled(self, name: str) -> Schedule:
        """Return the schedule called *name*, with what the study says of it."""
        offered = self.plugins.named("schedules")
        if name not in offered:
            message = f"no plugin offers the schedule `{name}`"
            hint = did_you_mean(name, offered)
            place = self.path or self.name
            raise SpecError([Diagnostic("no-schedule", message, help=hint, place=place)])
        plugin, schedule = offered[name]
        found: Schedule = schedule
        for_study = getattr(found, "for_study", None)
        if for_study is None:
            return found
        try:
            found = for_study(self)
        except ParcostError:
            raise
        except BaseException as error:
            reraise_interrupt(error)
            said = f"`for_study` raised {raised(error)}"
            raise FaultError(f"plugin {plugin} failed in `schedules`: {said}") from error
        if not hasattr(found, "name") or not hasattr(found, "order"):
            said = f"`for_study` returned {type(found).__name__} where a schedule is asked for"
            raise FaultError(f"plugin {plugin} failed in `schedules`: {said}")
        return found

    def group(self, name: str) -> Group:
        """Return the group of ranks called *name* (``tp``, ``dp``, ``pp``), as placed."""
        for _, group in self.contributions("groups"):
            if group.name == name:
                found: Group = group
                return found
        known = [group.name for _, group in self.contributions("groups")]
        message = f"no plugin places the group `{name}`"
        hint = did_you_mean(name, known)
        raise SpecError([Diagnostic("no-group", message, help=hint, place=self.path or self.name)])

    def algorithms(self, operation: str) -> Sequence[Collective]:
        """Return every algorithm that offers *operation*; of equally fast ones, the first is used.

        That is the one with the last name. An algorithm with a method ``for_study`` is what
        that returns.
        """
        return self.query(_algorithms, operation)

    def collective(
        self, operation: str, n: Real | Formula, group: str | Group, algorithm: str = "auto"
    ) -> Call:
        """Return the time of *operation* over *n* bytes (as ``Collective`` counts them).

        *n* is a number or a formula, which becomes a part of the explanation.

        ``auto`` is the elementwise minimum over every algorithm that offers the
        operation, but for those that only a name asks for; a name is that algorithm,
        infinite where it cannot run, as is an operation that it does not do at all.
        """
        placed = group if isinstance(group, Group) else self.group(group)
        known = plain_of(n) if self._point else n  # a search prints no formula
        return self.query(_priced, operation, known, placed, algorithm)

    def candidates(self, operation: str, algorithm: str = "auto") -> Sequence[Collective]:
        """Return the algorithms that *algorithm* stands for.

        ``auto`` stands for those of the communication library in use, or for all but those
        that only a name asks for.
        """
        return self.query(_named, operation, algorithm)

    def replace(self, values: Mapping[str, Any]) -> Study:
        """Return the study with other values: ``study.replace({"layout.tp": 8})``.

        Names are paths of attributes; values are numbers in base units, words, or
        expressions of the language. Everything that depends on them follows.

        Raises:
            SpecError: There is no such attribute, or the value does not fit it.
        """
        if self._replace is None:
            message = "the study was built by hand, and has no text to change"
            raise SpecError([Diagnostic("no-text", message, place=self.path or self.name)])
        return self._replace(values)

    def legal(self) -> Mask:
        """Return where the study meets every rule, which says nothing of its memory."""
        from parcost.engine.rules import rules

        holds: Mask = rules(self).holds
        return holds

    def evaluate(self) -> Outcome:
        """Return the step and the memory of the study, whether or not it may run.

        Raises:
            SpecError: It has nothing to train, or no schedule.
            PluginError: The schedule's op order is not one.
        """
        from parcost.engine.reduce import evaluate

        return evaluate(self)

    def with_blocks(self, blocks: Mapping[type, tuple[Any, ...]]) -> Study:
        """Return the study with other blocks and nothing asked yet.

        Unlike :meth:`replace`, no expression of the spec follows: what is not in
        *blocks* stays as it is.
        """
        return evolve(self, blocks={**self.blocks, **blocks}, faults=[], memo=Memo())

    def fresh(self) -> Study:
        """Return the same study with nothing asked yet, for evaluating it again."""
        return evolve(self, faults=[], memo=Memo())

    def forget(self) -> None:
        """Let go of the answers of plugins, which may refer to the study: for batches."""
        self._memo.clear()

    def where(self, subject: str) -> Span | None:
        """Return where the attribute at a path such as ``layout.tp`` was written.

        That is the header of its block where the attribute was left out, and None where
        the block was too.
        """
        if not subject:
            return None
        kind, _, attribute = subject.rpartition(".")
        for blocks in self.blocks.values():
            for block in blocks:
                if kind in (block.label, block_type(type(block)).kind):
                    origins = self.origins.get(id(block), {})
                    for name in (attribute, ""):
                        origin = origins.get(name)
                        if origin is not None and origin.span is not None:
                            return origin.span
        return None

    def origin(self, block: object, attribute: str) -> Origin | None:
        """Return where the value of *attribute* of *block* came from."""
        return self.origins.get(id(block), {}).get(attribute)


def _by_structure(study: Study, function: Callable[..., Any], *arguments: Any) -> Any:
    import numpy as np

    assert study._structures is not None  # noqa: SLF001
    values, counts = [], []
    outer, reads = READS.get(), Reads()
    token = READS.set(reads)
    try:
        for one, count in study._structures():  # noqa: SLF001
            values.append(one.query(function, *arguments))
            counts.append(count)
    finally:
        READS.reset(token)
    if outer is not None:  # a plain answer is that of a structure, and not of the study
        for axis in reads.axes:
            outer.note(axis, study._point[axis])  # noqa: SLF001

    def together(numbers: Sequence[Any]) -> Any:
        if all(number == numbers[0] for number in numbers):
            return numbers[0]
        found = np.asarray(numbers)
        return np.repeat(found if found.dtype == bool else found.astype(np.float64), counts)

    if isinstance(values[0], tuple):
        return tuple(map(together, zip(*values, strict=True)))
    return together(values)


def plain_first(number: Any) -> float:
    """Return a number, or the first one of an array."""
    return float(number.flat[0]) if hasattr(number, "flat") else float(number)


def _called(answer: Any) -> str:
    return str(getattr(answer, "name", getattr(answer, "id", "")))


def _contributions(study: Study, hook: str) -> Sequence[tuple[Plugin, Any]]:
    stamped = study.query(_by_row, hook)
    return counted(study, hook, stamped) if hook in COUNTED else stamped


def counted(
    study: Study, hook: str, stamped: Sequence[tuple[Plugin, Any]]
) -> Sequence[tuple[Plugin, Any]]:
    """Return answers with their counts by virtual stage; those that have none are faults."""
    found = []
    for plugin, answer in stamped:
        row = getattr(answer, "count", None)
        if row.__class__ is not Row:
            found.append((plugin, answer))
            continue
        try:
            count = plain_count(row.of(study))
            said = f"counts {quote(row.of(study))}, which is no number for each virtual stage"
        except ParcostError:
            raise
        except BaseException as error:  # noqa: BLE001  a plugin may fail in any way
            reraise_interrupt(error)
            count, said = None, f"has a count that raised {raised(error)}"
        if count is None:
            message = f"gave `{answer.name}`, which {said}"
            study.faults.append(Fault(plugin=plugin, hook=hook, message=message))
        else:
            found.append((plugin, evolve(answer, count=count)))
    return tuple(found)


def _by_row(study: Study, hook: str) -> Sequence[tuple[Plugin, Any]]:
    if study._point:  # noqa: SLF001  each plugin reads axes of its own
        every = range(len(study.plugins.implementing(hook)))
        each = (study.query(contribution, hook, position) for position in every)
        return tuple(pair for pairs in each for pair in pairs)
    out = study._left_out  # noqa: SLF001
    asked = study.plugins.ask(hook, study.faults, study=study)
    return tuple(
        (plugin, answer)
        for plugin, answer in asked
        if not out or (hook, plugin.name, _called(answer)) not in out
    )


def contribution(study: Study, hook: str, position: int) -> Sequence[tuple[Plugin, Any]]:
    """Return what the plugin in a *position* answers to *hook*, stamped; for queries on axes.

    What an evaluation would leave out is a fault.
    """
    complaint = study._complaint  # noqa: SLF001
    faults, found = len(study.faults), []
    for plugin, answer in study.plugins.ask(hook, study.faults, only=position, study=study):
        wrong = complaint(hook, answer, study) if complaint is not None else ""
        if wrong:
            study.faults.append(Fault(plugin=plugin, hook=hook, message=wrong))
        else:
            found.append((plugin, answer))
    reads = READS.get()
    if study.has_structures and reads is not None and len(study.faults) > faults:
        reads.note(STRUCTURES, study._point[STRUCTURES])  # noqa: SLF001  one by one it may not fail
    return tuple(found)


def _priced(study: Study, operation: str, n: Real | Formula, group: Group, algorithm: str) -> Call:
    size = plain_of(n)
    offered = _offered(study, operation, algorithm)
    if not offered:
        return _never(operation, algorithm, group)
    times = [a.seconds(operation, size, group) for a in offered]
    best = times[0]
    for time in times[1:]:
        best = minimum(best, time)
    chosen = _fastest(offered, times, best)
    used = [times[offered.index(algorithm)] for algorithm in chosen]
    found = price(operation, n, group, chosen, used, best)
    return Call(
        seconds=best,
        algorithm=" or ".join([a.name for a in chosen]),
        formula=found,
    )


def _offered(study: Study, operation: str, algorithm: str) -> Sequence[Collective]:
    """Return the algorithms that *algorithm* stands for: one, or all for ``auto``."""
    offered = study.candidates(operation, algorithm)
    if not offered and algorithm == "auto":
        libraries = [name for _, name in study.contributions("library")]
        who = f"no algorithm of the library `{libraries[0]}`" if libraries else "no plugin"
        message = f"{who} offers `{operation}`"
        help = "another library may, or an algorithm by its name" if libraries else None
        place = study.path or study.name
        raise SpecError([Diagnostic("no-collective", message, help=help, place=place)])
    return offered


def _algorithms(study: Study, operation: str) -> Sequence[Collective]:
    offered = study.plugins.named("collectives")
    able = [offered[n][1] for n in sorted(offered, reverse=True)]
    return tuple(
        a.for_study(study) if hasattr(a, "for_study") else a
        for a in able
        if operation in a.operations
    )


def _named(study: Study, operation: str, algorithm: str) -> Sequence[Collective]:
    known = study.algorithms(operation)
    if algorithm != "auto":
        return tuple(one for one in known if one.name == algorithm)
    for plugin, name in study.contributions("library"):
        offered = study.plugins.named("libraries")
        if name not in offered:
            message = f"names the library `{name}`, which no plugin offers"
            study.leave_out(Fault(plugin=plugin, hook="library", message=message), name)
            continue
        has = offered[name][1].algorithms.get(operation, ())
        return tuple(one for one in known if one.name in has)
    return tuple(one for one in known if operation not in getattr(one, "by_name_only", ()))


def _never(operation: str, algorithm: str, group: Group) -> Call:
    """Return the price of what an algorithm does not do: nothing, for a single rank."""
    seconds = where(group.ranks > 1, INFINITY, 0.0)
    text, inputs = f"{algorithm} does not do {operation}", {"P": group.ranks}
    formula = Formula(text=text, inputs=inputs, value=seconds)
    return Call(seconds=seconds, algorithm=algorithm, formula=formula)


def _fastest(
    offered: Sequence[Collective], times: Sequence[Real], best: Real
) -> Sequence[Collective]:
    """Return the algorithms that are fastest somewhere; each point counts once."""
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
