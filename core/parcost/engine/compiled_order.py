"""An op order compiled for replay: a short program whose variables are slots that hold times.

Only one input of an op can come from another device. The others precede it on its own device. So a
replay needs two times: the end of the previous op, and the arrival of the message. Each op is a
step of four numbers; steps are sorted so that inputs come first. A pair is two steps, each with one
message.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias, cast

from parcost.contract.pipelines import Op, Pair, ops_of
from parcost.language.errors import PluginError
from parcost.records import frozen

if TYPE_CHECKING:
    from parcost.engine.rounds import Round

# Slots: time zero, a message that does not exist, and from here on the releases.
START, NEVER, RELEASES = 0, 1, 2
KINDS = ("F", "B", "W", "BW")  # in the order of their durations

#: An op by its fields; B stands for BW where only the gradient matters.
Key: TypeAlias = tuple[str, int, int]
Entry: TypeAlias = Op | Pair


class OrderError(PluginError):
    """The op order of a schedule is invalid."""


@frozen(kw_only=True, eq=False)
class CompiledOrder:
    """Step i is ``state[into[i]] = max(state[turn[i]], state[message[i]] + hop) + takes[i]``.

    *takes* are indices of durations: F, then B, W and BW of every virtual stage, then zero, then
    *pairs*. The message of step i crosses route ``over[i]`` between two devices; -1 means no
    message. *releases*, *starts* and *ends* are the slots of each copy of a virtual stage.

    The steps of *round_* may be repeated for further micro-batches. Each time, the second slots of
    *carried* are moved to the first ones.
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
    round_: tuple[int, int] = (0, 0)
    carried: Sequence[tuple[int, int]] = ()


def compile_order(
    lists: Sequence[Sequence[Entry]],
    home: Sequence[int],
    turns: Iterable[int],
    number: Mapping[tuple[int, int], int],
    *,
    blocking: bool = False,
    keep: bool = False,
    round_: Round | None = None,
) -> CompiledOrder:
    """Compile the op lists of all devices into one program, in the order of *turns*.

    *home* is the device of each (micro-batch, virtual stage), micro-batch by micro-batch. *number*
    is the index of the copy by (virtual stage, device). *blocking*: a device is busy while it
    sends. *keep*: every op keeps its slot, and is listed in *entries*. *round_* is the round of the
    order that may be repeated.
    """
    made = _OrderCompiler(home, number, len(lists))
    if round_ is not None:
        made.add_round(lists, round_)
        return made.order(())
    if not (blocking or keep or any(Pair in set(map(type, entries_)) for entries_ in lists)):
        made.add_ops(_iterators(lists), turns)
        return made.order(())
    entries: list[tuple[int, Entry, int, int]] = []
    todo = [iter(entries_) for entries_ in lists]
    for d in turns:
        entry = next(todo[d])
        value, duration = made.add(d, entry)
        if keep:
            entries.append((d, entry, value, duration))
        if blocking:
            made.send(d, entry if isinstance(entry, Pair) else (entry,))
    return made.order(entries)


class _OrderCompiler:
    """Builds the steps of an order; each has dependencies and a duration.

    Values are end times, numbered: first the initial slots, then one for each step.
    """

    __slots__ = (
        "arrivals",
        "befores",
        "carried",
        "clock",
        "done",
        "ends",
        "first",
        "half",
        "home",
        "nothing",
        "number",
        "offset",
        "over",
        "pairs",
        "round",
        "routes",
        "starts",
        "takes",
        "virtual",
    )

    def __init__(
        self, home: Sequence[int], number: Mapping[tuple[int, int], int], devices: int
    ) -> None:
        self.home, self.number, self.half = home, number, len(home)
        self.virtual = 1 + max(x for x, _ in number)
        self.befores: list[int] = []  # by step: the value that the device has to be done with
        self.arrivals: list[int] = []
        self.takes: list[int] = []
        self.over: list[int] = []
        self.first = RELEASES + len(number)
        self.done = [0] * (2 * len(home))  # the value of each F, then of each B
        self.clock = [START] * devices
        self.starts, self.ends = [-1] * len(number), [-1] * len(number)
        self.offset = {kind: i * self.virtual for i, kind in enumerate(KINDS)}
        self.nothing = len(KINDS) * self.virtual
        self.routes = _Routes()
        self.pairs: dict[tuple[int, int], int] = {}
        self.round = (0, 0)
        self.carried: Sequence[tuple[int, int]] = ()

    def add(self, d: int, entry: Entry) -> tuple[int, int]:
        """Add the steps of the next ops of device *d*; return the last value, and its duration."""
        home, virtual, done = self.home, self.virtual, self.done
        message, route, more = NEVER, -1, None
        if isinstance(entry, Pair):
            ops: Sequence[Op] = entry
            (_, _, x), (_, _, y) = ops
            duration = self.nothing + 1 + self.pairs.setdefault((x, y), len(self.pairs))
        else:
            ops = (entry,)
            duration = self.offset[entry.kind] + entry.stage
        for kind, j, x in ops:
            at = j * virtual + x
            if kind == "F":
                if not x or (origin := home[at - 1]) == d:
                    continue
                sent = done[at - 1]
            elif kind == "W" or x == virtual - 1 or (origin := home[at + 1]) == d:
                continue
            else:
                sent = done[self.half + at + 1]
            if message != NEVER:
                more = (message, route)
            message, route = sent, self.routes[origin, d]
        copy = self.number[ops[0].stage, d]
        if self.starts[copy] < 0:  # the first forward pass also waits for its release
            self._step(d, RELEASES + copy, self.nothing, -1)
            if more is not None:
                self._step(d, more[0], self.nothing, more[1])
            self._step(d, message, self.nothing, route)
            message, route, more = NEVER, -1, None
            self.starts[copy] = self.clock[d]
        if more is not None:
            self._step(d, message, self.nothing, route)
            message, route = more
        value = self._step(d, message, duration, route)
        for kind, j, x in ops:
            if kind == "F":
                done[j * virtual + x] = value
            else:
                self.ends[self.number[x, d]] = value
                if kind != "W":
                    done[self.half + j * virtual + x] = value
        return value, duration

    def add_round(self, lists: Sequence[Sequence[Entry]], round_: Round) -> None:
        """Add the steps of all ops, and mark those of *round_*."""
        todo, turns, done = _iterators(lists), round_.turns, self.done
        self.add_ops(todo, turns[: round_.start])
        start = [*self.clock, *(done[output] for output in round_.carried)]
        first = len(self.takes)
        self.add_ops(todo, turns[round_.start : round_.stop])
        stop = [*self.clock, *(done[output + round_.later] for output in round_.carried)]
        self.round, self.carried = (first, len(self.takes)), list(zip(start, stop, strict=True))
        self.add_ops(todo, turns[round_.stop :])

    def add_ops(self, todo: Sequence[Iterator[Op]], turns: Iterable[int]) -> None:
        """Add the steps of the next ops in the order of *turns*, as :meth:`add` does one by one.

        It supports no pairs, and takes half the time, which matters because an order is compiled
        for few replays.
        """
        home, virtual, done, half = self.home, self.virtual, self.done, self.half
        befores, arrivals, takes, over = self.befores, self.arrivals, self.takes, self.over
        clock, starts, ends, routes = self.clock, self.starts, self.ends, self.routes
        offset, number, last = self.offset, self.number, virtual - 1
        copies = [[number.get((x, d), -1) for x in range(virtual)] for d in range(len(clock))]
        value = self.first + len(takes)
        for d in turns:
            kind, j, x = next(todo[d])
            at, copy = j * virtual + x, copies[d][x]
            message, route = NEVER, -1
            if kind == "F":
                if x and (origin := home[at - 1]) != d:
                    message, route = done[at - 1], routes[origin, d]
            elif kind != "W" and x != last and (origin := home[at + 1]) != d:
                message, route = done[half + at + 1], routes[origin, d]
            if starts[copy] < 0:  # the first forward pass also waits for its release
                self._step(d, RELEASES + copy, self.nothing, -1)
                starts[copy] = self._step(d, message, self.nothing, route)
                message, route, value = NEVER, -1, value + 2
            befores.append(clock[d])
            arrivals.append(message)
            takes.append(offset[kind] + x)
            over.append(route)
            clock[d] = value
            if kind == "F":
                done[at] = value
            else:
                ends[copy] = value
                if kind != "W":
                    done[half + at] = value
            value += 1

    def send(self, d: int, ops: Sequence[Op]) -> None:
        """Keep device *d* busy while it sends the outputs of *ops*."""
        last = self.virtual - 1
        for kind, j, x in ops:
            if kind == "W" or x == (last if kind == "F" else 0):
                continue
            to = self.home[j * self.virtual + x + (1 if kind == "F" else -1)]
            if to != d:
                self._step(d, self.clock[d], self.nothing, self.routes[d, to])

    def order(self, entries: Sequence[tuple[int, Entry, int, int]]) -> CompiledOrder:
        """Return the order; slots are reused after the last use of their value."""
        starts, ends, clock = self.starts, self.ends, self.clock
        kept = {*range(self.first), *starts, *ends, *clock, *(value for _, _, value, _ in entries)}
        slot_of = _slots(self.befores, self.arrivals, self.first, kept)
        return CompiledOrder(
            into=tuple(slot_of[self.first :]),
            turn=tuple(map(slot_of.__getitem__, self.befores)),
            message=tuple(map(slot_of.__getitem__, self.arrivals)),
            over=tuple(self.over),
            takes=tuple(self.takes),
            slots=1 + max(slot_of),
            routes=tuple(self.routes.pairs),
            pairs=tuple(self.pairs),
            releases=range(RELEASES, self.first),
            starts=[slot_of[value] for value in starts],
            ends=[slot_of[value] for value in ends],
            last=[slot_of[value] for value in clock],
            entries=[(d, entry, slot_of[value], duration) for d, entry, value, duration in entries],
            round_=self.round,
            carried=[(slot_of[start], slot_of[stop]) for start, stop in self.carried],
        )

    def _step(self, d: int, message: int, duration: int, route: int) -> int:
        """Append a replay step to device *d*; return the index of its end time in the state."""
        self.befores.append(self.clock[d])
        self.arrivals.append(message)
        self.takes.append(duration)
        self.over.append(route)
        self.clock[d] = value = self.first + len(self.takes) - 1
        return value


def _iterators(lists: Sequence[Sequence[Entry]]) -> Sequence[Iterator[Op]]:
    return [iter(cast("Sequence[Op]", entries)) for entries in lists]


class _Routes(dict[tuple[int, int], int]):
    """Index of each route by its two devices, in either direction."""

    def __init__(self) -> None:
        super().__init__()
        self.pairs: list[tuple[int, int]] = []

    def __missing__(self, way: tuple[int, int]) -> int:
        a, b = way
        self[a, b] = self[b, a] = number = len(self.pairs)
        self.pairs.append((min(a, b), max(a, b)))
        return number


def turns_of(lists: Sequence[Sequence[Entry]], virtual: int, half: int) -> Sequence[int]:
    """Return the device of each entry, in an order in which every entry follows its inputs.

    The output of an F has the index micro-batch times *virtual* stages, plus its stage. The output
    of its B has that index plus *half*, half the number of outputs.

    Raises:
        OrderError: The devices wait for one another.
    """
    if not any(Pair in set(map(type, entries)) for entries in lists):
        ops = cast("Sequence[Sequence[Op]]", lists)
        if (turns := _turns_of_ops(ops, virtual, half)) is not None:
            return turns
    position = [0] * len(lists)
    done = bytearray(2 * half + 1)
    done[-1] = 1  # a position without work
    waiting: dict[int, int] = {}
    ready = list(range(len(lists) - 1, -1, -1))
    found = array("I")
    while ready:
        d = ready.pop()
        entries = lists[d]
        for i in range(position[d], len(entries)):
            entry = entries[i]
            left = other = -1
            for kind, j, x in entry if isinstance(entry, Pair) else (entry,):
                at = j * virtual + x
                if kind == "F":
                    need = at - 1 if x else -1
                elif kind == "W":
                    continue
                else:
                    at += half
                    need = at + 1 if x + 1 < virtual else -1
                if not done[need]:
                    break
                left, other = at, left
            else:
                for at in (other, left):
                    if at >= 0:
                        done[at] = 1
                        if at in waiting:
                            ready.append(waiting.pop(at))
                continue
            waiting[need] = d
            break
        else:
            i = len(entries)
        found.extend([d] * (i - position[d]))
        position[d] = i
    if waiting:
        stuck = [
            f"device {d} is blocked at {_name_entry(lists[d][position[d]])}, waiting for "
            + words(("BF"[need < half], need % half // virtual, need % virtual))
            for d, need in sorted((d, need) for need, d in waiting.items())
        ]
        raise OrderError("the order deadlocks: " + "; ".join(stuck))
    return found


def _turns_of_ops(lists: Sequence[Sequence[Op]], virtual: int, half: int) -> Sequence[int] | None:
    """Return the result of :func:`turns_of` for ops without pairs; None if the order deadlocks.

    It takes half the time; most schedules have no pairs.
    """
    position, sizes = [0] * len(lists), list(map(len, lists))
    done = bytearray(2 * half + 1)
    done[-1] = 1  # a position without work
    waiting: dict[int, int] = {}
    ready = list(range(len(lists) - 1, -1, -1))
    found = array("I")
    last = virtual - 1
    while ready:
        d = ready.pop()
        entries, start, size = lists[d], position[d], sizes[d]
        for i in range(start, size):
            kind, j, x = entries[i]
            at = j * virtual + x
            if kind == "F":
                need = at - 1 if x else -1
            elif kind == "W":
                continue
            else:
                at += half
                need = at + 1 if x < last else -1
            if not done[need]:
                waiting[need] = d
                break
            done[at] = 1
            if at in waiting:
                ready.append(waiting.pop(at))
        else:
            i = size
        found.extend([d] * (i - start))
        position[d] = i
    return None if waiting else found


def _slots(
    befores: Sequence[int], messages: Sequence[int], first: int, kept: set[int]
) -> list[int]:
    """Assign a slot to every value; slots that are not read again are reused."""
    read = [0] * (first + len(befores))  # the step that reads it last
    for i, (before, message) in enumerate(zip(befores, messages, strict=True)):
        read[before] = read[message] = i
    for value in kept:
        read[value] = len(befores)
    slot_of = list(range(first))
    free: list[int] = []
    slots = first
    for i, (before, message) in enumerate(zip(befores, messages, strict=True)):
        if read[before] == i:
            free.append(slot_of[before])
        if read[message] == i and message != before:
            free.append(slot_of[message])
        if not free:
            free.append(slots)
            slots += 1
        slot_of.append(free.pop())
    return slot_of


def words(op: Key) -> str:
    """Return the name of *op* in messages: "F of micro-batch 0 on stage 1"."""
    kind, micro_batch, stage = op
    return f"{kind} of micro-batch {micro_batch} on stage {stage}"


def _name_entry(entry: Entry) -> str:
    return " and ".join(map(words, ops_of(entry)))
