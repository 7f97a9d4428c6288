"""The replay of an op order: start and end times of all passes in a pipeline.

The order is sorted and compiled once (``parcost.engine.orders``). A replay then computes ``end =
max(clock, arrival + hop) + duration`` for each op. Times may be arrays over candidates: one replay
computes a single candidate or thousands. The loop runs over distinct numbers of micro-batches (with
different orders), never over candidates.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property, reduce
from itertools import repeat
from typing import Any, TypeAlias

from attrs import field

from parcost.contract.pipelines import LONGEST_ORDER, Pipeline, PipelineShape, Times
from parcost.contract.study import Schedule
from parcost.engine.compiled_order import NEVER, CompiledOrder, OrderError
from parcost.engine.orders import Order, short_order
from parcost.engine.schedule_calls import case_of, closed_form, limits
from parcost.engine.schedule_calls import spans as spans_of
from parcost.language.diagnostics import Diagnostic
from parcost.language.errors import SpecError
from parcost.numeric import INFINITY, Mask, Real, all_of, any_of, is_array, maximum, minimum
from parcost.records import record

ALL = 1.0  # the share of the micro-batches that passes through a stage without copies
_BLOCK = 4096  # candidates replayed at once: the state of a pass stays in the cache
_ROUNDING = 2.0**-48  # of a sum of times
_FEW = 12  # candidates that are replayed faster one by one than as arrays

#: Seconds of a message between devices: any two, or over each boundary, 0 and 1 first.
Hop: TypeAlias = "Real | tuple[Real, ...]"


@record(kw_only=True, eq=False)
class Timeline:
    """The times of a replay, in seconds since the step began, by copy of a virtual stage.

    *seconds* is the end of the last device. *starts* has the start of the first forward pass of
    each copy, *ends* the end of its last backward pass.
    """

    seconds: Real
    starts: Sequence[Real]
    ends: Sequence[Real]


@record(eq=False, slots=False)
class PipelinePlan:
    """A schedule for a pipeline, ready to be timed.

    Raises:
        SpecError: The schedule does not support the pipeline.
        OrderError: The op order of the schedule is invalid.
    """

    schedule: Schedule
    pipeline: Pipeline
    orders: Sequence[tuple[float, Order]] = field(init=False, repr=False)  # by micro-batches

    @orders.default
    def _orders(self) -> Sequence[tuple[float, Order]]:
        m: Any = self.pipeline.micro_batches
        if not is_array(m):
            return [(float(m), self._order(m))]
        found = [(float(n), self._order(n)) for n in sorted(set(m.reshape(-1)))]
        if len({(order.stage, order.device) for _, order in found}) > 1:
            message = (
                f"schedule `{self.schedule.name}` places stages on other devices when m changes"
            )
            raise OrderError(message)
        return found

    def _order(self, micro_batches: Any) -> Order:
        p, v, name = self.pipeline.stages, self.pipeline.chunks, self.schedule.name
        whole = micro_batches >= 1 and micro_batches % 1 == 0
        m = int(micro_batches) if whole else 0
        why = "" if whole else "the number of micro-batches must be a whole number above zero"
        if m * p * v > LONGEST_ORDER:
            why = f"{m * p * v:,} passes exceed the limit of the simulation, {LONGEST_ORDER:,}"
        if not why:
            why = limits(self.schedule, PipelineShape(stages=p, micro_batches=m, chunks=v)) or ""
        if why:
            shape = f"{p} stages, {micro_batches:g} micro-batches and chunks = {v}"
            message = f"`{name}` does not run with {shape}: {why}"
            raise SpecError([Diagnostic("schedule", message)])
        return short_order(self.schedule, p, m, v, blocking=self.pipeline.blocking)

    # --- read off the order -------------------------------------------------------------

    @cached_property
    def stage(self) -> Sequence[int]:
        """The virtual stage of each copy (see :mod:`parcost.engine.orders`)."""
        return self.orders[0][1].stage

    @cached_property
    def device(self) -> Sequence[int]:
        """The device of each copy of a virtual stage."""
        return self.orders[0][1].device

    @cached_property
    def held(self) -> Sequence[Sequence[int]]:
        """The copies of virtual stages on each device."""
        return self.orders[0][1].held

    @cached_property
    def pairs(self) -> Sequence[tuple[int, int]]:
        """The virtual stages (of F, of BW) that run as pairs anywhere in the order."""
        found = (pair for _, order in self.orders for pairs in order.pairs for pair in pairs)
        return list(dict.fromkeys(found))

    @cached_property
    def shares(self) -> Sequence[Real]:
        """The share of the micro-batches that passes through each copy."""
        if len(self.device) == self.pipeline.stages * self.pipeline.chunks:
            return (ALL,) * len(self.device)
        m = self.pipeline.micro_batches
        return [self.by_order(_runs_of(k)) / m for k in range(len(self.device))]

    def pair_count(self, d: int, forward: int, backward: int) -> Real:
        """Return the number of pairs of these virtual stages on device *d*."""
        return self.by_order(lambda order: float(order.pairs[d].get((forward, backward), 0)))

    def splits_weights(self, k: int) -> Mask:
        """Return whether the last backward op of copy *k* is a separate W."""
        found = {order.split[k] for _, order in self.orders}
        return found.pop() if len(found) == 1 else self.by_order(lambda o: o.split[k]) != 0

    def by_order(self, value: Callable[[Order], Any]) -> Real:
        """Return ``value(order)`` for each candidate, which may have different orders."""
        if len(self.orders) == 1:
            return value(self.orders[0][1])  # type: ignore[no-any-return]
        import numpy as np

        found = np.empty(np.shape(self.pipeline.micro_batches))
        for m, order in self.orders:
            found[self.pipeline.micro_batches == m] = value(order)
        return found

    # --- timing -------------------------------------------------------------------------

    def timeline(
        self, times: Times, hop: Hop, releases: Sequence[Real] = (), *, spans: bool = True
    ) -> Timeline:
        """Return the timeline, in closed form where the schedule has one.

        *hop* is the seconds of a message between devices. No forward pass of a copy starts before
        its *releases*. Without *spans*, *starts* and *ends* may be left empty.
        """
        blocked = self.pipeline.blocking and any_of(reduce(maximum, hops_of(hop)) > 0)
        if not releases and not blocked and (found := self._closed_timeline(times, hop, spans)):
            return found
        return self._replay(times, hop, releases, spans)

    def _closed_timeline(self, times: Times, hop: Hop, spans: bool) -> Timeline | None:
        schedule = self.schedule
        if isinstance(hop, tuple) and not schedule.hop_by_boundary:
            return None
        case = case_of(self.pipeline, times, hop)
        seconds, mask = closed_form(schedule, case)
        if not all_of(mask):
            return None
        if any_of(seconds < 0):  # without end times may be no number
            raise OrderError(f"`closed_form` of schedule `{schedule.name}` is a negative time")
        if not spans:
            return Timeline(seconds=seconds, starts=(), ends=())
        found = spans_of(schedule, case)
        if found is None:
            return None
        starts, ends = found
        return Timeline(seconds=seconds, starts=starts, ends=ends)

    def _replay(self, times: Times, hop: Hop, releases: Sequence[Real], spans: bool) -> Timeline:
        n, m = len(self.device), self.pipeline.micro_batches
        held_back = releases or [0.0] * n
        hops = hops_of(hop)
        values = [*times.F, *times.B, *times.W, *times.FB.values(), *held_back, *hops]
        if not is_array(m, *values):
            return run(self.orders[0][1], times, hop, held_back)
        import numpy as np

        shape = np.broadcast_shapes(np.shape(m), *(np.shape(value) for value in values))
        flat = {id(value): _flat(value, shape) for value in values}
        rows = 1 + 2 * n if spans else 1
        found = np.empty((rows, int(np.prod(shape))))
        for order, block in self._blocks(shape):
            cut = {key: v[block] if is_array(v) else v for key, v in flat.items()}
            first, which = _distinct_candidates([v for v in cut.values() if is_array(v)])
            distinct = np.empty((rows, len(first)))
            for part in first[:, None] if len(first) <= _FEW else [first]:
                at = {key: _pick(v, part) for key, v in cut.items()}
                columns = (times.F, times.B, times.W, held_back, hops)
                f, b, w, back, across = ([at[id(v)] for v in column] for column in columns)
                pairs = {both: at[id(v)] for both, v in times.FB.items()}
                over = tuple(across) if isinstance(hop, tuple) else across[0]
                timeline = run(order, Times(f, b, w, pairs), over, back)
                row = [timeline.seconds, *timeline.starts, *timeline.ends]
                for i in range(rows):
                    distinct[i, which[part]] = row[i]
            found[:, block] = distinct[:, which]
        seconds, *rest = found.reshape((rows, *shape))
        return Timeline(seconds=seconds, starts=rest[:n], ends=rest[n:])

    def _blocks(self, shape: tuple[int, ...]) -> Iterator[tuple[Order, Any]]:
        """Yield the candidates in blocks of equal order: the order, and their indices."""
        import numpy as np

        m = _flat(self.pipeline.micro_batches, shape)
        for value, order in self.orders:
            if not is_array(m):
                for low in range(0, int(np.prod(shape)), _BLOCK):
                    yield order, slice(low, low + _BLOCK)
                return
            own = np.flatnonzero(m == value)
            for low in range(0, own.size, _BLOCK):
                yield order, own[low : low + _BLOCK]


def makespan(schedule: Schedule, pipeline: Pipeline, times: Times, hop: Real = 0.0) -> Real:
    """Return the makespan of *pipeline* in seconds, with passes of these *times*.

    *hop* is the seconds of a message between devices. Other costs are not included.

    Raises:
        SpecError: The schedule does not support the pipeline.
    """
    return PipelinePlan(schedule, pipeline).timeline(times, hop, spans=False).seconds


def longest_span(schedule: Schedule, pipeline: Pipeline, times: Times, hop: Real = 0.0) -> Real:
    """Return the longest time from the first to the last pass of one device, in seconds.

    Without a barrier between steps, it is the step time: the next step fills the pipeline while
    this one drains. The arguments are the same as in :func:`makespan`.

    Raises:
        SpecError: The schedule does not support the pipeline.
    """
    plan = PipelinePlan(schedule, pipeline)
    timeline = plan.timeline(times, hop)
    longest: Real = 0.0
    for copies in plan.held:
        start = reduce(minimum, (timeline.starts[copy] for copy in copies))
        end = reduce(maximum, (timeline.ends[copy] for copy in copies))
        longest = maximum(longest, end - start)
    return longest


def run(order: Order, times: Times, hop: Hop, releases: Sequence[Real]) -> Timeline:
    """Replay *order* for one candidate, or for arrays of candidates that broadcast."""
    program = order.program
    state = play(program, times, hop, releases, order.repeats)[0]
    seconds: Real = 0.0
    for slot in program.last:
        seconds = maximum(seconds, state[slot])
    return Timeline(
        seconds=seconds,
        starts=[state[slot] for slot in program.starts],
        ends=[state[slot] for slot in program.ends],
    )


def play(
    program: CompiledOrder, times: Times, hop: Hop, releases: Sequence[Real], repeats: int = 0
) -> tuple[Sequence[Any], Sequence[Any]]:
    """Return the final value of every slot and the durations of all ops, in seconds.

    The round of *program* runs *repeats* more times.
    """
    fused: dict[tuple[int, int], Real] = {}  # equal stages share their times
    for b, w in zip(times.B, times.W, strict=True):
        if (id(b), id(w)) not in fused:
            fused[id(b), id(w)] = b + w
    both = [fused[id(b), id(w)] for b, w in zip(times.B, times.W, strict=True)]
    pairs = [times.pair(*pair) for pair in program.pairs]
    durations: list[Any] = [*times.F, *times.B, *times.W, *both, 0.0, *pairs]
    state: list[Any] = [0.0] * program.slots
    state[NEVER] = -INFINITY
    hops: tuple[Real, ...]
    if not isinstance(hop, tuple):
        hops = (hop,)
    else:
        hops = (*(reduce(maximum, hop[a:b]) for a, b in program.routes), 0.0)
    for slot, release in zip(program.releases, releases, strict=True):
        state[slot] = release - hops[-1]  # every message takes a hop, and this is not one
    begin, end = program.round_
    advance = _advance_arrays if is_array(*hops, *releases, *durations) else _advance_numbers

    def run_steps(first: int, last: int | None) -> None:
        rows = (program.into, program.turn, program.message, program.takes, program.over)
        *steps, routes = (row[first:last] for row in rows) if first or last else rows
        across = map(hops.__getitem__, routes) if isinstance(hop, tuple) else repeat(hop)
        advance(state, durations, zip(*steps, across, strict=False))

    if repeats:
        run_steps(0, end)
        _repeat_round(state, program.carried, repeats, lambda: run_steps(begin, end))
        run_steps(end, None)
    else:
        run_steps(0, None)
    return state, durations


def _advance_arrays(state: list[Any], durations: Sequence[Any], steps: Iterable[Any]) -> None:
    """Run *steps* of a program on values that are arrays."""
    import numpy as np

    for into, turn, message, takes, over in steps:
        state[into] = np.maximum(state[turn], state[message] + over) + durations[takes]


def _advance_numbers(state: list[Any], durations: Sequence[Any], steps: Iterable[Any]) -> None:
    """Run *steps* on numbers, without calls of `max`, which would take three times as long."""
    for into, turn, message, takes, over in steps:
        clock, arrival = state[turn], state[message] + over
        state[into] = (clock if clock >= arrival else arrival) + durations[takes]  # noqa: FURB136


def _repeat_round(
    state: list[Any], carried: Sequence[tuple[int, int]], repeats: int, run: Callable[[], None]
) -> None:
    """Run a round *repeats* times, or until each one only adds the same time to all values."""
    stops = list(dict.fromkeys(stop for _, stop in carried))
    passed: Real = 0.0  # times count from there: so a round is as exact as the first
    for left in range(repeats - 1, -1, -1):
        zero = state[stops[0]]
        before = [state[stop] - zero for _, stop in carried]
        passed = passed + zero
        for (start, _), value in zip(carried, before, strict=True):
            state[start] = value
        run()
        gains = [state[stop] - value for (_, stop), value in zip(carried, before, strict=True)]
        gain, most = gains[0], reduce(maximum, map(abs, gains)) * _ROUNDING
        if all(all_of(abs(other - gain) <= most) for other in gains):
            passed = passed + left * gain
            break
    for stop in stops:
        state[stop] = state[stop] + passed


def _runs_of(k: int) -> Callable[[Order], float]:
    return lambda order: float(order.runs[k])


def _distinct_candidates(columns: Sequence[Any]) -> tuple[Any, Any]:
    """Return the first position of each distinct candidate, and the distinct index of each.

    >>> import numpy as np
    >>> [found.tolist() for found in _distinct_candidates([np.array([3.0, 4.0, 3.0])])]
    [[0, 1], [0, 1, 0]]
    """
    import numpy as np

    if not columns:
        return np.zeros(1, dtype=np.intp), np.zeros(1, dtype=np.intp)
    numbers: dict[bytes, int] = {}
    first: list[int] = []
    which: list[int] = []
    for i, candidate in enumerate(np.stack(columns, axis=-1)):
        number = numbers.setdefault(candidate.tobytes(), len(first))
        if number == len(first):
            first.append(i)
        which.append(number)
    return np.array(first), np.array(which)


def _pick(value: Any, part: Any) -> Any:
    """Return the elements of an array at *part*; the result is a plain number for a single
    element.
    """
    if not is_array(value):
        return value
    return value[part] if len(part) > 1 else value[part].item()


def _flat(value: Real, shape: tuple[int, ...]) -> Any:
    if not is_array(value):
        return value
    import numpy as np

    return np.broadcast_to(value, shape).reshape(-1)


def even_hop(hop: Hop) -> Hop:
    """Return a single number for hop times that are equal at every boundary.

    >>> even_hop((2.0, 2.0)), even_hop((2.0, 3.0))
    (2.0, (2.0, 3.0))
    """
    if not isinstance(hop, tuple):
        return hop
    first, *rest = hop or (0.0,)
    alike = all(each is first or all_of(each == first) for each in rest)
    return first if alike else hop


def add_hops(hop: Hop, more: Hop) -> Hop:
    """Return the hop times with one more message appended to each boundary.

    >>> add_hops((1.0, 2.0), 1.0), add_hops(1.0, (2.0, 3.0))
    ((2.0, 3.0), (3.0, 4.0))
    """
    if isinstance(hop, tuple):
        both = (hop, more if isinstance(more, tuple) else (more,) * len(hop))
    elif isinstance(more, tuple):
        both = ((hop,) * len(more), more)
    else:
        return hop + more
    return even_hop(tuple(a + b for a, b in zip(*both, strict=True)))


def hops_of(hop: Hop) -> tuple[Real, ...]:
    """Return the hop times as a tuple, in seconds.

    >>> hops_of(2.0), hops_of(())
    ((2.0,), (0.0,))
    """
    return (hop or (0.0,)) if isinstance(hop, tuple) else (hop,)
