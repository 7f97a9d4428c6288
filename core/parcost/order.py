"""What a schedule's op order says, read off once and laid out for replay.

A schedule gives each device a list of ops and nothing else. Which device holds which
virtual stage, what waits for what, and how many micro-batches are alive when, all
follow from the lists. They are checked here: a schedule comes from a plugin, and a
bad order must name its mistake instead of giving a time.

Of the inputs of an op only one can come from another device. The rest precede it on
its own device, so "its turn has come, and its message has arrived" is all that a
replay has to know: an op is four numbers, in an order in which inputs come first.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence

from attrs import frozen

from parcost.diagnostics import PluginError
from parcost.terms import Op, Schedule

#: The longest order that is worked out, in micro-batches times virtual stages.
LONGEST = 2**18
_CACHED = 2**20  # nodes of all cached orders together, some 40 bytes each

# Slots: time zero, a message that does not exist, and from here on the releases.
START, NEVER, RELEASES = 0, 1, 2
_KINDS = ("F", "B", "W", "BW")  # in the order of their durations


class OrderError(PluginError):
    """A schedule's op order is not one."""


@frozen(kw_only=True, eq=False)
class Order:
    """A checked op order, as a program over a few slots that hold times.

    Step i of the program is
    ``state[into[i]] = max(state[turn[i]], state[message[i]] + hop) + durations[takes[i]]``.
    Durations are numbered F, then B, W and BW of every virtual stage, then zero.
    """

    device: tuple[int, ...]  # that holds each virtual stage
    held: tuple[tuple[int, ...], ...]  # virtual stages of each device, ascending
    into: tuple[int, ...]
    turn: tuple[int, ...]
    message: tuple[int, ...]
    takes: tuple[int, ...]
    slots: int
    releases: tuple[int, ...]  # by virtual stage: slot that holds back its first forward
    starts: tuple[int, ...]  # by virtual stage: when its first forward begins
    ends: tuple[int, ...]  # by virtual stage: when its last backward ends
    split: tuple[bool, ...]  # by virtual stage: its last backward is W, not BW
    last: tuple[int, ...]  # by device: when it is done
    alive: tuple[int, ...]  # by virtual stage: the most micro-batches alive
    alive_forward: tuple[tuple[tuple[int, ...], ...], ...]  # by device, see _alive
    alive_backward: tuple[tuple[tuple[int, ...], ...], ...]


def order_of(schedule: Schedule, stages: int, micro_batches: int, chunks: int) -> Order:
    """Return the order of *schedule*, from a cache that knows the schedule by identity.

    Raises:
        OrderError: The schedule raises, or what it returns is not an order.
    """
    key = (id(schedule), stages, micro_batches, chunks)
    if key in _cache:
        _cache.move_to_end(key)
        return _cache[key][1]
    try:
        lists = _ask(schedule, stages, micro_batches, chunks)
        _check(lists, stages, micro_batches, stages * chunks)
        order = _flatten(lists, stages * chunks)
    except OrderError as error:
        where = f"p = {stages}, m = {micro_batches}, v = {chunks}"
        raise OrderError(f"schedule `{schedule.name}` at {where}: {error}") from error
    _cache[key] = (schedule, order)  # the schedule is kept, so that its id stays its own
    while len(_cache) > 1 and sum(len(o.into) for _, o in _cache.values()) > _CACHED:
        _cache.popitem(last=False)
    return order


_cache: OrderedDict[tuple[int, int, int, int], tuple[Schedule, Order]] = OrderedDict()


# --- Checking ------------------------------------------------------------------------


def _ask(
    schedule: Schedule, stages: int, micro_batches: int, chunks: int
) -> Sequence[Sequence[Op]]:
    try:
        lists = schedule.order(stages, micro_batches, chunks)
        return [[Op(*op) for op in ops] for ops in lists]
    except Exception as error:
        raise OrderError(f"`order` raised {type(error).__name__}: {error}") from error


def _check(lists: Sequence[Sequence[Op]], stages: int, micro_batches: int, virtual: int) -> None:
    if len(lists) != stages:
        raise OrderError(f"{len(lists)} devices have a list and there are {stages}")
    holder: dict[Op, int] = {}
    for device, ops in enumerate(lists):
        if not ops:
            raise OrderError(f"device {device} has nothing to do")
        for op in ops:
            kind, j, x = op
            if kind not in _KINDS:
                raise OrderError(f"`{kind}` is not a kind of op; F, B, W and BW are")
            if not (0 <= j < micro_batches and 0 <= x < virtual):
                raise OrderError(f"device {device} lists {_words(op)}, which does not exist")
            if op in holder:
                raise OrderError(f"{_words(op)} is listed twice")
            holder[op] = device
            before = Op("B" if kind == "W" else "F", j, x)
            if kind != "F" and holder.get(before) != device:
                raise OrderError(
                    f"device {device} lists {_words(op)} without its {before.kind} before it"
                )
    for x in range(virtual):
        for j in range(micro_batches):
            forward, fused = Op("F", j, x), Op("BW", j, x)
            if forward not in holder:
                raise OrderError(f"{_words(forward)} is not listed")
            if holder[forward] != holder[Op("F", 0, x)]:
                devices = f"{holder[Op('F', 0, x)]} and {holder[forward]}"
                raise OrderError(f"stage {x} is on devices {devices}")
            parts = [part for part in (Op("B", j, x), Op("W", j, x)) if part in holder]
            if fused in holder and parts:
                raise OrderError(f"{_words(fused)} is listed beside its {parts[0].kind}")
            if fused not in holder and len(parts) < 2:
                missing = Op("W", j, x) if parts else fused
                raise OrderError(f"{_words(missing)} is not listed")


def _words(op: Op) -> str:
    return f"{op.kind} of micro-batch {op.micro_batch} on stage {op.stage}"


# --- Laying out ----------------------------------------------------------------------


def _flatten(lists: Sequence[Sequence[Op]], virtual: int) -> Order:
    device = [0] * virtual
    for d, ops in enumerate(lists):
        for op in ops:
            device[op.stage] = d
    held: list[tuple[int, ...]] = [
        tuple(x for x in range(virtual) if device[x] == d) for d in range(len(lists))
    ]
    program = _Program(virtual, len(lists))
    for d, op, needed in _sorted(lists, virtual):
        program.add(d, op, needed if needed and device[needed.stage] != d else None)
    into, turn, message, takes, slot_of = program.pack()
    peaks = [_alive(ops, held[d]) for d, ops in enumerate(lists)]
    return Order(
        device=tuple(device),
        held=tuple(held),
        into=into,
        turn=turn,
        message=message,
        takes=takes,
        slots=1 + max(into),
        releases=tuple(range(RELEASES, RELEASES + virtual)),
        starts=tuple(slot_of[value] for value in program.starts),
        ends=tuple(slot_of[value] for value in program.ends),
        split=tuple(program.split),
        last=tuple(slot_of[value] for value in program.clock),
        alive=tuple(
            max(vector[held[d].index(x)] for vector in peaks[d][0]) for x, d in enumerate(device)
        ),
        alive_forward=tuple(forward for forward, _ in peaks),
        alive_backward=tuple(backward for _, backward in peaks),
    )


def _sorted(lists: Sequence[Sequence[Op]], virtual: int) -> Iterator[tuple[int, Op, Op | None]]:
    """Yield every op with its device and what it needs of a neighbour, needs first."""
    position = [0] * len(lists)
    done: set[Op] = set()
    waiting: dict[Op, int] = {}
    ready = list(range(len(lists) - 1, -1, -1))
    while ready:
        d = ready.pop()
        ops = lists[d]
        while position[d] < len(ops):
            op = ops[position[d]]
            needed = _needed(op, virtual)
            if needed is not None and needed not in done:
                waiting[needed] = d
                break
            yield d, op, needed
            position[d] += 1
            leaves = Op("B", op.micro_batch, op.stage) if op.kind == "BW" else op
            done.add(leaves)
            if leaves in waiting:
                ready.append(waiting.pop(leaves))
    if waiting:
        stuck = [
            f"device {d} is at {_words(lists[d][position[d]])} and waits for {_words(needed)}"
            for needed, d in sorted(waiting.items(), key=lambda item: item[1])
        ]
        raise OrderError("the order deadlocks: " + "; ".join(stuck))


def _needed(op: Op, virtual: int) -> Op | None:
    """Return what a neighbouring stage has to do first; B stands for BW as well."""
    kind, j, x = op
    if kind == "F":
        return Op("F", j, x - 1) if x > 0 else None
    return Op("B", j, x + 1) if kind != "W" and x + 1 < virtual else None


class _Program:
    """Steps over values: START, NEVER, one release per virtual stage, then each step's."""

    def __init__(self, virtual: int, devices: int) -> None:
        self.virtual = virtual
        self.steps: list[tuple[int, int, int]] = []  # turn, message, takes
        self.done: dict[Op, int] = {}
        self.clock = [START] * devices
        self.starts = [-1] * virtual
        self.ends = [-1] * virtual
        self.split = [False] * virtual

    def add(self, d: int, op: Op, needed: Op | None) -> None:
        kind, j, x = op
        message = NEVER if needed is None else self.done[needed]
        if self.starts[x] < 0:  # the first forward pass also waits for its parameters
            nothing = 4 * self.virtual
            self._step(d, RELEASES + x, nothing)
            self.starts[x] = self._step(d, message, nothing)
            message = NEVER
        value = self._step(d, message, _KINDS.index(kind) * self.virtual + x)
        if kind == "F":
            self.done[op] = value
        else:
            self.ends[x], self.split[x] = value, kind == "W"
            if kind != "W":
                self.done[Op("B", j, x)] = value

    def _step(self, d: int, message: int, takes: int) -> int:
        self.steps.append((self.clock[d], message, takes))
        self.clock[d] = RELEASES + self.virtual + len(self.steps) - 1
        return self.clock[d]

    def pack(
        self,
    ) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...], tuple[int, ...], Sequence[int]]:
        """Give every value a slot, and slots that nobody reads any more to new values."""
        first = RELEASES + self.virtual
        used = list(range(first)) + [0] * len(self.steps)  # the step that reads it last
        for i, (turn, message, _) in enumerate(self.steps):
            used[turn] = used[message] = i
        kept = {*range(first), *self.starts, *self.ends, *self.clock}
        slot_of = list(range(first)) + [0] * len(self.steps)
        free: list[int] = []
        slots = first
        for i, (turn, message, _) in enumerate(self.steps):
            free += [slot_of[v] for v in {turn, message} if used[v] == i and v not in kept]
            if not free:
                free.append(slots)
                slots += 1
            slot_of[first + i] = free.pop()
        turns, messages, takes = zip(*self.steps, strict=True)
        return (
            tuple(slot_of[first:]),
            tuple(slot_of[v] for v in turns),
            tuple(slot_of[v] for v in messages),
            tuple(takes),
            slot_of,
        )


def _alive(
    ops: Sequence[Op], held: Sequence[int]
) -> tuple[tuple[tuple[int, ...], ...], tuple[tuple[int, ...], ...]]:
    """Return how many micro-batches are alive on each of *held*, where it is the most.

    Once at the start of forward passes and once at the start of backward passes. A
    micro-batch lives from the start of its F to the end of its BW or W. With several
    virtual stages no moment need have the most of each, so all moments are returned
    that no other beats on every stage.
    """
    alive = [0] * len(held)
    place = {x: i for i, x in enumerate(held)}
    forward: set[tuple[int, ...]] = set()
    backward: set[tuple[int, ...]] = set()
    for kind, _, x in ops:
        if kind == "F":
            alive[place[x]] += 1
            forward.add(tuple(alive))
        else:
            backward.add(tuple(alive))
            alive[place[x]] -= kind != "B"
    return _unbeaten(forward), _unbeaten(backward)


def _unbeaten(vectors: Iterable[tuple[int, ...]]) -> tuple[tuple[int, ...], ...]:
    found: list[tuple[int, ...]] = []
    for vector in sorted(vectors, key=lambda v: (-sum(v), v)):
        if not any(all(a >= b for a, b in zip(f, vector, strict=True)) for f in found):
            found.append(vector)
    return tuple(found)
