"""An op order laid out for replay: a short program over slots that hold times.

Of the inputs of an op only one can come from another device. The rest precede it on
its own device, so "its turn has come, and its message has arrived" is all that a
replay has to know: an op is four numbers, in an order in which inputs come first.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from attrs import frozen

from parcost.diagnostics import PluginError
from parcost.terms import Op

# Slots: time zero, a message that does not exist, and from here on the releases.
START, NEVER, RELEASES = 0, 1, 2
KINDS = ("F", "B", "W", "BW")  # in the order of their durations

#: An op by its fields; B stands for BW where only the gradient matters.
Key = tuple[str, int, int]


class OrderError(PluginError):
    """A schedule's op order is not one."""


@frozen(kw_only=True, eq=False)
class Program:
    """Step i is ``state[into[i]] = max(state[turn[i]], state[message[i]] + hop) + takes[i]``.

    *takes* are numbers of durations: F, then B, W and BW of every virtual stage, then
    nothing. The hop is over boundary ``over[i]``, behind virtual stage ``over[i]``, or
    over none, which is -1. The other fields are slots that hold something when all is done.
    """

    into: Sequence[int]
    turn: Sequence[int]
    message: Sequence[int]
    over: Sequence[int]
    takes: Sequence[int]
    slots: int
    releases: Sequence[int]  # by virtual stage: what holds back its first forward pass
    starts: Sequence[int]  # by virtual stage: when its first forward pass begins
    ends: Sequence[int]  # by virtual stage: when its last backward pass ends
    last: Sequence[int]  # by device: when it is done


def lay_out(lists: Sequence[Sequence[Op]], device: Sequence[int]) -> Program:
    """Lay out what devices do, where *device* holds each virtual stage.

    Raises:
        OrderError: The devices wait for one another.
    """
    virtual = len(device)
    steps: list[tuple[int, int, int]] = []  # turn, message, takes
    over: list[int] = []
    first = RELEASES + virtual  # values are numbered: slots that are given, then steps
    done: dict[Key, int] = {}
    clock = [START] * len(lists)
    starts, ends = [-1] * virtual, [-1] * virtual
    offset = {kind: i * virtual for i, kind in enumerate(KINDS)}
    nothing = len(KINDS) * virtual
    for d, (kind, j, x), needed in _sorted(lists, virtual):
        message = NEVER if needed is None or device[needed[2]] == d else done[needed]
        boundary = -1 if needed is None else min(x, needed[2])
        if starts[x] < 0:  # the first forward pass also waits for its release
            steps += ((clock[d], RELEASES + x, nothing), (first + len(steps), message, nothing))
            starts[x] = clock[d] = first + len(steps) - 1
            over += (-1, boundary)
            message, boundary = NEVER, -1
        value = first + len(steps)
        steps.append((clock[d], message, offset[kind] + x))
        over.append(boundary)
        clock[d] = value
        if kind == "F":
            done["F", j, x] = value
            continue
        ends[x] = value
        if kind != "W":
            done["B", j, x] = value
    slot_of = _slots(steps, first, {*range(first), *starts, *ends, *clock})
    turns, messages, takes = zip(*steps, strict=True)
    return Program(
        into=tuple(slot_of[first:]),
        turn=tuple(slot_of[value] for value in turns),
        message=tuple(slot_of[value] for value in messages),
        over=tuple(over),
        takes=takes,
        slots=1 + max(slot_of),
        releases=range(RELEASES, first),
        starts=[slot_of[value] for value in starts],
        ends=[slot_of[value] for value in ends],
        last=[slot_of[value] for value in clock],
    )


def _sorted(lists: Sequence[Sequence[Op]], virtual: int) -> Iterator[tuple[int, Op, Key | None]]:
    """Yield every op with its device and what it needs of a neighbour, needs first."""
    position = [0] * len(lists)
    done: set[Key] = set()
    waiting: dict[Key, int] = {}
    ready = list(range(len(lists) - 1, -1, -1))
    while ready:
        d = ready.pop()
        ops = lists[d]
        for i in range(position[d], len(ops)):
            kind, j, x = op = ops[i]
            needed: Key | None = None
            if kind == "F":
                needed = ("F", j, x - 1) if x > 0 else None
            elif kind != "W" and x + 1 < virtual:
                needed = ("B", j, x + 1)
            if needed is not None and needed not in done:
                waiting[needed] = d
                position[d] = i
                break
            yield d, op, needed
            leaves = ("B" if kind == "BW" else kind, j, x)
            done.add(leaves)
            if leaves in waiting:
                ready.append(waiting.pop(leaves))
    if waiting:
        stuck = [
            f"device {d} is at {words(lists[d][position[d]])} and waits for {words(needed)}"
            for needed, d in sorted(waiting.items(), key=lambda item: item[1])
        ]
        raise OrderError("the order deadlocks: " + "; ".join(stuck))


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
