"""A study: the blocks of one scenario as typed objects, and the answers of plugins about it.

Plugins read blocks by class, ``study[Layout].tp``, and use the contributions of other plugins
through the study, never by importing them: ``study.collective(...)`` picks among the algorithms
that plugins offer, ``study.operators`` are the operators that model plugins describe. All objects
are immutable, and results are computed once per evaluation.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Any, TypeVar

from attrs import field

from parcost.contract.fields import Record
from parcost.contract.formulas import Formula
from parcost.contract.groups import ClosedForm, Group, Phase
from parcost.contract.origin import Origin
from parcost.contract.outcome import Outcome
from parcost.contract.pipelines import Case, Op, Pair, Pipeline, PipelineShape, Times
from parcost.contract.plugin import Fault, Plugin, PluginSet
from parcost.contract.schema import block_type, with_inner_blocks
from parcost.contract.terms import Operator
from parcost.language.diagnostics import Diagnostic, did_you_mean
from parcost.language.errors import SpecError
from parcost.language.text import Span
from parcost.numeric import Mask, Real
from parcost.records import record

T = TypeVar("T")


@record(kw_only=True, eq=False)
class Call:
    """A collective with its cost: its time, the algorithm (or algorithms) and the formula.

    *latency* is the time in seconds of an empty message, if the group spans several levels; else 0.
    """

    seconds: Real
    algorithm: str
    formula: Formula
    latency: Real = 0.0


class Schedule(ABC):
    """A pipeline schedule. A plugin needs to write only ``name`` and ``order``.

    The core derives everything else from the order, once for each (stages, micro-batches, chunks):
    the devices of each virtual stage, the micro-batches in flight and, by replay, the time. Its
    cache uses object identity, so always return the same object.

    A search bounds layouts by the order for slightly more micro-batches than twice the stages. It
    assumes that with more micro-batches each device has the same stages and the same first and last
    stage. It also assumes that devices then have at least as many micro-batches in flight.

    Every optional method has one argument and may return None; then the core computes the answer.
    """

    name: str
    #: On how many devices each virtual stage is. With more than one, a micro-batch runs through
    #: the copies that list it. What stages hold or do once per step counts on every copy.
    copies: int = 1
    #: The training frameworks that have the schedule, each with its source: a file or a page.
    frameworks: Mapping[str, str] = MappingProxyType({})
    #: Whether a search takes it without its name. Else the search prints that it was left out.
    search_default: bool = False
    #: Whether ``closed_form`` and ``spans`` take hops that differ between boundaries. Else the
    #: core replays where they do.
    hop_by_boundary: bool = False

    @abstractmethod
    def order(self, stages: int, micro_batches: int, chunks: int) -> Sequence[Sequence[Op | Pair]]:
        """Return the list of ops of each of *stages* devices, in order.

        Each virtual stage ``0 .. stages * chunks - 1`` needs an F and either a BW, or a B and a W,
        for each micro-batch ``0 .. micro_batches - 1``, all on one device. A virtual stage is on
        the devices whose lists contain it. Devices work strictly in order; an op starts when its
        device is free and its input has arrived. F follows F of the previous stage; B and BW follow
        B of the next stage. A gradient leaves at the end of its op.
        """

    def for_study(self, study: Study) -> Schedule:  # noqa: ARG002
        """Return the schedule with its options from the study, such as a group size.

        Return the same object for the same values: cache it.
        """
        return self

    def limits(self, shape: PipelineShape) -> str | None:  # noqa: ARG002
        """Return the reason why the schedule does not support *shape*, or None.

        The core calls it before ``order``.
        """
        return None

    def period(self, stages: int, chunks: int) -> int | None:  # noqa: ARG002
        """Return the period of the order in micro-batches, or None if it is not periodic.

        With one more period of micro-batches, the order has one more round of ops before cool-down,
        and is otherwise unchanged. A replay computes only a few of the rounds.
        """
        return None

    def closed_form(self, case: Case) -> tuple[Real, Mask] | None:  # noqa: ARG002
        """Return the makespan of each pipeline of *case* in seconds in closed form, and the mask
        where it is valid.

        Where the mask is true, it equals the replay with non-blocking messages. Elsewhere the
        seconds are arbitrary.
        """
        return None

    def spans(self, case: Case) -> tuple[Sequence[Real], Sequence[Real]] | None:  # noqa: ARG002
        """Return the start and end of the first stage of each run, where ``closed_form`` is valid.

        In seconds: the start of its first forward pass, and the end of its last backward pass. They
        determine the time that can be hidden in fill and drain. Further stages of a run start later
        and end earlier. Without spans, the core replays the order if terms need them.
        """
        return None

    def lower_bound(self, case: Case) -> Real | None:  # noqa: ARG002
        """Return a lower bound of the makespan in seconds.

        ``case.hop`` is the time of the fastest message. Without this method, the core computes a
        bound from the busiest device. It includes the time before its first op and after its last.
        """
        return None


@record(kw_only=True, eq=False)
class Replay(Record):
    """A pipeline without other parts of a step, drawn by ``parcost timeline``.

    *hop* is the time in seconds of a message between neighbouring devices.
    """

    name: str
    schedule: Schedule
    pipeline: Pipeline
    times: Times
    hop: Real = 0.0


class Collective(ABC):
    """An algorithm for one or more collective operations.

    ``operations`` is a subset of: all_reduce, all_gather, reduce_scatter, broadcast, reduce,
    scatter, gather, all_to_all, point_to_point. *n* is the size of the full buffer per rank in
    bytes: the total output of an all-gather or gather; the total input of a reduce-scatter or
    scatter; all blocks of one rank in an all-to-all, including the one that it keeps.
    """

    name: str
    operations: Collection[str]
    source: str = ""
    #: The operations for which ``auto`` leaves it out: a bound that nothing reaches, or what
    #: another algorithm always beats.
    by_name_only: Collection[str] = frozenset()
    #: The operations that need a power of two of ranks: a rule names the nearest ones.
    powers_of_two: Collection[str] = frozenset()

    @abstractmethod
    def seconds(self, operation: str, n: Real, group: Group) -> Real:
        """Return the time of one call in seconds; infinity if the algorithm cannot run."""

    def closed_form(self, operation: str, group: Group) -> ClosedForm | None:  # noqa: ARG002
        """Return the time as one expression; None if no single expression exists.

        A report prints it if it equals ``seconds``; otherwise the report prints the phases.
        """
        return None

    def for_study(self, study: Study) -> Collective:  # noqa: ARG002
        """Return the algorithm with the options of its blocks in *study*."""
        return self

    def able(self, operation: str, group: Group) -> Mask:  # noqa: ARG002
        """Return the mask of points at which the algorithm can run."""
        return True

    def needs(self, operation: str) -> str:  # noqa: ARG002
        """Return the condition for the algorithm to run, in words."""
        return ""

    def remedy(self, group: Group, fabric: str) -> str:  # noqa: ARG002
        """Return the change of a spec that allows the algorithm to run, "" if no change does.

        *fabric* is the name of the block of the fabric.
        """
        return ""

    def phases(self, operation: str, n: Real, group: Group) -> Sequence[Phase] | None:  # noqa: ARG002
        """Return the phases of a call, each with its messages on one link; None if unknown."""
        return None

    def cut(self, pieces: Real) -> Collective | None:  # noqa: ARG002
        """Return the pipelined algorithm with this number of *pieces*; None if it cannot be
        pipelined.
        """
        return None


class KernelModel(ABC):
    """A model of kernel time: it estimates the time of each operator of a rank on a device."""

    name: str

    @abstractmethod
    def price(self, operator: Operator, study: Study) -> Formula | None:
        """Return the seconds of one occurrence, with their formula.

        None if the model does not know the operator.
        """


@record(eq=False, repr=False)
class Study(ABC):
    """One scenario. ``study[Layout]`` is its only block of that class.

    *axes* are the swept attributes: names and values, in the order of array axes. *lets* are the
    values of names outside of blocks, as written.
    """

    name: str
    blocks: Mapping[type, tuple[Any, ...]]
    plugins: PluginSet
    axes: Sequence[tuple[str, Sequence[Any]]] = ()
    origins: Mapping[int, Mapping[str, Origin]] = field(factory=dict, repr=False)
    path: str = ""
    lacking: Mapping[type, Sequence[Diagnostic]] = field(factory=dict, repr=False)
    faults: list[Fault] = field(factory=list, repr=False)
    lets: Mapping[str, str] = field(factory=dict, repr=False)

    def __repr__(self) -> str:
        """Return the name and the file, in one line."""
        return f"<Study `{self.name}` of `{self.path}`: {len(self.blocks)} kinds of blocks>"

    def __getitem__(self, schema: type[T]) -> T:
        """Return the only block of this class.

        Raises:
            SpecError: The study has none, or several.
        """
        try:
            (only,) = self.blocks[schema]
        except (KeyError, ValueError):
            raise self._no_single_block(schema) from None
        return only  # type: ignore[no-any-return]

    def _no_single_block(self, schema: type) -> SpecError:
        found = self.blocks.get(schema, ())
        if not found and schema in self.lacking:
            return SpecError(self.lacking[schema])
        type_ = block_type(schema)
        kind = type_.kind
        labels = ", ".join(f"`{b.label}`" for b in found)
        message = (
            f"the study has {len(found)} `{kind}` blocks ({labels}); it needs exactly one"
            if found
            else f"the study needs a `{kind}` block"
        )
        place = self.path or self.name
        copy = f"for example `{type_.example}`" if type_.example and not found else None
        return SpecError([Diagnostic("missing-block", message, place=place, help=copy)])

    def get(self, schema: type[T]) -> T | None:
        """Return the only block of this class, or None without one."""
        return self[schema] if self.blocks.get(schema) else None

    def all(self, schema: type[T]) -> Sequence[T]:
        """Return every block of this class."""
        return self.blocks.get(schema, ())

    def where(self, subject: str) -> Span | None:
        """Return the span in the file that sets the attribute at a path such as ``layout.tp``.

        If the attribute is not set, it is the span of the block header; without the block, None. A
        nested block, such as a level of a fabric, is found by its label if it is unique.
        """
        if not subject:
            return None
        kind, dot, attribute = subject.rpartition(".")
        if not dot:  # a block by itself
            kind, attribute = subject, ""
        outer = [block for blocks in self.blocks.values() for block in blocks]
        for block in outer:
            if kind in (block.label, block_type(type(block)).kind):
                span = self._span(block, attribute)
                if span is not None:
                    return span
        every = [block for top in outer for block in with_inner_blocks(top) if block is not top]
        inside = [self._span(block, attribute) for block in every if block.label == kind]
        places = [span for span in inside if span is not None]
        return places[0] if len(places) == 1 else None

    def _span(self, block: Any, attribute: str) -> Span | None:
        """Return where *attribute* of *block* is set, or else the header of the block."""
        origins = self.origins.get(id(block), {})
        for name in (attribute, ""):
            origin = origins.get(name)
            if origin is not None and origin.span is not None:
                return origin.span
        return None

    def origin(self, block: object, attribute: str) -> Origin | None:
        """Return the origin of the value of *attribute* of *block*."""
        return self.origins.get(id(block), {}).get(attribute)

    # --- what plugins contribute, asked once --------------------------------------

    @abstractmethod
    def query(self, function: Callable[..., T], *arguments: Any) -> T:
        """Return ``function(self, *arguments)``, cached by the values that it reads.

        Hooks and functions of plugins must share results this way: a separate cache would hide the
        values on which a result depends. *arguments* may be numbers, words, arrays and blocks. A
        :func:`parcost.pure_function` is called without the study. A :func:`parcost.stage_number` or
        :func:`parcost.stage_counts` is called for each number of stages of a search; other
        functions that read the stages make their plugin be called once for each.
        """

    @abstractmethod
    def contributions(self, hook: str) -> Sequence[tuple[Plugin, Any]]:
        """Return the valid results of *hook* of every plugin for this study."""

    @property
    def operators(self) -> Sequence[Any]:
        """The operators of one rank, as model plugins describe them."""
        return [operator for _, operator in self.contributions("operators")]

    @property
    def parameters(self) -> Sequence[Any]:
        """The parameters of one rank, as model plugins describe them."""
        return [held for _, held in self.contributions("parameters")]

    @property
    def flops(self) -> Sequence[Any]:
        """The model FLOPs per token, as model plugins describe them."""
        return [counted for _, counted in self.contributions("flops")]

    @property
    def trains(self) -> bool:
        """Whether there is a training step: without one, a study consists of its calculations."""
        return bool(self.contributions("pipelines"))

    @property
    def calculates(self) -> bool:
        """Whether a plugin returned a calculation, or failed to compute one."""
        answered = bool(self.contributions("calculations"))
        return answered or any(fault.hook == "calculations" for fault in self.faults)

    @property
    def pipeline(self) -> Pipeline:
        """The split of the step into stages and micro-batches."""
        found = [p for _, p in self.contributions("pipelines")]
        if len(found) != 1:
            plugins = ", ".join(str(p) for p, _ in self.contributions("pipelines")) or "none"
            message = (
                f"exactly one plugin must define the pipeline split, not {len(found)} ({plugins})"
            )
            notes, place = tuple(self.plugins.absences), self.path or self.name
            raise SpecError([Diagnostic("no-pipeline", message, notes=notes, place=place)])
        only: Pipeline = found[0]
        return only

    @property
    def schedule(self) -> Schedule:
        """The pipeline schedule of the step, with its options from the study."""
        return self.schedule_named(self.pipeline.schedule)

    def group(self, name: str) -> Group:
        """Return the group of ranks called *name* (``tp``, ``dp``, ``pp``), with its links."""
        for _, group in self.contributions("groups"):
            if group.name == name:
                found: Group = group
                return found
        known = [group.name for _, group in self.contributions("groups")]
        message = f"no plugin places the group `{name}`"
        hint = did_you_mean(name, known)
        place, notes = self.path or self.name, tuple(self.plugins.absences)
        raise SpecError([Diagnostic("no-group", message, notes=notes, help=hint, place=place)])

    @abstractmethod
    def schedule_named(self, name: str) -> Schedule:
        """Return the schedule called *name*, with its options from the study."""

    @abstractmethod
    def algorithms(self, operation: str) -> Sequence[Collective]:
        """Return every algorithm that supports *operation*, in descending order of names; of
        equally fast ones, the first one is used. An algorithm with a method ``for_study`` is
        replaced by its result.
        """

    @abstractmethod
    def collective(
        self, operation: str, n: Real | Formula, group: str | Group, algorithm: str = "auto"
    ) -> Call:
        """Return the time of *operation* over *n* bytes (as ``Collective`` counts them) in seconds.

        *n* is a number or a formula, which becomes a part of the explanation.

        ``auto`` is the elementwise minimum over all algorithms that support the operation, except
        those used by name only. Any other word is the name of an algorithm. The time is infinite
        where the algorithm cannot run, or if it does not support the operation.
        """

    @abstractmethod
    def candidates(self, operation: str, algorithm: str = "auto") -> Sequence[Collective]:
        """Return the algorithms that the name *algorithm* selects.

        ``auto`` selects the algorithms of the communication library in use. Without a library it
        selects all except algorithms used by name only.
        """

    @abstractmethod
    def replace(self, values: Mapping[str, Any]) -> Study:
        """Return the study with other values: ``study.replace({"layout.tp": 8})``.

        Names are paths of attributes; values are numbers in base units, words, or expressions of
        the language. All values that depend on them are computed again.

        Raises:
            SpecError: There is no such attribute, or the value does not fit it.
        """

    def as_written(self) -> Study:
        """Return the study of the file alone, ignoring values from the command line or
        :meth:`replace`.

        A study that was built by hand is returned unchanged.

        Raises:
            SpecError: The file alone is not a study.
        """
        return self

    @property
    def command(self) -> str:
        """The command that evaluates the study, with the values that :meth:`replace` set.

        It is empty for a study that was built by hand.
        """
        return ""

    @abstractmethod
    def legal(self) -> Mask:
        """Return the mask of points that pass all rules that need no evaluation; memory is not
        checked.
        """

    @abstractmethod
    def evaluate(self) -> Outcome:
        """Return the outcome (step time and memory) of the study, even if it is invalid.

        Raises:
            SpecError: The study has nothing to train, or no schedule.
            PluginError: The op order of the schedule is invalid.
        """

    @abstractmethod
    def with_blocks(self, blocks: Mapping[type, tuple[Any, ...]]) -> Study:
        """Return the study with other blocks and empty caches.

        Unlike :meth:`replace`, no expression of the spec is evaluated again: all other blocks are
        unchanged.
        """

    # --- what the engine does with studies ------------------------------------------

    def faults_beyond(self, base: Study) -> Sequence[Fault]:
        """Return the faults that are not in *base*, compared by plugin and hook."""
        known = {(fault.plugin, fault.hook) for fault in base.faults}
        return [fault for fault in self.faults if (fault.plugin, fault.hook) not in known]

    @abstractmethod
    def leave_out(self, fault: Fault, answer: Any) -> None:
        """Record a fault in a contribution of a plugin, and omit that contribution from now on.

        Variants of the study omit it as well.
        """

    @abstractmethod
    def fresh(self) -> Study:
        """Return the same study with empty caches, for evaluating it again."""

    @abstractmethod
    def release(self) -> None:
        """Drop the cached answers of plugins, which may refer to the study; used by batches."""
