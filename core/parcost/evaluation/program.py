"""An op order laid out for replay: a short program over slots that hold times.

Of the inputs of an op only one can come from another device. The rest precede it on
its own device, so "its turn has come, and its message has arrived" is all that a
replay has to know: an op is four numbers, in an order in which inputs come first. A
pair, with a message for each half, is two such steps.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TypeAlias

from attrs import frozen

from parcost.diagnostics import PluginError
from parcost.terms import Op, Pair

# Slots: time zero, a message that does not exist, and from here on the releases.
START, NEVER, RELEASES = 0, 1, 2
KINDS = ("F", "B", "W", "BW")  # in the order of their durations

#: An op by its fields; B stands for BW where only the gradient matters.
Key: TypeAlias = tuple[str, int, int]
Entry: TypeAlias = Op | Pair


class OrderError(PluginError):
    """A schedule's op order is not one."""


@frozen(kw_only=True, eq=False)
class Program:
    """Step i is ``state[into[i]] = max(state[turn[i]], state[message[i]] + hop) + takes[i]``.

    *takes* are numbers of durations: F, then B, W and BW of every virtual stage, then
    nothing, then *pairs*. The hop is over route ``over[i]``, two devices, or over none,
    which is -1. *releases*, *starts* and *ends* are slots, by copy of a virtual stage.
    """

    into: Sequence[int]
    turn: Sequence[int]
    message: Sequence[int]
    over: Sequence[int]
    takes: Sequence[int]
    slots: int
    routes: Sequence[tuple[int, int]]
    pairs: Sequence[tuple[int, int]]  # virtual stages of the F and of the BW
    releases: Sequence[int]  # what holds back the first forward pass
    starts: Sequence[int]  # when the first forward pass begins
    ends: Sequence[int]  # when the last backward pass ends
    last: Sequence[int]  # by device: when it is done
    entries: Sequence[tuple[int, Entry, int, int]] = ()  # device, entry, its slot, what it takes


def lay_out(
    lists: Sequence[Sequence[Entry]],
    home: Mapping[tuple[int, int], int],
    number: Mapping[tuple[int, int], int],
    *,
    blocking: bool = False,
    keep: bool = False,
) -> tuple[Program, Sequence[Mapping[tuple[int, int], int]]]:
    """Lay out what devices do, and count the messages of each by route.

    *home* is the device of each micro-batch and virtual stage, *number* that of the copy
    of each virtual stage and device. *blocking*: a device is busy while it sends. *keep*:
    every entry keeps its slot, and is listed in *entries*.

    Raises:
        OrderError: The devices wait for one another.
    """
    virtual = 1 + max(x for _, x in home)
    steps: list[tuple[int, int, int]] = []  # turn, message, takes
    over: list[int] = []
    first = RELEASES + len(number)  # values are numbered: slots that are given, then steps
    done: dict[Key, int] = {}
    clock = [START] * len(lists)
    starts, ends = [-1] * len(number), [-1] * len(number)
    offset = {kind: i * virtual for i, kind in enumerate(KINDS)}
    nothing = len(KINDS) * virtual
    routes: dict[tuple[int, int], int] = {}
    pairs: dict[tuple[int, int], int] = {}
    sent: list[Counter[tuple[int, int]]] = [Counter() for _ in lists]
    entries: list[tuple[int, Entry, int, int]] = []

    def step(turn: int, message: int, takes: int, route: int) -> int:
        steps.append((turn, message, takes))
        over.append(route)
        return first + len(steps) - 1

    for d, entry, needs in _sorted(lists, virtual):
        ops = ops_of(entry)
        messages: list[tuple[int, int]] = []
        for need in needs:
            if need is not None and (origin := home[need[1], need[2]]) != d:
                ends_at = (origin, d) if origin < d else (d, origin)
                messages.append((done[need], routes.setdefault(ends_at, len(routes))))
        kind, _, x = ops[0]
        copy = number[x, d]
        if starts[copy] < 0:  # the first forward pass also waits for its release
            clock[d] = step(clock[d], RELEASES + copy, nothing, -1)
            for message, route in messages or [(NEVER, -1)]:
                clock[d] = step(clock[d], message, nothing, route)
            messages, starts[copy] = [], clock[d]
        for message, route in messages[1:]:
            clock[d] = step(clock[d], message, nothing, route)
        if isinstance(entry, Pair):
            both = (entry.forward.stage, entry.backward.stage)
            takes = nothing + 1 + pairs.setdefault(both, len(pairs))
        else:
            takes = offset[kind] + x
        message, route = messages[0] if messages else (NEVER, -1)
        value = clock[d] = step(clock[d], message, takes, route)
        if keep:
            entries.append((d, entry, value, takes))
        for kind, j, x in ops:
            if kind == "F":
                done["F", j, x] = value
                reader = x + 1
            else:
                ends[number[x, d]] = value
                if kind == "W":
                    continue
                done["B", j, x] = value
                reader = x - 1
            to = home.get((j, reader), d)
            if to != d:
                way = (d, to) if d < to else (to, d)
                sent[d][way] += 1
                if blocking:
                    route = routes.setdefault(way, len(routes))
                    clock[d] = step(clock[d], clock[d], nothing, route)
    kept = {*range(first), *starts, *ends, *clock, *(value for _, _, value, _ in entries)}
    slot_of = _slots(steps, first, kept)
    turns, messages_, takes_ = zip(*steps, strict=True)
    program = Program(
        into=tuple(slot_of[first:]),
        turn=tuple(slot_of[value] for value in turns),
        message=tuple(slot_of[value] for value in messages_),
        over=tuple(over),
        takes=takes_,
        slots=1 + max(slot_of),
        routes=tuple(routes),
        pairs=tuple(pairs),
        releases=range(RELEASES, first),
        starts=[slot_of[value] for value in starts],
        ends=[slot_of[value] for value in ends],
        last=[slot_of[value] for value in clock],
        entries=[(d, entry, slot_of[value], takes) for d, entry, value, takes in entries],
    )
    return program, sent


def _sorted(
    lists: Sequence[Sequence[Entry]], virtual: int
) -> Iterator[tuple[int, Entry, Sequence[Key | None]]]:
    """Yield every entry with its device and what it needs of neighbours, needs first."""
    position = [0] * len(lists)
    done: set[Key] = set()
    waiting: dict[Key, int] = {}
    ready = list(range(len(lists) - 1, -1, -1))
    while ready:
        d = ready.pop()
        entries = lists[d]
        for i in range(position[d], len(entries)):
            entry = entries[i]
            ops = ops_of(entry)
            needs = [_need(op, virtual) for op in ops]
            missing = [need for need in needs if need is not None and need not in done]
            if missing:
                waiting[missing[0]] = d
                position[d] = i
                break
            yield d, entry, needs
            for kind, j, x in ops:
                leaves = ("B" if kind == "BW" else kind, j, x)
                done.add(leaves)
                if leaves in waiting:
                    ready.append(waiting.pop(leaves))
    if waiting:
        stuck = [
            f"device {d} is at {_at(lists[d][position[d]])} and waits for {words(needed)}"
            for needed, d in sorted(waiting.items(), key=lambda item: item[1])
        ]
        raise OrderError("the order deadlocks: " + "; ".join(stuck))


def ops_of(entry: Entry) -> Sequence[Op]:
    """Return the op, or both ops of a pair."""
    return (entry.forward, entry.backward) if isinstance(entry, Pair) else (entry,)


def _need(op: Op, virtual: int) -> Key | None:
    kind, j, x = op
    if kind == "F":
        return ("F", j, x - 1) if x > 0 else None
    return ("B", j, x + 1) if kind != "W" and x + 1 < virtual else None


def _slots(steps: Sequence[tuple[int, int, int]], first: int, kept: set[int]) -> list[int]:
    """Give every value a slot, and slots that nobody reads any more to new values."""
    read = [0] * (first + len(steps))  # the step that reads it last
    for i, (turn, message, _) in enumerate(steps):
        read[turn] = read[message] = i
    for value in kept:
        read[value] = len(steps)
    slot_of = list(range(first))
    free: list[int] = []
    slots = first
    for i, (turn, message, _) in enumerate(steps):
        if read[turn] == i:
            free.append(slot_of[turn])
        if read[message] == i and message != turn:
            free.append(slot_of[message])
        if not free:
            free.append(slots)
            slots += 1
        slot_of.append(free.pop())
    return slot_of


def words(op: Key) -> str:
    """Return *op* as a sentence calls it."""
    kind, micro_batch, stage = op
    return f"{kind} of micro-batch {micro_batch} on stage {stage}"


def _at(entry: Entry) -> str:
    return " and ".join(map(words, ops_of(entry)))
