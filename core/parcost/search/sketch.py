"""Sketches of orders: the devices of stages, and a lower bound of the micro-batches in flight.

An order is analysed once for each schedule and structure, up to its steady state. The sketch is
valid for any number of micro-batches. The micro-batches in flight are counted at one moment on each
device, the moment with the largest total. They are at most the number of micro-batches, and never
exceed those of the full order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from attrs import evolve, frozen

from parcost.contract.pipelines import Op, PipelineShape
from parcost.contract.study import Schedule
from parcost.engine.orders import AliveCounts, copies_of, pairs_of, parts, validate_order
from parcost.engine.schedule_calls import limits

_SETTLED = 2  # times the stages: micro-batches until a schedule repeats itself
_CACHED = 4096  # sketches
_TRIED = 4  # times the stages: how much further a legal number of micro-batches is looked for


@frozen(kw_only=True, eq=False)
class Sketch:
    """A reduced :class:`Order` without a program, which keeps one peak moment for each device.

    *micro_batches* is the number for which it was computed. On *growing* copies all micro-batches
    are in flight at the same time, so each further micro-batch increases their number.
    """

    micro_batches: int
    growing: frozenset[int]
    stage: tuple[int, ...]
    device: tuple[int, ...]
    held: tuple[tuple[int, ...], ...]
    runs: Sequence[int]
    split: Sequence[bool]
    peaks: Sequence[Sequence[AliveCounts]]
    pairs: Sequence[Mapping[tuple[int, int], int]]
    first: Sequence[int]
    last: Sequence[int]
    final: Sequence[int]  # by device: the copy of the stage of its last op
    fused: bool


def sketch_size(schedule: Schedule, stages: int, chunks: int, most: int) -> int:
    """Return the number of micro-batches to sketch an order for; *most* is the largest in use."""
    first = min(_SETTLED * stages + 2, most)
    return _legal(schedule, stages, chunks, first) or most


def _legal(schedule: Schedule, stages: int, chunks: int, first: int) -> int:
    """Return the smallest valid number of micro-batches that is at least *first*; 0 if none is
    close.
    """
    for m in range(first, first + _TRIED * stages + 1):
        if not limits(schedule, PipelineShape(stages=stages, micro_batches=m, chunks=chunks)):
            return m
    return 0


def sketch(schedule: Schedule, stages: int, micro_batches: int, chunks: int) -> Sketch:
    """Return the sketch of the order of *schedule*, from a cache by identity of the schedule.

    Raises:
        OrderError: The schedule raises, or its result is not an order.
    """
    key = (id(schedule), stages, micro_batches, chunks)
    if key not in _cache:
        while len(_cache) >= _CACHED:
            _cache.pop(next(iter(_cache)))
        found = _sketch(schedule, stages, micro_batches, chunks)
        if found.growing:  # or so many are alive at most, and not for ever
            more = _legal(schedule, stages, chunks, 2 * micro_batches)
            other = _sketch(schedule, stages, more, chunks).growing if more else frozenset()
            found = evolve(found, growing=found.growing & other)
        _cache[key] = (schedule, found)
    return _cache[key][1]


_cache: dict[tuple[int, int, int, int], tuple[Schedule, Sketch]] = {}


def _sketch(schedule: Schedule, stages: int, micro_batches: int, chunks: int) -> Sketch:
    lists, home = validate_order(schedule, stages, micro_batches, chunks)
    ops = [parts(entries) for entries in lists]
    virtual = stages * chunks
    copies = copies_of(home, virtual)
    places = {copy: k for k, copy in enumerate(copies)}
    held = tuple(
        tuple(places[x, on] for x, on in sorted(copies) if on == d) for d in range(len(lists))
    )
    split = [False] * len(copies)
    peaks = []
    for d, own in enumerate(ops):
        last = {x: kind for kind, _, x in own if kind != "F"}
        for x, kind in last.items():
            split[places[x, d]] = kind == "W"
        peaks.append([_peak_moment(own, [copies[k][0] for k in held[d]])])
    numbers = [home[x::virtual].count(d) for x, d in copies]
    growing = {
        k
        for d, (row,) in enumerate(peaks)
        for n, k in zip(row.alive, held[d], strict=True)
        if n == numbers[k] > _SETTLED * stages
    }
    return Sketch(
        micro_batches=micro_batches,
        growing=frozenset(growing),
        stage=tuple(x for x, _ in copies),
        device=tuple(d for _, d in copies),
        held=held,
        runs=numbers,
        split=split,
        peaks=peaks,
        pairs=[pairs_of(entries) for entries in lists],
        first=[own[0].stage for own in ops],
        last=[0 if own[-1].kind == "W" else own[-1].stage for own in ops],
        final=[places[own[-1].stage, d] for d, own in enumerate(ops)],
        fused=not any(kind == "W" for own in ops for kind, _, _ in own),
    )


def _peak_moment(ops: Sequence[Op], held: Sequence[int]) -> AliveCounts:
    """Return the moment with the most micro-batches in flight in total."""
    place = {x: i for i, x in enumerate(held)}
    alive, whole = [0] * len(held), [0] * len(held)
    best = sum_ = 0
    found = AliveCounts(*[tuple(alive)] * 4)
    for kind, _, x in ops:
        i = place[x]
        if kind == "F":
            alive[i] += 1
            whole[i] += 1
            sum_ += 2
            continue
        before = (tuple(alive), tuple(whole)) if sum_ > best else None
        alive[i] -= kind != "B"
        whole[i] -= kind != "W"
        if before is not None:
            best, found = sum_, AliveCounts(*before, tuple(alive), tuple(whole))
        sum_ -= (kind != "B") + (kind != "W")
    return found
