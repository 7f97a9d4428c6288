"""The execution of one pipeline device as nodes with dependencies.

All ranks of a device run the same nodes; they differ in their groups and their peers. A node lists
the nodes that it depends on. By these rules a replay takes the step time of the report:

- A pass is a chain: kernels between collectives are one compute node, and an exposed collective is
  one node per call. The exposed share of a partly hidden transfer is in the chain. The hidden share
  is a parallel chain, and the next pass depends on it.
- A message is a send after the pass and a receive before the pass that needs it.
- Terms once per step are placed as in the trace: ``fill`` before the first pass of a stage,
  ``drain`` after its last, ``end`` after all passes of the device.
- Other exposed time, such as that of the host, is a compute node without operations. Hidden time
  other than collectives has no node.

So every rank of a group has the same collectives of it in the same order.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from math import ceil
from operator import attrgetter
from typing import Any, NamedTuple

from parcost import (
    Communication,
    Op,
    Pair,
    Slice,
    StageMessage,
    StepTrace,
    ops_of,
    timed_communications,
)
from parcost.contract.traces import COMPUTE_STREAM
from parcost_formats.traces.chakra.schema import COLLECTIVE, COLLECTIVES, COMPUTE, RECEIVE, SEND

_NEARLY = 1e-9
_RING_TAGS = 2**20  # from here on: messages between stages have the numbers below
_AROUND = "point_to_point"


class TraceNode(NamedTuple):
    """A node of every rank of a device; numbers begin at 1.

    A collective has a *call*; so has a message within a group, to the next rank or from the
    previous one. A message between stages has the other device as *peer*.
    """

    number: int
    name: str
    kind: int
    after: Sequence[int]
    seconds: float
    flops: float = 0.0
    bytes_: float = 0.0
    call: Communication | None = None
    peer: int = -1
    tag: int = 0


class StageMessages(NamedTuple):
    """Messages between stages, by the pass that sends and by the pass that receives."""

    out: Mapping[Op, StageMessage]
    into: Mapping[Op, StageMessage]

    @classmethod
    def from_trace(cls, trace: StepTrace) -> StageMessages:
        """Return the messages of *trace*."""
        found = list(trace.messages())
        return cls({m.op: m for m in found}, {m.to: m for m in found})


def device_nodes(trace: StepTrace, device: int, messages: StageMessages) -> Sequence[TraceNode]:
    """Return the nodes of every rank of a *device*."""
    return _DeviceNodes(trace, device, messages).nodes


class _DeviceNodes:
    """Builds the nodes of a device; dependencies are stored as node numbers."""

    def __init__(self, trace: StepTrace, device: int, messages: StageMessages) -> None:
        self.nodes: list[TraceNode] = []
        self._trace, self._messages = trace, messages
        self._virtual = trace.pipeline.stages * trace.pipeline.chunks
        self._ring = 0  # messages in rings so far
        self._occurrences: Mapping[int, int] = {}  # by slice of a pass
        self._end: Sequence[int] = ()  # of the last pass
        self._sends: list[int] = []
        self._released: dict[int, Sequence[int]] = {}  # by stage: dependencies of its first pass
        self._arriving: dict[int, Sequence[Slice]] = {}  # by stage: once it has its first input
        self._joined: dict[int, Sequence[int]] = {}  # and dependencies of its end
        self._bounds: dict[int, tuple[Sequence[int], Sequence[int]]] = {}  # of its last backward
        once = [one for one in trace.slices(device) if one.op is None]
        parts = {
            when: [one for one in once if _when(one) == when] for when in ("fill", "drain", "end")
        }
        self._fill(parts["fill"])
        for op, slices in groupby(self._ops(device), key=attrgetter("op")):
            self._pass(op, [one for one in slices if one.kind != "pass"])
        tails = self._drain(parts["drain"])
        last = [*self._end, *tails, *self._sends]
        rest = [one for one in once if one.kind == "rest"]
        self._chain([*rest, *parts["end"]], _unique(last))

    def _ops(self, device: int) -> Iterator[Slice]:
        return (one for one in self._trace.slices(device) if one.op is not None)

    # --- passes ---------------------------------------------------------------------------

    def _pass(self, op: Op | Pair, slices: Sequence[Slice]) -> None:
        """Add a pass, or two overlapped passes: messages, chain, and hidden work."""
        ops = ops_of(op)
        self._occurrences = _occurrences(slices)
        before = list(self._end)
        for one in ops:
            if (message := self._messages.into.get(one)) is not None:
                before.append(self._message(message, RECEIVE, self._end))
            if one.kind == "F":
                before += self._released.pop(one.stage, ())
                if one.stage in self._arriving:
                    before = list(self._first(one.stage, self._arriving.pop(one.stage), before))
        beside = [one for one in slices if one.beside]
        tails: list[int] = []
        for stream in dict.fromkeys(one.stream for one in beside):
            own = [one for one in beside if one.stream == stream]
            tails += self._chain(own, before, hidden=True)
        end = self._chain([one for one in slices if not one.beside], before)
        done = [*end, *tails]
        for one in ops:
            if one.kind == "F":
                done += self._joined.pop(one.stage, ())
            else:
                self._bounds[one.stage] = (before, end)
        sent = [
            self._message(self._messages.out[one], SEND, done)
            for one in ops
            if one in self._messages.out
        ]
        self._sends += sent
        self._end = _unique([*done, *sent] if self._trace.pipeline.blocking else done)

    def _message(self, message: StageMessage, kind: int, after: Sequence[int]) -> int:
        """Add the send or the receive of a message between stages; the send has the time."""
        op, sends = message.op, kind == SEND
        name = f"{op.kind[0]}{op.micro_batch}, stage {op.stage}"
        return self._add(
            f"{'send' if sends else 'receive'} {name}",
            kind,
            after,
            message.end - message.start if sends else 0.0,
            bytes_=sum(float(edge.bytes_) for _, edge in message.edges),
            peer=message.receiver if sends else message.sender,
            tag=2 * (op.micro_batch * self._virtual + op.stage) + (op.kind == "F"),
        )

    # --- chains -----------------------------------------------------------------------------

    def _chain(
        self, slices: Iterable[Slice], after: Sequence[int], *, hidden: bool = False
    ) -> Sequence[int]:
        """Add *slices* in sequence; return the last nodes, or *after* without slices.

        Of *hidden* slices only collectives become nodes.
        """
        last: Sequence[int] = after
        rows = groupby(slices, key=_has_calls)
        for calls, own in rows:
            if calls:
                for one in own:
                    last = self._calls(one, last)
            elif not hidden:
                last = self._compute(list(own), last)
        return () if hidden and last is after else last

    def _compute(self, slices: Sequence[Slice], after: Sequence[int]) -> Sequence[int]:
        """Add kernels and other exposed time as one node."""
        kernels = [one for one in slices if one.stream == COMPUTE_STREAM and one.kind == "work"]
        seconds = sum(one.end - one.start for one in slices)
        names = list(dict.fromkeys(one.name for one in slices))
        name = names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"
        flops = sum(one.of * one.calls * float(getattr(one.term, "flops", 0.0)) for one in kernels)
        bytes_ = sum(one.of * one.calls * _bytes(one) for one in kernels)
        return [self._add(name, COMPUTE, after, seconds, flops=flops, bytes_=bytes_)]

    def _calls(self, one: Slice, after: Sequence[int]) -> Sequence[int]:
        """Add the calls of a slice, each with equal parts of the slice's seconds and the term's
        bytes.
        """
        assert one.term is not None
        found = timed_communications(one.term.formula)
        each = sum(seconds for _, seconds in found)
        ratio = float(one.term.seconds) / each if each else 1.0
        here = one.calls if id(one) in self._occurrences else one.of * one.calls
        occurrences = _whole(here)
        share = ratio * here / (_whole(ratio) * occurrences)
        repeats = _whole(ratio) * self._occurrences.get(id(one), occurrences)
        seconds, last = one.end - one.start, after
        for _ in range(repeats):
            for call, took in found:
                part = seconds * (took / each if each else 1.0 / len(found)) / repeats
                last = self._call(one.name, call, share * float(call.bytes_), part, last)
        return last

    def _call(
        self, name: str, call: Communication, bytes_: float, seconds: float, after: Sequence[int]
    ) -> Sequence[int]:
        """Add one call of a collective, or the send and receive of a message in a ring."""
        if call.operation != _AROUND:
            size = bytes_ / float(call.group.ranks) if call.operation == "all_gather" else bytes_
            return [self._add(name, COLLECTIVE, after, seconds, bytes_=size, call=call)]
        tag = _RING_TAGS + self._ring
        self._ring += 1
        return [
            self._add(f"{way} {name}", kind, after, part, bytes_=bytes_, call=call, tag=tag)
            for way, kind, part in (("send", SEND, seconds), ("receive", RECEIVE, 0.0))
        ]

    def _add(self, name: str, kind: int, after: Sequence[int], seconds: float, **rest: Any) -> int:
        number = len(self.nodes) + 1
        self.nodes.append(TraceNode(number, name, kind, tuple(after), seconds, **rest))
        return number

    # --- once per step ----------------------------------------------------------------------

    def _fill(self, slices: Sequence[Slice]) -> None:
        """Add the work of stages before their first pass, one stage after another."""
        tail: Sequence[int] = ()
        for stage in dict.fromkeys(one.stage for one in slices):
            own = [one for one in slices if one.stage == stage]
            if any(getattr(one.term, "on_arrival", False) for one in own):
                self._arriving[stage] = own
            else:
                self._released[stage] = self._first(stage, own, tail)
                tail = self._joined[stage]

    def _first(self, stage: int, own: Sequence[Slice], after: Sequence[int]) -> Sequence[int]:
        """Add the work of a stage before its first pass; return the nodes that it waits for."""
        head = self._chain([s for s in own if s.kind == "once" and not s.beside], after)
        released = self._chain([s for s in own if s.kind == "slowdown"], head)
        self._joined[stage] = self._chain([s for s in own if s.beside], head)
        return released

    def _drain(self, slices: Sequence[Slice]) -> Sequence[int]:
        """Add the work of stages after their last pass; return the last nodes."""
        tail: Sequence[int] = ()
        for stage in dict.fromkeys(one.stage for one in slices):
            own = [one for one in slices if one.stage == stage]
            before, end = self._bounds[stage]
            if any(getattr(one.term, "after_device", False) for one in own):
                before = end = self._end  # of the last pass of the device
            under = self._chain([s for s in own if s.beside], _unique([*tail, *before]))
            slower = self._chain([s for s in own if s.kind == "slowdown"], end)
            behind = _unique([*under, *slower])
            tail = self._chain([s for s in own if s.kind == "once" and not s.beside], behind)
        return tail


def _when(one: Slice) -> str:
    return getattr(one.term, "when", "")


def _bytes(one: Slice) -> float:
    return 0.0 if one.term is None else float(one.term.bytes_)


def _has_calls(one: Slice) -> bool:
    """Return whether a slice consists of collectives whose groups list their ranks."""
    if one.term is None or one.kind == "slowdown":
        return False
    found = timed_communications(one.term.formula)
    return bool(found) and all(
        call.group.members is not None and (call.operation in {*COLLECTIVES, _AROUND})
        for call, _ in found
    )


def _occurrences(slices: Iterable[Slice]) -> Mapping[int, int]:
    """Return the calls of each slice of a pass, by its ``id``, exposed ones first.

    The calls of the slices of one term add up to the calls of the term; some slices may have none.
    """
    own: dict[int, list[Slice]] = {}
    for one in sorted(slices, key=attrgetter("beside")):
        if _has_calls(one):
            own.setdefault(id(one.term), []).append(one)
    found: dict[int, int] = {}
    for parts in own.values():
        here, before = 0.0, 0
        for one in parts:
            here += one.of * one.calls
            found[id(one)] = min(_whole(here), _whole(one.calls)) - before
            before += found[id(one)]
    return found


def _whole(number: float) -> int:
    """Return a number of calls as an integer of at least 1, rounded up except for rounding errors.

    >>> _whole(2.0000000001), _whole(0.25), _whole(2.5)
    (2, 1, 3)
    """
    return max(ceil(number - _NEARLY), 1)


def _unique(numbers: Iterable[int]) -> Sequence[int]:
    """Return node numbers without duplicates."""
    return list(dict.fromkeys(numbers))
