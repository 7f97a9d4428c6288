"""An op order laid out for replay: a short program over slots that hold times.

Of the inputs of an op only one can come from another device. The rest precede it on
its own device, so "its turn has come, and its message has arrived" is all that a
replay has to know: an op is four numbers, in an order in which inputs come first. A
pair, with a message for each half, is two such steps.
"""

from __future__ import annotations

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
    home: Sequence[int],
    number: Mapping[tuple[int, int], int],
    *,
    blocking: bool = False,
    keep: bool = False,
) -> Program:
    """Lay out what devices do.

    *home* is the device of each micro-batch and virtual stage, all stages of a micro-batch
    in turn; *number* is that of the copy of each virtual stage and device. *blocking*: a
    device is busy while it sends. *keep*: every entry keeps its slot, and is listed in
    *entries*.

    Raises:
        OrderError: The devices wait for one another.
    """
    virtual, half = 1 + max(x for x, _ in number), len(home)
    turns: list[int] = []
    arrivals: list[int] = []
    takes: list[int] = []
    over: list[int] = []
    first = RELEASES + len(number)  # values are numbered: slots that are given, then steps
    done = [0] * (2 * half)  # the value of each F, then of each B
    clock = [START] * len(lists)
    starts, ends = [-1] * len(number), [-1] * len(number)
    offset = {kind: i * virtual for i, kind in enumerate(KINDS)}
    nothing = len(KINDS) * virtual
    routes: dict[tuple[int, int], int] = {}
    pairs: dict[tuple[int, int], int] = {}
    entries: list[tuple[int, Entry, int, int]] = []

    def step(d: int, message: int, duration: int, route: int) -> int:
        turns.append(clock[d])
        arrivals.append(message)
        takes.append(duration)
        over.append(route)
        clock[d] = value = first + len(turns) - 1
        return value

    for d, entry, needs in in_turn(lists, virtual, half):
        ops = ops_of(entry)
        messages: list[tuple[int, int]] = []
        for need in needs:
            if need >= 0 and (origin := home[need % half]) != d:
                way = (origin, d) if origin < d else (d, origin)
                messages.append((done[need], routes.setdefault(way, len(routes))))
        kind, _, x = ops[0]
        copy = number[x, d]
        if starts[copy] < 0:  # the first forward pass also waits for its release
            step(d, RELEASES + copy, nothing, -1)
            for message, route in messages or [(NEVER, -1)]:
                step(d, message, nothing, route)
            messages, starts[copy] = [], clock[d]
        for message, route in messages[1:]:
            step(d, message, nothing, route)
        duration = offset[kind] + x
        if len(ops) > 1:
            both = (x, ops[1].stage)
            duration = nothing + 1 + pairs.setdefault(both, len(pairs))
        message, route = messages[0] if messages else (NEVER, -1)
        value = step(d, message, duration, route)
        if keep:
            entries.append((d, entry, value, duration))
        for kind, j, x in ops:
            at = j * virtual + x
            if kind == "F":
                done[at] = value
                to = home[at + 1] if x + 1 < virtual else d
            else:
                ends[number[x, d]] = value
                if kind == "W":
                    continue
                done[half + at] = value
                to = home[at - 1] if x else d
            if blocking and to != d:
                way = (d, to) if d < to else (to, d)
                step(d, clock[d], nothing, routes.setdefault(way, len(routes)))
    kept = {*range(first), *starts, *ends, *clock, *(value for _, _, value, _ in entries)}
    slot_of = _slots(turns, arrivals, first, kept)
    return Program(
        into=tuple(slot_of[first:]),
        turn=tuple(map(slot_of.__getitem__, turns)),
        message=tuple(map(slot_of.__getitem__, arrivals)),
        over=tuple(over),
        takes=tuple(takes),
        slots=1 + max(slot_of),
        routes=tuple(routes),
        pairs=tuple(pairs),
        releases=range(RELEASES, first),
        starts=[slot_of[value] for value in starts],
        ends=[slot_of[value] for value in ends],
        last=[slot_of[value] for value in clock],
        entries=[(d, entry, slot_of[value], duration) for d, entry, value, duration in entries],
    )


def in_turn(
    lists: Sequence[Sequence[Entry]], virtual: int, half: int
) -> Iterator[tuple[int, Entry, Sequence[int]]]:
    """Yield every entry with its device and what it needs of neighbours, needs first.

    What the F of a micro-batch leaves has the number of the micro-batch times *virtual*
    stages, plus its stage, and what its B leaves is *half* of all numbers further; no
    need is -1.

    Raises:
        OrderError: The devices wait for one another.
    """
    position = [0] * len(lists)
    done = bytearray(2 * half)
    waiting: dict[int, int] = {}
    ready = list(range(len(lists) - 1, -1, -1))
    while ready:
        d = ready.pop()
        entries = lists[d]
        for i in range(position[d], len(entries)):
            entry = entries[i]
            needs, leaves = [], []
            for kind, j, x in ops_of(entry):
                at = j * virtual + x
                if kind == "F":
                    needs.append(at - 1 if x else -1)
                    leaves.append(at)
                elif kind != "W":
                    needs.append(half + at + 1 if x + 1 < virtual else -1)
                    leaves.append(half + at)
            missing = [need for need in needs if need >= 0 and not done[need]]
            if missing:
                waiting[missing[0]] = d
                position[d] = i
                break
            yield d, entry, needs
            for left in leaves:
                done[left] = 1
                if left in waiting:
                    ready.append(waiting.pop(left))
    if waiting:
        stuck = [
            f"device {d} is at {_at(lists[d][position[d]])} and waits for "
            + words(("BF"[need < half], need % half // virtual, need % virtual))
            for d, need in sorted((d, need) for need, d in waiting.items())
        ]
        raise OrderError("the order deadlocks: " + "; ".join(stuck))


def ops_of(entry: Entry) -> Sequence[Op]:
    """Return the op, or both ops of a pair."""
    return entry if isinstance(entry, Pair) else (entry,)


def _slots(turns: Sequence[int], messages: Sequence[int], first: int, kept: set[int]) -> list[int]:
    """Give every value a slot, and slots that nobody reads any more to new values."""
    read = [0] * (first + len(turns))  # the step that reads it last
    for i, (turn, message) in enumerate(zip(turns, messages, strict=True)):
        read[turn] = read[message] = i
    for value in kept:
        read[value] = len(turns)
    slot_of = list(range(first))
    free: list[int] = []
    slots = first
    for i, (turn, message) in enumerate(zip(turns, messages, strict=True)):
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
