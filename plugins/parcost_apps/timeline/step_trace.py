"""Start and end of every term of a step, with the rules of ``parcost.contract.traces``.

A pass of one kind of stage is the same in every micro-batch. So it is laid out once, from time
zero, and each pass uses a copy of that layout. So a trace of millions of slices needs constant
memory.

    device 0   compute  | F0: qkv, core, proj ... | F1 ...       | BW0 ...
               node     |   all-gather  all-gather|   ...        |
               send     |                         F0 -> 1 | F1 -> 1 |

Once-per-step terms are in :mod:`parcost_apps.timeline.once_per_step`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, Literal

from attrs import field

from parcost.contract.outcome import Outcome
from parcost.contract.pipelines import Activity, Op, Pair, ops_of
from parcost.contract.study import Replay, Study
from parcost.contract.traces import (
    PASS_STREAM,
    Slice,
    StageMessage,
    StepTrace,
)
from parcost.engine.memory import PlanMemory
from parcost.engine.orders import AliveCounts, Order
from parcost.engine.pipeline_run import PipelineRun
from parcost.engine.replay import Hop, hops_of
from parcost.engine.trace import replay_activities
from parcost.records import record
from parcost_apps.timeline.once_per_step import PlacedStep, place_step
from parcost_apps.timeline.pass_layout import PassKey, PassLayout, pass_layout

_NAMES = {"work": "{}", "slowdown": "slowdown by {}", "rest": "rest of {}"}  # of slices


def step_trace(
    study: Study, outcome: Outcome, *, name: str, path: str, at: Mapping[str, Any]
) -> StepTrace:
    """Return the trace of a step at a single point.

    Raises:
        ValueError: The outcome has several candidates.
    """
    run = outcome.run
    assert isinstance(run, PipelineRun)
    run.activities()  # rejects many candidates
    order = run.plan.orders[0][1]
    return TrainingTrace(
        name=name,
        path=path,
        at=at,
        study=study,
        pipeline=outcome.pipeline,
        seconds=float(outcome.step_seconds),
        ledger=outcome.ledger,
        held=_held_stages(order),
        alive=_most_alive(order),
        outcome=outcome,
        run=run,
    )


def replay_trace(
    study: Study, run: Replay, *, name: str, path: str, at: Mapping[str, Any]
) -> StepTrace:
    """Return the trace of a pipeline without a step.

    Raises:
        ValueError: The run has several candidates.
        SpecError: The schedule does not exist there.
    """
    devices, order = replay_activities(run)
    return ReplayTrace(
        name=name,
        path=path,
        at=at,
        part=run.name,
        study=study,
        pipeline=run.pipeline,
        seconds=max(float(device[-1].end) for device in devices),
        held=_held_stages(order),
        alive=_most_alive(order),
        devices=devices,
        order=order,
        hop=float(run.hop),
    )


@record(kw_only=True, eq=False)
class ReplayTrace(StepTrace):
    """The trace of a pipeline without a step: passes and messages."""

    devices: Sequence[Sequence[Activity]] = field(repr=False)
    order: Order = field(repr=False)
    hop: float

    def activities(self) -> Sequence[Sequence[Activity]]:
        return self.devices

    def passes(self) -> Sequence[Sequence[Activity]]:
        return self.devices

    def slices(self, device: int) -> Iterator[Slice]:
        for activity in self.devices[device]:
            yield _pass_slice(_pass_name(activity.op), activity.op, activity.start, activity.end)

    def slice_count(self) -> int:
        return self.order.size + sum(sum(ways.values()) for ways in self.order.sent)

    def messages(self) -> Iterator[StageMessage]:
        return _messages(self.devices, self.order, self.hop, ())

    def memory(self, device: int) -> Iterator[tuple[float, float]]:  # noqa: ARG002
        return iter(())


@record(kw_only=True, eq=False)
class TrainingTrace(StepTrace):
    """The trace of a training step: its pipeline and its terms."""

    outcome: Outcome = field(repr=False)
    run: PipelineRun = field(repr=False)

    def activities(self) -> Sequence[Sequence[Activity]]:
        return self.run.activities()

    def passes(self) -> Sequence[Sequence[Activity]]:
        return self._step.passes

    def slices(self, device: int) -> Iterator[Slice]:
        for activity in self._step.passes[device]:
            yield from self._pass_slices(device, activity)
        yield from self._step.once[device]

    def slice_count(self) -> int:
        lists = enumerate(self._step.passes)
        kinds = Counter(self._key(d, activity.op) for d, device in lists for activity in device)
        found = 0
        for key, often in kinds.items():
            layout = self._layout(key)
            found += often * (len(layout.passes) + len(layout.parts))
        sent = sum(sum(ways.values()) for ways in self._order.sent)
        return found + sent + sum(map(len, self._step.once))

    def messages(self) -> Iterator[StageMessage]:
        return _messages(self._step.passes, self._order, self.run.hop, self.run.edges)

    def memory(self, device: int) -> Iterator[tuple[float, float]]:
        held, places = self._memory, {x: i for i, x in enumerate(self.held[device])}
        n = len(places)
        counts = [0] * (2 * n)
        behind = self._step.end
        for activity in self._step.passes[device]:
            ops = ops_of(activity.op)
            moments = []
            for op in ops:
                if op.kind == "F":
                    counts[places[op.stage]] += 1
                    counts[places[op.stage] + n] += 1
                    moments.append(held.bytes_on(device, "forward", _counts(counts, counts)))
                else:
                    after = _release(counts, places[op.stage], op)
                    during = _counts(counts, after)
                    moments += [
                        held.bytes_on(device, when, during) for when in ("loss", "backward")
                    ]
                    if not any(after):
                        moments.append(held.bytes_on(device, "end_of_backward", during))
            yield activity.start, float(max(moments))
            for op in ops:
                if op.kind != "F":
                    counts = _release(counts, places[op.stage], op)
            if ops[-1].kind != "F":
                yield (
                    activity.end,
                    float(held.bytes_on(device, "backward", _counts(counts, counts))),
                )
        rest = _counts(counts, counts)
        last = [held.bytes_on(device, moment, rest) for moment in ("optimizer", "gather")]
        yield behind, float(max(last))
        yield self.seconds, float(held.bytes_on(device, "forward", rest))

    # --- what is made once ----------------------------------------------------------------

    @cached_property
    def _order(self) -> Order:
        return self.run.plan.orders[0][1].whole

    @cached_property
    def _memory(self) -> PlanMemory:
        return PlanMemory([term for _, term in self.run.memory], self.run.plan)

    @cached_property
    def _step(self) -> PlacedStep:
        return place_step(self.run, self.seconds)

    @cached_property
    def _copies(self) -> Mapping[tuple[int, int], int]:
        plan = self.run.plan
        return {(x, d): k for k, (x, d) in enumerate(zip(plan.stage, plan.device, strict=True))}

    @cached_property
    def _layouts(self) -> dict[PassKey, PassLayout]:
        return {}

    # --- a pass -----------------------------------------------------------------------------

    def _key(self, device: int, op: Op | Pair) -> PassKey:
        """Return the key of a pass: equal for passes with the same layout."""
        return tuple((one.kind, self._copies[one.stage, device]) for one in ops_of(op))

    def _layout(self, key: PassKey) -> PassLayout:
        if key not in self._layouts:
            self._layouts[key] = pass_layout(self.run, key)
        return self._layouts[key]

    def _pass_slices(self, device: int, activity: Activity) -> Iterator[Slice]:
        zero, last, op = activity.start, activity.end, activity.op
        layout = self._layout(self._key(device, op))
        for name, start, end in layout.passes:
            whole = end >= layout.end
            first = min(zero + start, last)
            yield _pass_slice(_pass_name(op, name), op, first, last if whole else zero + end)
        for part in layout.parts:
            start, end = zero + part.start, zero + part.end
            plugin, work = self.run.works[part.work]
            yield Slice(
                _NAMES[part.kind].format(work.name),
                part.kind,
                part.stream,
                min(start, last),
                min(end, last),
                part.beside,
                op,
                part.stage,
                part.of,
                part.calls,
                work,
                plugin,
            )


# --- Passes, messages, and what is alive ---------------------------------------------------------


def _pass_slice(name: str, op: Op | Pair, start: float, end: float) -> Slice:
    """Return the slice of a pass, or of a part of one."""
    stage = ops_of(op)[0].stage
    return Slice(name, "pass", PASS_STREAM, float(start), float(end), op=op, stage=stage)


def _pass_name(op: Op | Pair, part: str = "") -> str:
    """Return the name of a pass: F3, B3 (with or without W), R3 for a *part*, F3+B1 for a pair."""
    return "+".join(f"{part or one.kind[0]}{one.micro_batch}" for one in ops_of(op))


def _messages(
    passes: Sequence[Sequence[Activity]], order: Order, hop: Hop, edges: Sequence[Any]
) -> Iterator[StageMessage]:
    """Yield the messages of all passes, device by device."""
    virtual = 1 + max(order.stage)
    uneven = isinstance(hop, tuple)
    hops = [float(seconds) for seconds in hops_of(hop)]
    apart = {  # backward ops that have a W of their own
        (op.micro_batch, op.stage)
        for device in passes
        for activity in device
        for op in ops_of(activity.op)
        if op.kind == "B"
    }
    for d, device in enumerate(passes):
        for activity in device:
            for op in ops_of(activity.op):
                forward = op.kind == "F"
                x = op.stage + 1 if forward else op.stage - 1
                if op.kind == "W" or not 0 <= x < virtual:
                    continue
                to = order.home[op.micro_batch * virtual + x]
                if to == d:
                    continue
                a, b = min(d, to), max(d, to)
                seconds = max(hops[a:b]) if uneven else hops[0]
                back: Literal["B", "BW"] = "B" if (op.micro_batch, x) in apart else "BW"
                end = float(activity.end)
                waits = Op("F" if forward else back, op.micro_batch, x)
                yield StageMessage(d, to, end, end + seconds, op, waits, edges)


def _release(counts: Sequence[int], at: int, op: Op) -> list[int]:
    """Reduce *counts* after *op*: W or BW frees a micro-batch, and B frees its part."""
    left = list(counts)
    left[at] -= op.kind != "B"
    left[len(left) // 2 + at] -= op.kind != "W"
    return left


def _counts(now: Sequence[int], after: Sequence[int]) -> AliveCounts:
    n = len(now) // 2
    return AliveCounts(*(tuple(part) for row in (now, after) for part in (row[:n], row[n:])))


def _held_stages(order: Order) -> Sequence[Sequence[int]]:
    return [sorted(order.stage[k] for k in held) for held in order.held]


def _most_alive(order: Order) -> Sequence[int]:
    return [max(sum(moment.alive) for moment in moments) for moments in order.peaks]
