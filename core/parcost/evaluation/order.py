"""What a schedule's op order says, checked and read off once.

A schedule gives each device a list of ops and nothing else. Which devices hold which
virtual stage, what waits for what, and how many micro-batches are alive when, all
follow from the lists. They are checked here: a schedule comes from a plugin, and a
bad order must name its mistake instead of giving a time.

A virtual stage on several devices has a *copy* on each. Everything that is held, or
done once per step, is by copy; copies are numbered like virtual stages where each has
one, and otherwise each stage's first copy comes first.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from attrs import frozen

from parcost.evaluation.program import (
    KINDS,
    Entry,
    Key,
    OrderError,
    Program,
    lay_out,
    ops_of,
    words,
)
from parcost.terms import Op, Pair, Schedule

_CACHED = 2**20  # steps of all cached orders together, some 40 bytes each

_Asked = tuple[int, int, int, int, bool]


class Alive(NamedTuple):
    """Micro-batches on each copy of a device at one moment.

    *alive* counts those that have begun and still hold something, *whole* those of them
    whose B has not ended.
    """

    alive: tuple[int, ...]
    whole: tuple[int, ...]


@frozen(kw_only=True, eq=False)
class Order:
    """A checked op order.

    *alive_forward* and *alive_backward* are the moments, by device, with the most
    micro-batches alive: with several copies no moment need have the most of each, so
    all are kept that no other beats on every copy.
    """

    stage: tuple[int, ...]  # the virtual stage of each copy
    device: tuple[int, ...]  # that each copy is on
    held: tuple[tuple[int, ...], ...]  # copies of each device, by stage
    runs: Sequence[int]  # by copy: micro-batches that pass through it
    split: Sequence[bool]  # by copy: its last backward op is W, not BW
    alive: Sequence[int]  # by copy: the most micro-batches alive
    alive_forward: Sequence[Sequence[Alive]]
    alive_backward: Sequence[Sequence[Alive]]
    pairs: Sequence[Mapping[tuple[int, int], int]]  # by device: pairs, by stages of F and BW
    sent: Sequence[Mapping[tuple[int, int], int]]  # by device: messages, by route
    first: Sequence[int]  # by device: the stage of its first op
    last: Sequence[int]  # by device: the stage of its last op, 0 where that is a W
    fused: bool  # every backward op is a BW
    program: Program


def order_of(
    schedule: Schedule, stages: int, micro_batches: int, chunks: int, *, blocking: bool = False
) -> Order:
    """Return the order of *schedule*, from a cache that knows the schedule by identity.

    Raises:
        OrderError: The schedule raises, or what it returns is not an order.
    """
    key = (id(schedule), stages, micro_batches, chunks, blocking)
    if key in _cache:
        _cache.move_to_end(key)
        return _cache[key][1]
    try:
        lists = ask(schedule, stages, micro_batches, chunks)
        order = _read(lists, _check(schedule, lists, stages, micro_batches, chunks), blocking)
    except (OrderError, TypeError) as error:  # TypeError: an op of things that are no numbers
        where = f"p = {stages}, m = {micro_batches}, v = {chunks}"
        raise OrderError(f"schedule `{schedule.name}` at {where}: {error}") from error
    _cache[key] = (schedule, order)  # the schedule is kept, so that its id stays its own
    while len(_cache) > 1 and sum(len(o.program.into) for _, o in _cache.values()) > _CACHED:
        _cache.popitem(last=False)
    return order


_cache: OrderedDict[_Asked, tuple[Schedule, Order]] = OrderedDict()


def ask(
    schedule: Schedule, stages: int, micro_batches: int, chunks: int
) -> Sequence[Sequence[Entry]]:
    """Return the lists of *schedule*, of ops and pairs.

    Raises:
        OrderError: The schedule raises, or lists something else.
    """
    try:
        lists = schedule.order(stages, micro_batches, chunks)
        return [[_entry(entry) for entry in entries] for entries in lists]
    except Exception as error:
        raise OrderError(f"`order` raised {type(error).__name__}: {error}") from error


def _entry(entry: Op | Pair) -> Entry:
    if type(entry) is Op:
        return entry
    return Pair(Op(*entry.forward), Op(*entry.backward)) if isinstance(entry, Pair) else Op(*entry)


def parts(entries: Sequence[Entry]) -> Iterable[Op]:
    """Yield the ops of *entries*; of a pair, the backward one first: its F came before."""
    for entry in entries:
        yield from reversed(ops_of(entry))


# --- Checking ------------------------------------------------------------------------


def _check(
    schedule: Schedule,
    lists: Sequence[Sequence[Entry]],
    stages: int,
    micro_batches: int,
    chunks: int,
) -> Mapping[tuple[int, int], int]:
    """Check that every stage does everything, once, on one device, F before B before W.

    Return the device of every micro-batch and virtual stage.
    """
    if len(lists) != stages:
        raise OrderError(f"{len(lists)} devices have a list and there are {stages}")
    known = {(j, x) for j in range(micro_batches) for x in range(stages * chunks)}
    holder: dict[Key, int] = {}
    for device, entries in enumerate(lists):
        if not entries:
            raise OrderError(f"device {device} has nothing to do")
        for kinds in ([op.kind for op in e] for e in entries if isinstance(e, Pair)):
            if kinds != ["F", "BW"]:
                raise OrderError(f"a pair is of an F and a BW, not of {' and '.join(kinds)}")
        for op in parts(entries):
            kind, j, x = op
            if kind not in KINDS:
                raise OrderError(f"`{kind}` is not a kind of op; F, B, W and BW are")
            if (j, x) not in known:
                raise OrderError(f"device {device} lists {words(op)}, which does not exist")
            if op in holder:
                raise OrderError(f"{words(op)} is listed twice")
            holder[op] = device
            if kind != "F":
                before = "B" if kind == "W" else "F"
                if holder.get((before, j, x)) != device:
                    message = f"device {device} lists {words(op)} without its {before} before it"
                    raise OrderError(message)
    copies = getattr(schedule, "copies", 1)
    on: dict[int, list[int]] = {}
    for j, x in sorted(known):
        if ("F", j, x) not in holder:
            raise OrderError(f"{words(('F', j, x))} is not listed")
        devices = on.setdefault(x, [])
        if holder["F", j, x] not in devices:
            devices.append(holder["F", j, x])
            if len(devices) > copies:
                raise OrderError(f"stage {x} is on devices {' and '.join(map(str, devices))}")
        fused = ("BW", j, x) in holder
        found = [kind for kind in ("B", "W") if (kind, j, x) in holder]
        if fused and found:
            raise OrderError(f"{words(('BW', j, x))} is listed beside its {found[0]}")
        if not fused and len(found) < 2:
            raise OrderError(f"{words(('W' if found else 'BW', j, x))} is not listed")
    return {(j, x): holder["F", j, x] for j, x in known}


# --- Reading -------------------------------------------------------------------------


def _read(
    lists: Sequence[Sequence[Entry]], home: Mapping[tuple[int, int], int], blocking: bool
) -> Order:
    copies = _copies(home)
    number = {copy: k for k, copy in enumerate(copies)}
    held = tuple(
        tuple(k for x, k in sorted((x, k) for k, (x, on) in enumerate(copies) if on == d))
        for d in range(len(lists))
    )
    runs = Counter((x, d) for (_, x), d in home.items())
    split = [False] * len(copies)
    for d, entries in enumerate(lists):
        for op in parts(entries):
            if op.kind != "F":
                split[number[op.stage, d]] = op.kind == "W"
    peaks = [
        _alive(entries, [copies[k][0] for k in ks]) for entries, ks in zip(lists, held, strict=True)
    ]
    program, sent = lay_out(lists, home, number, blocking=blocking)
    return Order(
        stage=tuple(x for x, _ in copies),
        device=tuple(d for _, d in copies),
        held=held,
        runs=[runs[copy] for copy in copies],
        split=split,
        alive=[
            max(moment.alive[held[d].index(k)] for moment in peaks[d][0])
            for k, (_, d) in enumerate(copies)
        ],
        alive_forward=[forward for forward, _ in peaks],
        alive_backward=[backward for _, backward in peaks],
        pairs=[
            Counter((e.forward.stage, e.backward.stage) for e in entries if isinstance(e, Pair))
            for entries in lists
        ],
        sent=sent,
        first=[next(iter(parts(entries[:1]))).stage for entries in lists],
        last=[_last(entries[-1]) for entries in lists],
        fused=not any(op.kind == "W" for entries in lists for op in parts(entries)),
        program=program,
    )


def _copies(home: Mapping[tuple[int, int], int]) -> Sequence[tuple[int, int]]:
    """Return the virtual stage and the device of each copy."""
    found: dict[int, list[int]] = {}
    for (_, x), d in sorted(home.items()):
        devices = found.setdefault(x, [])
        if d not in devices:
            devices.append(d)
    most = max(map(len, found.values()))
    return [(x, found[x][n]) for n in range(most) for x in sorted(found) if n < len(found[x])]


def _last(entry: Entry) -> int:
    op = entry.backward if isinstance(entry, Pair) else entry
    return 0 if op.kind == "W" else op.stage


def _alive(
    entries: Sequence[Entry], held: Sequence[int]
) -> tuple[Sequence[Alive], Sequence[Alive]]:
    """Return the fullest moments at forward passes, and those at backward passes.

    A micro-batch is alive from the start of its F to the end of its BW or W.
    """
    alive, whole = [0] * len(held), [0] * len(held)
    place = {x: i for i, x in enumerate(held)}
    forward: set[Alive] = set()
    backward: set[Alive] = set()
    for entry in entries:
        for kind, _, x in ops_of(entry):
            if kind == "F":
                alive[place[x]] += 1
                whole[place[x]] += 1
                forward.add(Alive(tuple(alive), tuple(whole)))
            else:
                backward.add(Alive(tuple(alive), tuple(whole)))
                alive[place[x]] -= kind != "B"
                whole[place[x]] -= kind != "W"
    return _unbeaten(forward), _unbeaten(backward)


def _unbeaten(moments: Iterable[Alive]) -> Sequence[Alive]:
    found: list[Alive] = []
    for moment in sorted(moments, key=lambda row: (-sum(row.alive) - sum(row.whole), row)):
        if not any(_beats(other, moment) for other in found):
            found.append(moment)
    return found


def _beats(other: Alive, moment: Alive) -> bool:
    return all(a >= b for a, b in zip(other.alive, moment.alive, strict=True)) and all(
        a >= b for a, b in zip(other.whole, moment.whole, strict=True)
    )
