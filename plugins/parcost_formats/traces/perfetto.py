"""Traces of a step for viewers: ``parcost timeline --format perfetto``.

They are trace events in JSON, for ui.perfetto.dev, chrome://tracing and viewers of PyTorch
profiles. A process is a pipeline device, a thread one of its streams. Another process has the
ledger of the report: its exposed seconds, one line after another. Arrows connect the pass that
sends a message with the pass that waits for it. A counter shows the memory of each device.

    ph  meaning
    M   the name of a process or a thread, and its place on the page
    X   a slice: `ts` and `dur` in microseconds
    s f the start and the end of an arrow
    C   a counter

Slices of a thread never overlap, in numbers of 64 bits and in the whole nanoseconds of viewers.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from math import nextafter
from typing import Any

from parcost import (
    Diagnostic,
    Formula,
    Op,
    Slice,
    SpecError,
    StageMessage,
    StepTrace,
    TimelineExporter,
    hookimpl,
    ops_of,
)
from parcost.contract.page import Paper
from parcost.contract.traces import COMPUTE_STREAM, PASS_STREAM
from parcost_formats.rendering.json_header import header

_MICROSECONDS = 1e6
_MOST_SLICES = 2_000_000  # some 1 GB, which the viewers still open
_LEDGER, _SEND = "ledger", "send"
_FIRST = (PASS_STREAM, COMPUTE_STREAM)


class Perfetto(TimelineExporter):
    """Trace events of every term of a step."""

    name = "perfetto"

    def write(self, traces: Iterable[StepTrace], paper: Paper) -> Iterator[str]:  # noqa: ARG002
        """Yield the document, event by event.

        Raises:
            SpecError: There are more slices than a viewer opens.
        """
        yield '{"displayTimeUnit": "ms", "traceEvents": [\n'
        pid, separator = 0, ""
        others: list[dict[str, Any]] = []
        for trace in traces:
            _check_size(trace)
            others.append(_summary(trace))
            writer = _Events(trace, pid)
            for event in writer.events():
                yield separator + event
                separator = ",\n"
            pid += writer.processes
        yield '\n], "otherData": ' + _json({**header(), "steps": others}) + "}\n"


def _check_size(trace: StepTrace) -> None:
    """Reject a trace that is too large for viewers."""
    found, cut = trace.slice_count(), trace.pipeline
    if found <= _MOST_SLICES:
        return
    passes = sum(map(len, trace.passes()))
    message = (
        f"the trace of `{trace.name}` has {found:,} slices, in {passes:,} passes of "
        f"{cut.stages} devices and {cut.micro_batches:g} micro-batches"
    )
    most = int(cut.micro_batches * _MOST_SLICES / found)
    help = f"the limit of a trace is {_MOST_SLICES:,}: use about {most} micro-batches"
    raise SpecError([Diagnostic("trace-size", message, help=help, place=trace.path)])


def _summary(trace: StepTrace) -> dict[str, Any]:
    """Return the metadata of a trace: study, point, pipeline and step time."""
    return {
        "study": trace.name,
        "path": trace.path,
        "at": {name: str(value) for name, value in trace.at.items()},
        "pipeline": trace.part or trace.pipeline.schedule,
        "step_seconds": trace.seconds,
        "devices": trace.pipeline.stages,
    }


class _Events:
    """The events of one step; its process ids start at a given number."""

    def __init__(self, trace: StepTrace, pid: int) -> None:
        self._trace = trace
        self._first = pid + bool(trace.ledger)  # of the devices
        self._pid = pid
        self._threads: dict[tuple[int, str], int] = {}
        self._texts: dict[tuple[int, str], str] = {}
        self._title = f"{trace.name}: {trace.part}" if trace.part else trace.name
        self.processes = trace.pipeline.stages + bool(trace.ledger)

    def events(self) -> Iterator[str]:
        """Yield every event as JSON."""
        trace = self._trace
        if trace.ledger:
            yield from self._process(self._pid, f"{self._title}: step by term")
            yield from self._ledger()
        for d in range(trace.pipeline.stages):
            held = ", ".join(map(str, trace.held[d]))
            stages = "stage" if len(trace.held[d]) == 1 else "stages"
            yield from self._process(self._first + d, f"{self._title}: device {d}, {stages} {held}")
            for one in trace.slices(d):
                yield from self._slice(d, one)
            for at, bytes_ in trace.memory(d):
                values = {"ph": "C", "pid": self._first + d, "name": "memory"}
                yield _json({**values, "ts": at * _MICROSECONDS, "args": {"bytes": bytes_}})
        yield from self._messages()

    def _process(self, pid: int, name: str) -> Iterator[str]:
        yield _json({"ph": "M", "pid": pid, "name": "process_name", "args": {"name": name}})
        place = {"sort_index": pid}
        yield _json({"ph": "M", "pid": pid, "name": "process_sort_index", "args": place})

    def _thread(self, pid: int, stream: str) -> Iterator[str]:
        """Yield the name and the sort order of a thread, once per thread."""
        if (pid, stream) in self._threads:
            return
        tid = 1 + sum(1 for process, _ in self._threads if process == pid)
        self._threads[pid, stream] = tid
        at = _FIRST.index(stream) if stream in _FIRST else len(_FIRST) + tid
        for name, args in (
            ("thread_name", {"name": stream}),
            ("thread_sort_index", {"sort_index": at}),
        ):
            yield _json({"ph": "M", "pid": pid, "tid": tid, "name": name, "args": args})

    def _event(
        self, pid: int, stream: str, name: str, cause: str, span: tuple[float, float], args: str
    ) -> str:
        """Return a slice event; *name*, *cause* and *args* are JSON texts."""
        ts, dur = _span(*span)
        tid = self._threads[pid, stream]
        where = f'"ph":"X","pid":{pid},"tid":{tid},"ts":{ts!r},"dur":{dur!r}'
        return f'{{{where},"name":{name},"cat":{cause},"args":{{{args}}}}}'

    def _ledger(self) -> Iterator[str]:
        """Yield the lines of the ledger, one after another in time."""
        yield from self._thread(self._pid, _LEDGER)
        at = 0.0
        for line in self._trace.ledger:
            end = at + float(line.exposed)
            args = {
                "kind": line.kind,
                "pass": line.pass_,
                "exposed_seconds": float(line.exposed),
                "hidden_seconds": float(line.hidden),
                "times": float(line.times),
                **_explanation(line.formula),
            }
            text = _json(args)[1:-1]
            name, cause = _json(line.name), _json(line.cause)
            yield self._event(self._pid, _LEDGER, name, cause, (at, end), text)
            at = end

    def _slice(self, d: int, one: Slice) -> Iterator[str]:
        """Yield a slice of a device, after the name of its thread if it is new."""
        pid = self._first + d
        yield from self._thread(pid, one.stream)
        term = one.term
        args = [f'"seconds":{one.end - one.start!r}', *_pass_args(one, self._trace.held[d])]
        if term is None:
            cause = '"pass"' if one.kind == "pass" else '"rest"'
        else:
            hides = "true" if one.beside else "false"
            args += [f'"beside_other_work":{hides}', f'"calls":{one.calls!r}']
            key = (id(term), one.kind)
            if key not in self._texts:
                self._texts[key] = _json(_term_args(one))[1:-1]
            args.append(self._texts[key])
            cause = _json(term.cause or "other")
        span = (one.start, one.end)
        yield self._event(pid, one.stream, _json(one.name), cause, span, ",".join(args))

    def _messages(self) -> Iterator[str]:
        """Yield messages on threads of their senders, and an arrow for each."""
        starts = {
            op: activity.start
            for device in self._trace.passes()
            for activity in device
            for op in ops_of(activity.op)
        }
        lanes: dict[int, list[float]] = {}
        for number, message in enumerate(self._trace.messages()):
            pid, stream = self._first + message.sender, PASS_STREAM
            at = starts[message.op]
            if message.end > message.start:
                at = message.start
                lane = _lane(lanes.setdefault(pid, []), message)
                stream = f"{_SEND} ({lane + 1})" if lane else _SEND
                yield from self._thread(pid, stream)
                span = (message.start, message.end)
                name = f"{_op_name(message.op)} to device {message.receiver}"
                yield self._event(
                    pid, stream, _json(name), '"send_recv"', span, _message_args(message)
                )
            arrow = {"cat": "send_recv", "name": "message", "id": number + (self._pid << 32)}
            tid = self._threads[pid, stream]
            begin = {"ph": "s", "pid": pid, "tid": tid, "ts": at * _MICROSECONDS}
            yield _json({**begin, **arrow})
            to = self._first + message.receiver
            tid, at = self._threads[to, PASS_STREAM], starts[message.to]
            end = {"ph": "f", "bp": "e", "pid": to, "tid": tid, "ts": at * _MICROSECONDS}
            yield _json({**end, **arrow})


def _span(start: float, end: float) -> tuple[float, float]:
    """Return the start and the duration of a slice; their sum does not exceed its end.

    >>> _span(0.1, 0.3)
    (100000.0, 200000.0)
    """
    ts, until = start * _MICROSECONDS, end * _MICROSECONDS
    dur = max(until - ts, 0.0)
    while dur and ts + dur > until:
        dur = nextafter(dur, 0.0)
    return ts, dur


def _lane(ends: list[float], message: StageMessage) -> int:
    """Return the first lane that is free when the message is sent, and occupy it."""
    for lane, end in enumerate(ends):
        if end <= message.start:
            ends[lane] = message.end
            return lane
    ends.append(message.end)
    return len(ends) - 1


def _op_name(op: Op) -> str:
    return f"{op.kind[0]}{op.micro_batch}"


def _pass_args(one: Slice, held: Sequence[int]) -> Iterator[str]:
    """Yield the micro-batch, the virtual stage and the chunk of a slice."""
    if one.op is None:
        yield f'"stage":{one.stage}'
        return
    kinds = "+".join(op.kind for op in ops_of(one.op))
    numbers = [op.micro_batch for op in ops_of(one.op)]
    micro_batch = str(numbers[0]) if len(numbers) == 1 else f"[{numbers[0]},{numbers[1]}]"
    yield f'"kind":"{kinds}","micro_batch":{micro_batch},"stage":{one.stage}'
    yield f'"chunk":{held.index(one.stage)}'


def _term_args(one: Slice) -> dict[str, Any]:
    """Return the arguments shared by all slices of a term."""
    term = one.term
    assert term is not None
    args: dict[str, Any] = {
        "pass": getattr(term, "pass_", "") or getattr(term, "when", ""),
        "resource": term.resource,
        "plugin": str(one.plugin),
        **_explanation(term.formula),
    }
    if one.kind == "slowdown":
        return args
    return {**args, "seconds_per_call": float(term.seconds), "bytes_per_call": float(term.bytes_)}


def _message_args(message: StageMessage) -> str:
    op = message.op
    edges = [
        {"name": edge.name, "bytes": float(edge.bytes_), **_explanation(edge.formula)}
        for _, edge in message.edges
    ]
    args = {"kind": op.kind, "micro_batch": op.micro_batch, "stage": op.stage, "edges": edges}
    return _json({"seconds": message.end - message.start, **args})[1:-1]


def _explanation(formula: Formula) -> dict[str, str]:
    return {"formula": formula.shown, "source": formula.source}


def _json(value: object) -> str:
    return json.dumps(value, separators=(",", ":"))


@hookimpl
def timeline_exporters() -> list[Perfetto]:
    """Return the exporter of trace events."""
    return [Perfetto()]
