"""The op order of a schedule, validated and analysed once.

A schedule only gives each device a list of ops. From the lists follow the virtual stages of each
device, the dependencies, and the micro-batches in flight at each moment. The lists are validated,
because a schedule comes from a plugin.

A virtual stage on several devices, as in bidirectional pipelines, has a *copy* on each of them.
Memory and once-per-step terms are counted by copy. The first copies of all stages are numbered like
the stages; further copies follow.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property, partial
from itertools import chain
from operator import ge, itemgetter
from typing import Any, NamedTuple, cast

from attrs import evolve, field

from parcost.contract.calls import CallError, call
from parcost.contract.pipelines import Op, Pair, PipelineShape, ops_of
from parcost.contract.study import Schedule
from parcost.engine.compiled_order import (
    KINDS,
    CompiledOrder,
    Entry,
    OrderError,
    compile_order,
    turns_of,
    words,
)
from parcost.engine.rounds import Round, find_round
from parcost.engine.schedule_calls import limits, period
from parcost.records import frozen

_CACHED = 2**20  # entries of all cached orders together, some 50 bytes each
_FUSED = frozenset(("F", "BW"))
_SHORT = 1024  # orders with a round
_LISTED = 2**17  # entries of all lists together that are kept to be laid out, some 150 bytes each

_Asked = tuple[int, int, int, int, bool]


class AliveCounts(NamedTuple):
    """Micro-batches in flight on each copy of a device, at the start of a backward op.

    *alive* counts all that have begun and still hold memory, *whole* only those before the end of
    their B. *alive_after* and *whole_after* are the counts at the end of the op.
    """

    alive: tuple[int, ...]
    whole: tuple[int, ...]
    alive_after: tuple[int, ...]
    whole_after: tuple[int, ...]

    def covers(self, other: AliveCounts) -> bool:
        """Return whether no count of *other* is larger."""
        return all(map(ge, chain.from_iterable(self), chain.from_iterable(other)))

    def sums(self, fields: Sequence[int], groups: Sequence[Sequence[int]]) -> tuple[float, ...]:
        """Return the sum over the copies of each of *groups*, for each of *fields*.

        >>> AliveCounts((3, 1, 2), (), (), ()).sums((0,), ((0, 2), (1,)))
        (5.0, 1.0)
        """
        every = [(self[i].__getitem__, group) for i in fields for group in groups]
        return tuple([float(sum(map(at, group))) for at, group in every])


@frozen(kw_only=True, eq=False, slots=False)
class Order:
    """A validated op order.

    *peaks* are the moments, by device, with the most micro-batches in flight. With several copies,
    the maximum of each copy may be at different moments. So all moments are kept that no other
    moment dominates.
    """

    stage: tuple[int, ...]  # the virtual stage of each copy
    device: tuple[int, ...]  # that each copy is on
    held: tuple[tuple[int, ...], ...]  # copies of each device, by stage
    runs: Sequence[int]  # by copy: micro-batches that pass through it
    split: Sequence[bool]  # by copy: its last backward op is W, not BW
    alive: Sequence[int]  # by copy: the most micro-batches alive
    peaks: Sequence[Sequence[AliveCounts]]
    pairs: Sequence[Mapping[tuple[int, int], int]]  # by device: pairs, by stages of F and BW
    first: Sequence[int]  # by device: the stage of its first op
    last: Sequence[int]  # by device: the stage of its last op, 0 where that is a W
    fused: bool  # every backward op is a BW
    size: int  # entries in all
    lists: Callable[[], Sequence[Sequence[Entry]]] = field(repr=False)  # as the schedule has them
    home: Sequence[int] = field(repr=False)  # device, by micro-batch and then by virtual stage
    turns: Sequence[int] = field(repr=False)  # device, by entry: what an entry needs comes first
    blocking: bool = False
    round_: Round | None = None
    short: Order | None = None  # whose round is repeated *repeats* times
    repeats: int = 0
    make_whole: Callable[[], Order] | None = None

    @cached_property
    def program(self) -> CompiledOrder:
        """The order compiled for replay. It is compiled on first use, because a closed form does
        not need it.
        """
        return self.compile() if self.short is None else self.short.program

    @property
    def whole(self) -> Order:
        """The order with all of its ops."""
        return self if self.make_whole is None else self.make_whole()

    @cached_property
    def sent(self) -> Sequence[Mapping[tuple[int, int], int]]:
        """The number of messages of each device by route, for activations and gradients."""
        found: list[Counter[tuple[int, int]]] = [Counter() for _ in self.held]
        virtual = 1 + max(self.stage)
        for x in range(virtual - 1):
            ways = Counter(zip(self.home[x::virtual], self.home[x + 1 :: virtual], strict=True))
            for (a, b), messages in ways.items():
                if self.repeats:  # each stage is on one device
                    messages = self.runs[x]  # noqa: PLW2901
                if a != b:
                    found[a][min(a, b), max(a, b)] += messages
                    found[b][min(a, b), max(a, b)] += messages
        return found

    def peak_sums(
        self, d: int, fields: Sequence[int], groups: Sequence[Sequence[int]]
    ) -> Sequence[tuple[float, ...]]:
        """Return the distinct :meth:`AliveCounts.sums` at the peaks of device *d*."""
        key = (d, fields, groups)
        known = self._peak_sums
        if key not in known:
            sums = (peak.sums(fields, groups) for peak in self.peaks[d])
            known[key] = list(dict.fromkeys(sums))
        return known[key]

    @cached_property
    def _peak_sums(self) -> dict[Any, Sequence[tuple[float, ...]]]:
        return {}

    def compile(self, *, keep: bool = False) -> CompiledOrder:
        """Return the compiled program; with *keep*, every op keeps its own slot."""
        number = {(x, d): k for k, (x, d) in enumerate(zip(self.stage, self.device, strict=True))}
        lists, blocking = self.lists(), self.blocking
        round_ = None if keep else self.round_
        return compile_order(
            lists, self.home, self.turns, number, blocking=blocking, keep=keep, round_=round_
        )


def order_of(
    schedule: Schedule, stages: int, micro_batches: int, chunks: int, *, blocking: bool = False
) -> Order:
    """Return the order of *schedule*, from a cache by identity of the schedule.

    Raises:
        OrderError: The schedule raises, or its result is not a valid order.
    """
    key = (id(schedule), stages, micro_batches, chunks, blocking)
    if key in _cache:
        _cache.move_to_end(key)
        return _cache[key][1]
    lists, home = validate_order(schedule, stages, micro_batches, chunks)
    with _error_context(schedule, stages, micro_batches, chunks):
        turns = turns_of(lists, stages * chunks, len(home))
    again = partial(_order_lists, key, schedule)
    order = _read(lists, home, turns, stages * chunks, again, blocking=blocking)
    _cache[key] = (schedule, order)  # the schedule is kept, so that its id stays its own
    while len(_cache) > 1 and sum(o.size for _, o in _cache.values()) > _CACHED:
        _cache.popitem(last=False)
    _lists[key] = order, lists
    while sum(kept.size for kept, _ in _lists.values()) > _LISTED:
        _lists.popitem(last=False)
    return order


def short_order(
    schedule: Schedule, stages: int, micro_batches: int, chunks: int, *, blocking: bool = False
) -> Order:
    """Return the order of *schedule*; if it is periodic, it is extrapolated from few micro-batches.

    Raises:
        OrderError: The schedule raises, or its result is not a valid order.
    """
    whole = partial(order_of, schedule, stages, micro_batches, chunks, blocking=blocking)
    every = period(schedule, stages, chunks)
    if every is None or blocking or schedule.copies > 1:
        return whole()
    few = 2 * (stages + every) + (micro_batches - 2 * stages) % every
    while 2 * few <= micro_batches:
        short = _order_with_round(schedule, stages, few, chunks, every)
        if short is not None:
            assert short.round_ is not None
            repeats = (micro_batches - few) // every
            return evolve(
                short,
                short=short,
                repeats=repeats,
                make_whole=whole,
                runs=[micro_batches] * len(short.runs),
                size=short.size + repeats * sum(short.round_.sizes),
            )
        few += max(few // every, 1) * every
    return whole()


def _order_with_round(
    schedule: Schedule, stages: int, micro_batches: int, chunks: int, every: int
) -> Order | None:
    """Return an order and its repeating part of *every* micro-batches; None if it is not periodic.

    Orders are cached by the identity of the schedule.
    """
    key = (id(schedule), stages, micro_batches, chunks)
    if key not in _rounds:
        while len(_rounds) >= _SHORT:
            _rounds.pop(next(iter(_rounds)))
        found = None
        shape = PipelineShape(stages=stages, micro_batches=micro_batches, chunks=chunks)
        if not limits(schedule, shape):
            order = order_of(schedule, stages, micro_batches, chunks)
            round_ = find_round(order.lists(), order.home, order.turns, every, stages * chunks)
            found = None if round_ is None else evolve(order, round_=round_)
        _rounds[key] = schedule, found
    return _rounds[key][1]


_rounds: dict[tuple[int, int, int, int], tuple[Schedule, Order | None]] = {}
_cache: OrderedDict[_Asked, tuple[Schedule, Order]] = OrderedDict()
_lists: OrderedDict[_Asked, tuple[Order, Sequence[Sequence[Entry]]]] = OrderedDict()


def _order_lists(key: _Asked, schedule: Schedule) -> Sequence[Sequence[Entry]]:
    """Return the op lists of an order; the first call returns the lists that were validated."""
    kept = _lists.pop(key, None)
    if kept is not None:
        return kept[1]
    _, stages, micro_batches, chunks, _ = key
    return call_order(schedule, stages, micro_batches, chunks)


def call_order(
    schedule: Schedule, stages: int, micro_batches: int, chunks: int
) -> Sequence[Sequence[Entry]]:
    """Return the op lists of *schedule*, of ops and pairs.

    Raises:
        OrderError: The schedule raises, or returns invalid lists.
    """

    def lists() -> list[Sequence[Entry]]:
        return [
            entries if _is_plain_order(entries) else [_entry(entry) for entry in entries]
            for entries in map(list, schedule.order(stages, micro_batches, chunks))
        ]

    try:
        return call(lists)
    except CallError as error:
        raise OrderError(f"`order` {error}") from error


def validate_order(
    schedule: Schedule, stages: int, micro_batches: int, chunks: int
) -> tuple[Sequence[Sequence[Entry]], Sequence[int]]:
    """Return the op lists of *schedule*, and the device of every (micro-batch, virtual stage).

    Raises:
        OrderError: The schedule raises, or its result is not a valid order.
    """
    with _error_context(schedule, stages, micro_batches, chunks):
        lists = call_order(schedule, stages, micro_batches, chunks)
        return lists, _check(schedule, lists, stages, micro_batches, chunks)


@contextmanager
def _error_context(
    schedule: Schedule, stages: int, micro_batches: int, chunks: int
) -> Iterator[None]:
    """Add the schedule and its sizes to errors of an order."""
    try:
        yield
    except (OrderError, TypeError) as error:  # TypeError: an op of things that are not numbers
        where = f"p = {stages}, m = {micro_batches}, v = {chunks}"
        raise OrderError(f"schedule `{schedule.name}` at {where}: {error}") from error


def _is_plain_order(entries: Sequence[Any]) -> bool:
    """Return whether all entries are of the exact types Op, or Pair of Op."""
    types = set(map(type, entries))
    if not types <= {Op, Pair}:
        return False
    pairs = (entry for entry in entries if type(entry) is Pair) if Pair in types else ()
    return set(map(type, chain.from_iterable(pairs))) <= {Op}


def _entry(entry: Op | Pair) -> Entry:
    if not isinstance(entry, Pair):
        return Op(*entry)
    if {type(entry.forward), type(entry.backward)} == {Op}:
        return entry
    return Pair(Op(*entry.forward), Op(*entry.backward))


def has_pairs(entries: Sequence[Entry]) -> bool:
    """Return whether some of *entries* are pairs."""
    return Pair in set(map(type, entries))


def parts(entries: Sequence[Entry]) -> Sequence[Op]:
    """Return the ops of *entries*; in a pair BW is first, because the F of its micro-batch ran
    earlier.
    """
    if not has_pairs(entries):
        return cast("Sequence[Op]", entries)
    return [op for entry in entries for op in reversed(ops_of(entry))]


# --- Checking ------------------------------------------------------------------------


def _check(
    schedule: Schedule,
    lists: Sequence[Sequence[Entry]],
    stages: int,
    micro_batches: int,
    chunks: int,
) -> Sequence[int]:
    """Check that each stage runs all its passes once, on one device, F before B before W.

    Return the device of every (micro-batch, virtual stage), micro-batch by micro-batch.
    """
    if len(lists) != stages:
        raise OrderError(
            f"{len(lists)} devices have a list of passes, but there are {stages} devices"
        )
    virtual = stages * chunks
    home = _home_of_fused_backward(lists, micro_batches, virtual) or _home(
        lists, micro_batches, virtual
    )
    copies = schedule.copies
    for x in range(virtual):
        devices = list(dict.fromkeys(home[x::virtual]))
        if len(devices) > copies:
            raise OrderError(f"stage {x} is on devices {' and '.join(map(str, devices))}")
    return home


def _home_of_fused_backward(
    lists: Sequence[Sequence[Entry]], micro_batches: int, virtual: int
) -> list[int] | None:
    """Return the result of :func:`_home` for a valid order of F and BW only, else None.

    It takes a fifth of the time of :func:`_home`, which reports errors.
    """
    size = micro_batches * virtual
    home, passed = [-1] * size, bytearray(size)
    for device, entries in enumerate(lists):
        if set(map(type, entries)) != {Op}:
            return None
        ops = cast("Sequence[Op]", entries)
        kinds, numbers, stages = zip(*ops, strict=True)
        if {*map(type, kinds)} != {str} or not _FUSED.issuperset(kinds):
            return None
        if {*map(type, numbers), *map(type, stages)} != {int}:
            return None
        if min(numbers) < 0 or max(numbers) >= micro_batches:
            return None
        if min(stages) < 0 or max(stages) >= virtual:
            return None
        for kind, j, x in ops:
            at = j * virtual + x
            if kind == "F":
                if home[at] >= 0:
                    return None
                home[at] = device
            elif home[at] != device or passed[at]:
                return None
            else:
                passed[at] = 1
    return home if all(passed) else None


def _home(lists: Sequence[Sequence[Entry]], micro_batches: int, virtual: int) -> list[int]:
    """Return the device of every (micro-batch, virtual stage), micro-batch by micro-batch.

    Raises:
        OrderError: An op is missing, listed twice, or before one that it depends on.
    """
    home = [-1] * (micro_batches * virtual)
    passed = [""] * len(home)  # the backward passes of each, in order
    for device, entries in enumerate(lists):
        if not entries:
            raise OrderError(f"device {device} has no passes")
        for entry in entries:
            ops = ops_of(entry)
            if len(ops) > 1 and (ops[0].kind, ops[1].kind) != ("F", "BW"):
                found = " and ".join(op.kind for op in ops)
                raise OrderError(f"a pair must combine one F and one BW, not {found}")
            for op in reversed(ops):
                kind, j, x = op
                if kind not in KINDS:
                    raise OrderError(f"`{kind}` is not a kind of pass; use F, B, W or BW")
                if not (0 <= j < micro_batches and 0 <= x < virtual):
                    raise OrderError(f"device {device} lists {words(op)}, which does not exist")
                at = j * virtual + x
                if kind == "F":
                    if home[at] >= 0:
                        raise OrderError(f"{words(op)} is listed twice")
                    home[at] = device
                    continue
                before = passed[at]
                if home[at] != device or (kind == "W" and before == ""):
                    first = "B" if kind == "W" else "F"
                    message = f"device {device} lists {words(op)} without its {first} before it"
                    raise OrderError(message)
                if kind in before.split():
                    raise OrderError(f"{words(op)} is listed twice")
                if "BW" in (kind, before) and before:
                    fused, beside = ("BW", kind) if before == "BW" else (kind, "B")
                    raise OrderError(f"{words((fused, j, x))} and {beside} are both listed")
                passed[at] = f"{before} {kind}" if before else kind
    for at, found in enumerate(passed):
        if found not in {"BW", "B W"}:
            missing = "F" if home[at] < 0 else "W" if found else "BW"
            raise OrderError(f"{words((missing, *divmod(at, virtual)))} is missing from the order")
    return home


# --- Reading -------------------------------------------------------------------------


def _read(
    lists: Sequence[Sequence[Entry]],
    home: Sequence[int],
    turns: Sequence[int],
    virtual: int,
    again: Callable[[], Sequence[Sequence[Entry]]],
    *,
    blocking: bool,
) -> Order:
    copies = copies_of(home, virtual)
    number = {copy: k for k, copy in enumerate(copies)}
    held = tuple(
        tuple(k for x, k in sorted((x, k) for k, (x, on) in enumerate(copies) if on == d))
        for d in range(len(lists))
    )
    split = [False] * len(copies)
    peaks, fused = [], True
    for d, entries in enumerate(lists):
        moments, last, whole = _alive(entries, [copies[k][0] for k in held[d]])
        peaks.append(moments)
        for x, kind in last.items():
            split[number[x, d]] = kind == "W"
        fused = fused and whole
    most = [
        dict(zip(own, map(max, zip(*(moment.alive for moment in some), strict=True)), strict=True))
        for own, some in zip(held, peaks, strict=True)
    ]
    return Order(
        stage=tuple(x for x, _ in copies),
        device=tuple(d for _, d in copies),
        held=held,
        runs=[home[x::virtual].count(d) for x, d in copies],
        split=split,
        alive=[most[d][k] for k, (_, d) in enumerate(copies)],
        peaks=peaks,
        pairs=[pairs_of(entries) for entries in lists],
        first=[parts(entries[:1])[0].stage for entries in lists],
        last=[_last(entries[-1]) for entries in lists],
        fused=fused,
        size=sum(map(len, lists)),
        lists=again,
        home=home,
        turns=turns,
        blocking=blocking,
    )


def copies_of(home: Sequence[int], virtual: int) -> Sequence[tuple[int, int]]:
    """Return the virtual stage and the device of each copy."""
    found = [list(dict.fromkeys(home[x::virtual])) for x in range(virtual)]
    most = max(map(len, found))
    return [(x, on[n]) for n in range(most) for x, on in enumerate(found) if n < len(on)]


def pairs_of(entries: Sequence[Entry]) -> Mapping[tuple[int, int], int]:
    """Return the number of pairs by the virtual stages of their F and their BW."""
    if not has_pairs(entries):
        return {}
    return Counter((e.forward.stage, e.backward.stage) for e in entries if isinstance(e, Pair))


def _last(entry: Entry) -> int:
    op = entry.backward if isinstance(entry, Pair) else entry
    return 0 if op.kind == "W" else op.stage


def _alive(
    entries: Sequence[Entry], held: Sequence[int]
) -> tuple[Sequence[AliveCounts], Mapping[int, str], bool]:
    """Return the peak moments, the last op of each stage, and whether W is fused with B.

    Peak moments are those with the most micro-batches in flight. W is fused if no W is an op of its
    own.

    A micro-batch is in flight from the start of its F to the end of its BW or W. The peak is at the
    last of consecutive forward passes, and at the first of consecutive backward passes.
    """
    ops: Iterable[Op] = chain.from_iterable(map(ops_of, entries))
    if all(map(_FUSED.__contains__, map(itemgetter(0), entries))):  # no pair begins with one
        ops = cast("Sequence[Op]", entries)
    alive, whole = [0] * len(held), [0] * len(held)
    place = {x: i for i, x in enumerate(held)}
    found: set[AliveCounts] = set()
    last: dict[int, str] = {}
    rising = fused = True
    for kind, _, x in ops:
        i = place[x]
        if kind == "F":
            alive[i] += 1
            whole[i] += 1
            rising = True
            continue
        if rising:
            before = tuple(alive), tuple(whole)
        last[x] = kind
        if kind != "B":
            alive[i] -= 1
        if kind != "W":
            whole[i] -= 1
        else:
            fused = False
        if rising:
            found.add(AliveCounts(*before, tuple(alive), tuple(whole)))
            rising = False
    return _maximal_moments(found), last, fused


def _maximal_moments(moments: Iterable[AliveCounts]) -> Sequence[AliveCounts]:
    """Return the moments that are not dominated by another moment (:meth:`AliveCounts.covers`)."""
    found: dict[tuple[int, ...], AliveCounts] = {}  # by their counts in one row: half the time
    for moment in sorted(moments, key=lambda row: (-sum(map(sum, row)), row)):
        row = tuple(chain.from_iterable(moment))
        if not any(all(map(ge, other, row)) for other in found):
            found[row] = moment
    return list(found.values())
