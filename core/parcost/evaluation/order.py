"""What a schedule's op order says, checked and read off once.

A schedule gives each device a list of ops and nothing else. Which device holds which
virtual stage, what waits for what, and how many micro-batches are alive when, all
follow from the lists. They are checked here: a schedule comes from a plugin, and a
bad order must name its mistake instead of giving a time.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence

from attrs import frozen

from parcost.evaluation.program import KINDS, Key, OrderError, Program, lay_out, words
from parcost.terms import Op, Schedule

#: The longest order that is worked out, in micro-batches times virtual stages.
LONGEST = 2**17
_CACHED = 2**20  # steps of all cached orders together, some 40 bytes each

#: Micro-batches alive on each virtual stage of a device at one moment.
Alive = tuple[int, ...]


@frozen(kw_only=True, eq=False)
class Order:
    """A checked op order.

    *alive_forward* and *alive_backward* are the moments, by device, with the most
    micro-batches alive: with several virtual stages no moment need have the most of
    each, so all are kept that no other beats on every stage.
    """

    device: Sequence[int]  # that holds each virtual stage
    held: tuple[tuple[int, ...], ...]  # virtual stages of each device, ascending
    split: Sequence[bool]  # by virtual stage: its last backward op is W, not BW
    alive: Sequence[int]  # by virtual stage: the most micro-batches alive
    alive_forward: Sequence[Sequence[Alive]]
    alive_backward: Sequence[Sequence[Alive]]
    program: Program


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
        order = _read(lists, stages * chunks)
    except (OrderError, TypeError) as error:  # TypeError: an op of things that are no numbers
        where = f"p = {stages}, m = {micro_batches}, v = {chunks}"
        raise OrderError(f"schedule `{schedule.name}` at {where}: {error}") from error
    _cache[key] = (schedule, order)  # the schedule is kept, so that its id stays its own
    while len(_cache) > 1 and sum(len(o.program.into) for _, o in _cache.values()) > _CACHED:
        _cache.popitem(last=False)
    return order


_cache: OrderedDict[tuple[int, int, int, int], tuple[Schedule, Order]] = OrderedDict()


# --- Checking ------------------------------------------------------------------------


def _ask(
    schedule: Schedule, stages: int, micro_batches: int, chunks: int
) -> Sequence[Sequence[Op]]:
    try:
        lists = schedule.order(stages, micro_batches, chunks)
        return [[op if type(op) is Op else Op(*op) for op in ops] for ops in lists]
    except Exception as error:
        raise OrderError(f"`order` raised {type(error).__name__}: {error}") from error


def _check(lists: Sequence[Sequence[Op]], stages: int, micro_batches: int, virtual: int) -> None:
    """Check that every stage does everything, once, on one device, F before B before W."""
    if len(lists) != stages:
        raise OrderError(f"{len(lists)} devices have a list and there are {stages}")
    known = {(j, x) for j in range(micro_batches) for x in range(virtual)}
    holder: dict[Key, int] = {}
    for device, ops in enumerate(lists):
        if not ops:
            raise OrderError(f"device {device} has nothing to do")
        for op in ops:
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
    for j, x in sorted(known):
        if ("F", j, x) not in holder:
            raise OrderError(f"{words(('F', j, x))} is not listed")
        on, first = holder["F", j, x], holder["F", 0, x]
        if on != first:
            raise OrderError(f"stage {x} is on devices {first} and {on}")
        fused = ("BW", j, x) in holder
        parts = [kind for kind in ("B", "W") if (kind, j, x) in holder]
        if fused and parts:
            raise OrderError(f"{words(('BW', j, x))} is listed beside its {parts[0]}")
        if not fused and len(parts) < 2:
            raise OrderError(f"{words(('W' if parts else 'BW', j, x))} is not listed")


# --- Reading -------------------------------------------------------------------------


def _read(lists: Sequence[Sequence[Op]], virtual: int) -> Order:
    device, split = [0] * virtual, [False] * virtual
    for d, ops in enumerate(lists):
        for kind, _, x in ops:
            device[x], split[x] = d, kind == "W"  # the last op of a stage is W or BW
    held = tuple(tuple(x for x in range(virtual) if device[x] == d) for d in range(len(lists)))
    peaks = [_alive(ops, stages) for ops, stages in zip(lists, held, strict=True)]
    return Order(
        device=device,
        held=held,
        split=split,
        alive=[max(row[held[d].index(x)] for row in peaks[d][0]) for x, d in enumerate(device)],
        alive_forward=[forward for forward, _ in peaks],
        alive_backward=[backward for _, backward in peaks],
        program=lay_out(lists, device),
    )


def _alive(ops: Sequence[Op], held: Sequence[int]) -> tuple[Sequence[Alive], Sequence[Alive]]:
    """Return the fullest moments at forward passes, and those at backward passes.

    A micro-batch is alive from the start of its F to the end of its BW or W.
    """
    alive = [0] * len(held)
    place = {x: i for i, x in enumerate(held)}
    forward: set[Alive] = set()
    backward: set[Alive] = set()
    for kind, _, x in ops:
        if kind == "F":
            alive[place[x]] += 1
            forward.add(tuple(alive))
        else:
            backward.add(tuple(alive))
            alive[place[x]] -= kind != "B"
    return _unbeaten(forward), _unbeaten(backward)


def _unbeaten(moments: Iterable[Alive]) -> Sequence[Alive]:
    found: list[Alive] = []
    for moment in sorted(moments, key=lambda row: (-sum(row), row)):
        if not any(all(a >= b for a, b in zip(f, moment, strict=True)) for f in found):
            found.append(moment)
    return found
