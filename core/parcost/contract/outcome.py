"""The outcome of an evaluation: the ledger of the step, and the memory.

Every number may be an array over the study's axes. The step time is *defined* as the sum of the
exposed seconds of the ledger, in order. The memory is the sum of the memory lines. So both sums are
exact.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property, partial
from typing import Literal, Protocol

from attrs import field

from parcost.contract.checks import Check
from parcost.contract.formulas import Formula, formula
from parcost.contract.pipelines import Activity, Pipeline
from parcost.contract.plugin import Fault, Plugin
from parcost.contract.terms import Cause, Edge, Memory, Moment, Once, Work
from parcost.numeric import Mask, Real, all_of
from parcost.records import record

#: The cause of a term that names none, and of what a pipeline idles.
OTHER = Cause("other", color="#B0B6BC")
BUBBLE = Cause("pipeline bubble", color="#8C8C8C")


@record(kw_only=True, eq=False)
class LedgerLine:
    """One line of the ledger, for one step, on the reference device.

    *kind* is ``work`` (in every micro-batch), ``slowdown`` (of compute), ``bubble`` (fill and
    drain), ``send_recv`` (between stages), or ``once`` (per step). *exposed* seconds count towards
    the step time; *hidden* seconds overlap with other work. *times* is how often a term occurs in
    the step: ``exposed + hidden`` is its ``seconds`` times *times* for ``work`` and ``once``; for
    ``send_recv``, *times* is the number of messages that the device sends. *term* is None for lines
    that the core adds itself. *cause* is the cause of the term, or of the term that slows compute
    down.
    """

    name: str
    kind: Literal["work", "slowdown", "bubble", "send_recv", "once"]
    exposed: Real
    hidden: Real
    pass_: str
    resource: str
    formula: Formula
    times: Real = 1.0
    plugin: Plugin | None = None
    term: Work | Edge | Once | None = None
    cause: str = OTHER

    @property
    def limit(self) -> str:
        """The resource that limits the term: its own, or another one that it keeps busy all the
        time.
        """
        also, busy = getattr(self.term, "also", ()), getattr(self.term, "also_busy", ())
        full = [name for name, share in zip(also, busy, strict=True) if all_of(share >= 1)]
        return full[0] if full else self.resource


@record(kw_only=True, eq=False)
class MemoryLine:
    """One memory term on the device with the highest peak, at that moment.

    *left* is the share that stays on the device: a part of the activations may be offloaded.
    """

    name: str
    bytes_: Real
    formula: Formula
    plugin: Plugin
    term: Memory
    left: Real = 1.0

    @property
    def cause(self) -> str:
        """The category of the memory, such as ``optimizer``."""
        return self.term.cause or OTHER


class StepReplay(Protocol):
    """The replayed pipeline of a step."""

    def device_seconds(self) -> Sequence[Real]:
        """Return the busy time of each device in passes, in seconds."""

    def device_alive(self) -> Sequence[Real]:
        """Return the maximum number of micro-batches in flight on each device."""

    def activities(self) -> Sequence[Sequence[Activity]]:
        """Return the passes of each device with their times, in order."""

    def pass_parts(self) -> Mapping[tuple[str, int], Mapping[str, float]]:
        """Return the exposed seconds of a pass on a virtual stage, by cause."""

    def memory_by_moment(self) -> Sequence[Mapping[Moment, Sequence[MemoryLine]]]:
        """Return the memory lines of each device at each moment."""


@record(kw_only=True, eq=False)
class Outcome:
    """The step time and the memory of a study.

    *device* is the reference device (the busiest; ties to the lowest index). *ideal_seconds* is the
    busy time of that device; *makespan_seconds* is the time of the pipeline without the terms that
    occur once per step. ``device_memory[i]`` is the peak memory of device i; *memory_device* and
    *memory_moment* are the device and the moment of the overall peak. ``device_reserved[i]`` is the
    peak with the freed blocks that an allocator keeps. *flops* are the FLOPs executed on the
    reference device in one step.
    """

    pipeline: Pipeline
    step_seconds: Real
    ledger: Sequence[LedgerLine]
    device: Real
    ideal_seconds: Real
    makespan_seconds: Real
    flops: Real
    memory_bytes: Real
    memory_lines: Sequence[MemoryLine]
    memory_device: Real
    memory_moment: Moment | Sequence[Moment]
    device_memory: Sequence[Real]
    device_reserved: Sequence[Real]
    alive: Sequence[Real]  # most micro-batches (or chunks) alive, by virtual stage
    feasible: Mask = True
    failed: Sequence[Check] = ()  # the rules that fail somewhere, warnings included
    run: StepReplay | None = field(default=None, repr=False)
    kernels: Callable[[], Sequence[Real]] | None = field(default=None, repr=False)
    faults: Sequence[Fault] = ()

    @cached_property
    def step_formula(self) -> Formula:
        """The step time in seconds as the sum of the ledger; always the same object, so that pages
        print it once.
        """
        return Formula(
            text="sum of the ledger",
            source="exposed time of each term",
            value=self.step_seconds,
            explain=partial(_step_formula, self.ledger),
        )

    @property
    def seconds_by_cause(self) -> Mapping[str, Real]:
        """The exposed seconds of the step by cause; their sum is the step time."""
        return _by_cause((line.cause, line.exposed) for line in self.ledger)

    @property
    def memory_by_cause(self) -> Mapping[str, Real]:
        """The peak memory in bytes by cause, on the device with the highest peak."""
        return _by_cause((line.cause, line.bytes_) for line in self.memory_lines)

    @property
    def device_seconds(self) -> Sequence[Real]:
        """The busy time of each device in seconds; on the reference device, *ideal_seconds*."""
        return self._run.device_seconds()

    @property
    def kernel_seconds(self) -> Sequence[Real]:
        """The seconds of a step in which kernels run, on each device; in the remaining time the
        device waits.
        """
        if self.kernels is None:
            raise ValueError("`kernel_seconds` needs an outcome of `evaluate`")
        return self.kernels()

    @property
    def device_alive(self) -> Sequence[Real]:
        """Maximum number of micro-batches in flight on each device, over all its stages."""
        return self._run.device_alive()

    def timeline(self) -> Sequence[Sequence[Activity]]:
        """Return the passes of each device over time, in a pipeline without once-per-step terms.

        Raises:
            ValueError: The outcome is of a sweep, which has no single timeline.
        """
        return self._run.activities()

    def pass_parts(self) -> Mapping[tuple[str, int], Mapping[str, float]]:
        """Return the exposed seconds of the passes of a micro-batch on a virtual stage, by cause.

        Keys are the kind of a pass, as in :class:`Op`, and the stage.
        """
        return self._run.pass_parts()

    def memory_by_moment(self) -> Sequence[Mapping[Moment, Sequence[MemoryLine]]]:
        """Return the memory lines of each device at each moment."""
        return self._memory_by_moment

    @cached_property
    def _memory_by_moment(self) -> Sequence[Mapping[Moment, Sequence[MemoryLine]]]:
        return self._run.memory_by_moment()

    @property
    def _run(self) -> StepReplay:
        if self.run is None:
            raise ValueError("an outcome built by hand has no pipeline")
        return self.run

    @property
    def complete(self) -> bool:
        """Whether every plugin answered; a report that is not complete says so."""
        return not self.faults


def exposed_seconds(lines: Iterable[LedgerLine]) -> Formula:
    """Return the sum of the exposed seconds of some lines of the ledger, as a formula."""
    seconds: dict[str, Real] = {}
    for line in lines:
        name = f"{line.name}, {line.pass_}" if line.pass_ else line.name
        seconds[name] = seconds.get(name, 0.0) + line.exposed
    return formula("sum(t)", t=(seconds, "s"), source="exposed time of each term")


def _step_formula(ledger: Sequence[LedgerLine]) -> Formula:
    """Return the sum of the ledger as a formula with one operand for each kind of line."""
    kinds = dict.fromkeys(line.kind for line in ledger)
    parts = {
        str(kind): (exposed_seconds(line for line in ledger if line.kind == kind), "s")
        for kind in kinds
    }
    return formula(" + ".join(parts) or "0", parts)


def _by_cause(amounts: Iterable[tuple[str, Real]]) -> Mapping[str, Real]:
    sums: dict[str, Real] = {}
    for cause, amount in amounts:
        sums[cause] = sums.get(cause, 0.0) + amount
    return sums
