"""Where every term of a step stands in time: the rules of ``parcost.contract.traces``.

A pass of one kind of stage looks alike in every micro-batch. So it is laid out once, from time
zero, and each of its passes takes a copy of that layout. A trace of millions of slices is then
an iteration without a state that grows.

    device 0   compute  | F0: qkv, core, proj ... | F1 ...       | BW0 ...
               node     |   all-gather  all-gather|   ...        |
               send     |                         F0 -> 1 | F1 -> 1 |

Terms once per step are placed as ``step_costs`` counts them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, Literal, NamedTuple

from attrs import field

from parcost.contract.outcome import Outcome
from parcost.contract.pipelines import Activity, Op, Pair
from parcost.contract.plugin import Plugin
from parcost.contract.study import Replay, Study
from parcost.contract.terms import Pass, Work
from parcost.contract.traces import (
    COMPUTE_STREAM,
    PASS_STREAM,
    Slice,
    StageMessage,
    StepTrace,
)
from parcost.engine.compiled_order import ops_of
from parcost.engine.memory import DeviceMemory
from parcost.engine.orders import Order
from parcost.engine.pairs import KERNELS
from parcost.engine.pipeline_run import PipelineRun
from parcost.engine.replay import Hop, PipelinePlan, hops_of
from parcost.engine.stage_costs import Load
from parcost.engine.step_costs import TermGroup, When
from parcost.engine.trace import activities, replay_activities
from parcost.records import record

_ROUNDING = 1e-9  # of a pass or a step: less is no time
_LANES = 8  # of one stream; what more would take is its rest
_ONCE = "once per step"
_NAMES = {"work": "{}", "slowdown": "slowdown by {}", "rest": "rest of {}"}  # of slices


def step_trace(
    study: Study, outcome: Outcome, *, name: str, path: str, at: Mapping[str, Any]
) -> StepTrace:
    """Return the trace of a step, of a single point.

    Raises:
        ValueError: The outcome is of many candidates.
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
    """Return the trace of a pipeline by itself.

    Raises:
        ValueError: The run is of many candidates.
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


@record(kw_only=True, eq=False, slots=False)
class ReplayTrace(StepTrace):
    """A pipeline by itself: passes and messages."""

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


@record(kw_only=True, eq=False, slots=False)
class TrainingTrace(StepTrace):
    """A step: its pipeline as it runs, and the terms of it."""

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
        counts = [0.0] * (2 * n if held.frees else n)
        behind = self._step.end
        for activity in self._step.passes[device]:
            ops = ops_of(activity.op)
            moments = []
            for op in ops:
                if op.kind == "F":
                    for at in range(places[op.stage], len(counts), n):
                        counts[at] += 1
                moments.append(held.at(device, "forward" if op.kind == "F" else "backward", counts))
            yield activity.start, float(max(moments))
            for op in ops:
                if op.kind != "F":
                    _release(counts, places[op.stage], n, op)
            if ops[-1].kind != "F":
                yield activity.end, float(held.at(device, "backward", counts))
        last = [held.at(device, moment, counts) for moment in ("optimizer", "gather")]
        yield behind, float(max(last))
        yield self.seconds, float(held.at(device, "forward", counts))

    # --- what is made once ----------------------------------------------------------------

    @cached_property
    def _order(self) -> Order:
        return self.run.plan.orders[0][1]

    @cached_property
    def _memory(self) -> DeviceMemory:
        return DeviceMemory([term for _, term in self.run.memory], self.run.plan)

    @cached_property
    def _step(self) -> _Step:
        return _place_step(self.run, self.seconds)

    @cached_property
    def _copies(self) -> Mapping[tuple[int, int], int]:
        plan = self.run.plan
        return {(x, d): k for k, (x, d) in enumerate(zip(plan.stage, plan.device, strict=True))}

    @cached_property
    def _layouts(self) -> dict[_Key, _PassLayout]:
        return {}

    # --- a pass -----------------------------------------------------------------------------

    def _key(self, device: int, op: Op | Pair) -> _Key:
        """Return what passes with one layout have in common."""
        return tuple((one.kind, self._copies[one.stage, device]) for one in ops_of(op))

    def _layout(self, key: _Key) -> _PassLayout:
        if key not in self._layouts:
            self._layouts[key] = _pass_layout(self.run, key)
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


_Key = tuple[tuple[str, int], ...]


class _Part(NamedTuple):
    """A slice of a pass, in seconds since the pass began."""

    work: int
    kind: Any
    stream: str
    start: float
    end: float
    beside: bool
    stage: int
    of: float
    calls: float


class _Cost(NamedTuple):
    """What one work is to a pass: *took* in all, of which some is exposed, and some hides."""

    work: int
    term: Work
    took: float
    exposed: float
    hidden: float
    slows: float
    calls: float


# --- The layout of a pass -------------------------------------------------------------------


def _pass_layout(run: PipelineRun, key: _Key) -> _PassLayout:
    """Return the slices of a pass, or of a pair of passes, from time zero on."""
    layout = _PassLayout()
    hidden: Sequence[float] = ()
    if len(key) > 1:
        (_, forward), (_, backward) = key
        assert run.pairs is not None
        stages = run.plan.stage
        hidden = [float(s) for s in run.pairs.of(stages[forward], stages[backward]).hidden_seconds]
    split = any(run.plan.orders[0][1].split)
    for kind, k in key:
        for passes in _PARTS_SPLIT[kind] if split else _PARTS[kind]:
            layout.add(passes, _costs(run.loads[k], passes, hidden), run.plan.stage[k])
    layout.hide()
    layout.parts.sort(key=lambda part: (part.start, part.end))
    again = layout.again if len(key) == 1 else 0.0
    layout.passes = [("", again, layout.end)]
    if again:
        layout.passes.insert(0, ("R", 0.0, again))
    return layout


#: The passes of an op, in groups within which what has an empty window may hide.
_PARTS: Mapping[str, Sequence[tuple[Pass, ...]]] = {
    "F": [("F",)],
    "B": [("R", "B")],
    "W": [("W",)],
    "BW": [("R", "B", "W")],
}
_PARTS_SPLIT: Mapping[str, Sequence[tuple[Pass, ...]]] = {**_PARTS, "BW": [("R", "B"), ("W",)]}


def _costs(load: Load, passes: Sequence[Pass], hidden: Sequence[float]) -> Sequence[_Cost]:
    """Return the costs of *passes*; of works that a pair hides, *hidden* seconds are."""
    found = []
    for i, work in enumerate(load.works):
        if work.pass_ not in passes or not load.counts[i]:
            continue
        more = hidden[i] if hidden else 0.0
        found.append(
            _Cost(
                work=i,
                term=work,
                took=float(load.took[i]),
                exposed=float(load.exposed[i]) - more,
                hidden=float(load.hidden[i]) + more,
                slows=0.0 if work.window is None else float(work.slowdown * load.covered[i]),
                calls=float(load.counts[i]),
            )
        )
    return found


class _PassLayout:
    """Slices of a pass as they are placed: what the device waits for first, then what hides."""

    def __init__(self) -> None:
        self.parts: list[_Part] = []
        self.passes: list[tuple[str, float, float]] = []  # R, or "" for all else
        self.again = 0.0  # the end of what runs forward again
        self.end = 0.0
        self._hidden: list[tuple[_Cost, int, float]] = []  # with the stage and the first moment

    def add(self, passes: Sequence[Pass], costs: Sequence[_Cost], stage: int) -> None:
        """Place what the device waits for in *passes*, one behind another."""
        begin = self.end
        for pass_ in passes:
            hosts: dict[str, float] = {}
            own = [cost for cost in costs if cost.term.pass_ == pass_]
            for cost in own:
                if cost.term.window is None:
                    hosts.setdefault(cost.term.host, self.end)
                    self._wait(cost, stage, self.end)
            for cost in own:
                if cost.term.window:
                    self._wait(cost, stage, hosts.get(cost.term.window, begin))
            if pass_ == "R":
                self.again = self.end
        for cost in costs:
            if cost.term.window == "":
                self._wait(cost, stage, begin)

    def hide(self) -> None:
        """Place what hides on the time that its streams have left."""
        for cost, stage, begin in self._hidden:
            left, lane = cost.hidden, 0
            while left > _ROUNDING * self.end and lane < _LANES:
                lane += 1
                stream = _stream(cost.term, beside=True, lane=lane)
                left = self._fill(cost, "work", stream, begin, left, stage)
            lane = 0
            while left > _ROUNDING * self.end > 0:
                lane += 1
                stream = _stream(cost.term, beside=True, rest=True, lane=lane)
                left = self._fill(cost, "rest", stream, 0.0, left, stage)

    def _fill(
        self, cost: _Cost, kind: str, stream: str, begin: float, left: float, stage: int
    ) -> float:
        """Place what is *left* in the time of a stream from *begin* on; return what it lacks."""
        for start, end in self._gaps(stream, begin):
            taken = min(left, end - start)
            self._put(cost, kind, stream, start, start + taken, stage, beside=True)
            left -= taken
            if left <= _ROUNDING * self.end:
                break
        return left

    def _wait(self, cost: _Cost, stage: int, begin: float) -> None:
        """Place what the device waits for, and remember what hides from *begin* on."""
        if cost.slows > 0:
            end = self.end + cost.slows
            self._put(cost, "slowdown", COMPUTE_STREAM, self.end, end, stage)
            self.end = end
        if cost.exposed > _ROUNDING * cost.took:
            end = self.end + cost.exposed
            self._put(cost, "work", _stream(cost.term), self.end, end, stage)
            self.end = end
        if cost.hidden > 0:
            self._hidden.append((cost, stage, begin))

    def _gaps(self, stream: str, begin: float) -> Sequence[tuple[float, float]]:
        """Return the time from *begin* on in which a stream has nothing to do."""
        busy = sorted((p.start, p.end) for p in self.parts if p.stream == stream)
        found, at = [], begin
        for start, end in busy:
            if start > at:
                found.append((at, start))
            at = max(at, end)
        if self.end > at:
            found.append((at, self.end))
        return found

    def _put(
        self,
        cost: _Cost,
        kind: str,
        stream: str,
        start: float,
        end: float,
        stage: int,
        *,
        beside: bool = False,
    ) -> None:
        of = (end - start) / cost.took if cost.took and kind != "slowdown" else 0.0
        part = _Part(cost.work, kind, stream, start, end, beside, stage, of, cost.calls)
        self.parts.append(part)


def _stream(
    term: Any, *, beside: bool = False, rest: bool = False, lane: int = 1, once: bool = False
) -> str:
    """Return the stream of a term: kernels share one, and transfers have one each link."""
    name = COMPUTE_STREAM if term.resource in KERNELS else term.resource or "unnamed"
    words = [name]
    if beside and name == COMPUTE_STREAM:
        words.append("beside")
    if rest:
        words.append("rest")
    if once:
        words.append(_ONCE)
    return ", ".join(words) + (f" ({lane})" if lane > 1 else "")


# --- Once per step ----------------------------------------------------------------------------


class _Step(NamedTuple):
    """The passes of a step, the end of its pipeline, and what happens once, by device."""

    passes: Sequence[Sequence[Activity]]
    end: float
    once: Sequence[Sequence[Slice]]


def _place_step(run: PipelineRun, seconds: float) -> _Step:
    """Return a step of so many *seconds*: its passes between what happens once."""
    plan, n = run.plan, len(run.plan.held)
    stamped: dict[When, list[tuple[Plugin, Any]]] = {"fill": [], "drain": [], "end": []}
    for plugin, term in run.onces:
        stamped[term.when].append((plugin, term))
    groups = {when: TermGroup([term for _, term in pairs], run) for when, pairs in stamped.items()}
    once: list[list[Slice]] = [[] for _ in range(n)]
    placed = {when: _OncePlaces(groups[when], pairs) for when, pairs in stamped.items()}
    releases = placed["fill"].fill(once) if stamped["fill"] else [0.0] * len(plan.device)
    passes = activities(plan, run.times, run.hop, releases)
    longest = max(sum(placed["end"].seconds(k) for k in held) for held in plan.held)
    end = seconds - longest
    done = max(float(device[-1].end) for device in passes)
    if stamped["drain"]:
        done = max(done, placed["drain"].drain(once, _ends(plan, passes)))
    if end - done > _ROUNDING * seconds:
        d = max(range(n), key=lambda d: float(passes[d][-1].end))
        name = "links busy with terms once per step, beside passes"
        once[d].append(Slice(name, "rest", f"links, {_ONCE}", done, end))
    end = max(end, done)  # a rounding at most
    if stamped["end"]:
        placed["end"].finish(once, end)
    return _Step(passes, end, once)


def _ends(plan: PipelinePlan, passes: Sequence[Sequence[Activity]]) -> Sequence[Activity]:
    """Return the last backward pass of each copy of a virtual stage."""
    number = {(x, d): k for k, (x, d) in enumerate(zip(plan.stage, plan.device, strict=True))}
    last: dict[int, Activity] = {}
    for d, device in enumerate(passes):
        for activity in device:
            for op in ops_of(activity.op):
                if op.kind != "F":
                    last[number[op.stage, d]] = activity
    return [last[k] for k in range(len(plan.device))]


class _OncePlaces:
    """Where the terms of one group stand; a device serves its stages one after another."""

    def __init__(self, group: TermGroup, stamped: Sequence[tuple[Plugin, Any]]) -> None:
        self._group, self._stamped = group, stamped
        self._plan = group.run.plan

    def seconds(self, k: int) -> float:
        """Return the seconds of all terms on copy *k*."""
        return float(self._group.stages[k].seconds) if self._stamped else 0.0

    def fill(self, once: Sequence[list[Slice]]) -> Sequence[float]:
        """Place the terms before the first passes, and return when each copy may begin."""
        releases = [0.0] * len(self._plan.device)
        for d, held in enumerate(self._plan.held):
            done = 0.0
            for k in held:
                slows = self._slows(k)
                at = self._put(once[d], k, done, covered=False)
                once[d] += self._slowdowns(k, at)
                releases[k] = at + slows
                done = max(done + self.seconds(k), self._put(once[d], k, at, covered=True))
        return releases

    def drain(self, once: Sequence[list[Slice]], last: Sequence[Activity]) -> float:
        """Place the terms behind the last passes, and return when the last one is done."""
        latest = 0.0
        for d, held in enumerate(self._plan.held):
            done = 0.0
            for k in reversed(held):
                end, slows = float(last[k].end), self._slows(k)
                covered = sum(map(float, self._group.stages[k].covered))
                begun = self._put(once[d], k, max(done, end - covered), covered=True)
                once[d] += self._slowdowns(k, end)
                if self.seconds(k):
                    done = self._put(once[d], k, max(begun, end + slows), covered=False)
            latest = max(latest, done)
        return latest

    def finish(self, once: Sequence[list[Slice]], end: float) -> None:
        """Place the terms that begin when the pipeline has come to its *end*.

        Each runs for all stages of a device before the next. So all devices agree on the order of
        what they do together.
        """
        for d, held in enumerate(self._plan.held):
            at = end
            for i in range(len(self._stamped)):
                for k in held:
                    at = self._put(once[d], k, at, covered=False, only=i)

    def _slows(self, k: int) -> float:
        stage = self._group.stages[k]
        return sum(
            float(term.slowdown * c)
            for (_, term), c in zip(self._stamped, stage.covered, strict=True)
        )

    def _slowdowns(self, k: int, at: float) -> Iterator[Slice]:
        """Yield by how much the terms slow compute, from *at* on."""
        stage, x = self._group.stages[k], self._plan.stage[k]
        for (plugin, term), covered in zip(self._stamped, stage.covered, strict=True):
            if (slows := float(term.slowdown * covered)) > 0:
                stream, name = f"{COMPUTE_STREAM}, {_ONCE}", f"slowdown by {term.name}"
                yield Slice(
                    name, "slowdown", stream, at, at + slows, stage=x, term=term, plugin=plugin
                )
                at += slows

    def _put(
        self, once: list[Slice], k: int, at: float, *, covered: bool, only: int | None = None
    ) -> float:
        """Place what compute has *covered* of each term, or the rest; return the end.

        *only* is the number of one term.
        """
        stage, x = self._group.stages[k], self._plan.stage[k]
        which = slice(None) if only is None else slice(only, only + 1)
        rows = zip(self._stamped[which], stage.took[which], stage.covered[which], strict=True)
        for (plugin, term), took, under in rows:
            part = float(under) if covered else float(took) - float(under)
            if part > _ROUNDING * float(took):
                once.append(
                    Slice(
                        term.name,
                        "once",
                        _stream(term, once=True),
                        at,
                        at + part,
                        covered,
                        stage=x,
                        of=part / float(took),
                        calls=float(took) / float(term.seconds),
                        term=term,
                        plugin=plugin,
                    )
                )
                at += part
        return at


# --- Passes, messages, and what is alive ---------------------------------------------------------


def _pass_slice(name: str, op: Op | Pair, start: float, end: float) -> Slice:
    """Return the slice of a pass, or of a part of one."""
    stage = ops_of(op)[0].stage
    return Slice(name, "pass", PASS_STREAM, float(start), float(end), op=op, stage=stage)


def _pass_name(op: Op | Pair, part: str = "") -> str:
    """Return what a pass is called: F3, B3 with or without W, R3 a *part*, F3+B1 a pair."""
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


def _release(counts: list[float], at: int, n: int, op: Op) -> None:
    """Release a micro-batch: the whole at W or BW, the part that is freed with B there."""
    if op.kind != "B":
        counts[at] -= 1
    if op.kind != "W" and len(counts) > n:
        counts[n + at] -= 1


def _held_stages(order: Order) -> Sequence[Sequence[int]]:
    return [sorted(order.stage[k] for k in held) for held in order.held]


def _most_alive(order: Order) -> Sequence[int]:
    return [max(sum(moment.alive) for moment in moments) for moments in order.alive_forward]
