"""The cost of a micro-batch on a virtual stage: serial work, and exposed overlapping work.

The rules of overlap are in :mod:`parcost.engine.overlap`.

Stages with equal counts have the same cost and are added up once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from parcost.contract.terms import Memory, Once, Pass, Work
from parcost.engine.load import Load
from parcost.engine.maxima import total
from parcost.engine.overlap import hide, seconds_by_resource, shared_seconds
from parcost.numeric import Mask, Real, any_of, maximum, ratio, where

PASSES: tuple[Pass, ...] = ("F", "R", "B", "W")  # in the order in which they run
_WHOLE: Mapping[Pass, Pass] = {"F": "F", "R": "B", "B": "B", "W": "B"}
_APART: Mapping[Pass, Pass] = {**_WHOLE, "W": "W"}  # where W is an op of its own


def count(term: Work | Once | Memory, stage: int) -> float:
    """Return the number of occurrences of *term* on virtual stage *stage*."""
    times = term.count
    return times if isinstance(times, (float, int)) else times[stage]


def occurs_anywhere(times: Real) -> bool:
    """Return whether a number of occurrences is not zero; an array of them is not zero everywhere.

    >>> occurs_anywhere(0.0), occurs_anywhere(2.0)
    (False, True)
    """
    return times != 0 if isinstance(times, (float, int)) else True


def times_of(seconds: Real, times: Real) -> Real:
    """Return the seconds of so many occurrences; infinity, no times, is nothing."""
    if isinstance(times, (float, int)):
        return seconds * times if times and times != 1 else seconds if times else 0.0
    return where(times > 0, seconds * times, 0.0)


def shared_resources(term: Work | Once) -> Iterable[tuple[str, Real]]:
    """Return the other resources that *term* keeps busy, and the share of its seconds.

    They are idle during its latency.
    """
    if not term.also:
        return ()
    moves = maximum(1.0 - ratio(term.latency, term.seconds), 0.0)
    both = zip(term.also, term.also_busy, strict=True)
    return [(name, share * moves) for name, share in both if name != term.resource]


def kinds(terms: Iterable[Work | Once | Memory], stages: int) -> Sequence[int]:
    """Return, for each virtual stage, the first stage with equal counts of every term.

    >>> kinds([], 3)
    [0, 0, 0]
    """
    # Many terms share their counts, which need not be compared again and again.
    columns = {id(t.count): t.count for t in terms if not isinstance(t.count, (float, int))}
    if not columns:
        return [0] * stages
    first: dict[tuple[float, ...], int] = {}
    return [first.setdefault(key, x) for x, key in enumerate(zip(*columns.values(), strict=True))]


def load(works: Sequence[Work], stage: int, *, split: bool = False) -> Load:
    """Return the cost of one micro-batch on a virtual stage; *works* are sorted by name.

    *split*: the schedule separates W from B, so that neither hides communication of the other.
    """
    whole_pass = _APART if split else _WHOLE
    counts = [count(work, stage) for work in works]
    occurs = list(map(occurs_anywhere, counts))
    took = [times_of(work.seconds, times) for work, times in zip(works, counts, strict=True)]
    shares = [
        shared_resources(work) if here and work.also else ()
        for work, here in zip(works, occurs, strict=True)
    ]
    zeros: list[Real] = [0.0] * len(works)
    exposed, hidden, covered, alone = list(took), zeros[:], zeros[:], zeros[:]
    seconds: dict[Pass, Real] = dict.fromkeys(PASSES, 0.0)
    guests: dict[tuple[Pass, str], list[int]] = {}
    hosts: dict[tuple[Pass, str], list[int]] = {}
    flops: Real = 0.0
    for i, (work, times, time) in enumerate(zip(works, counts, took, strict=True)):
        if not occurs[i]:
            continue
        flops = flops + work.flops * times
        if work.window is None:
            seconds[work.pass_] = seconds[work.pass_] + time
            if work.host:
                hosts.setdefault((work.pass_, work.host), []).append(i)
        else:
            if any_of(work.alone > 0):
                alone[i] = work.alone * time
                seconds[work.pass_] = seconds[work.pass_] + alone[i]
            key = (work.pass_ if work.window else whole_pass[work.pass_], work.window)
            guests.setdefault(key, []).append(i)
    load = Load(
        works=works,
        counts=counts,
        shares=shares,
        took=took,
        alone=alone,
        exposed=exposed,
        hidden=hidden,
        covered=covered,
        seconds=seconds,
        flops=flops,
    )
    for key in sorted(guests, key=lambda key: not key[1]):
        if key[1]:
            own = hosts.get(key, ())
            under = seconds_by_resource(works, took, own)
            hide(load, guests[key], under, shared_seconds(shares, took, own))
        else:
            _hide_under_pass(load, key[0], guests[key], whole_pass)
    return load


def _hide_under_pass(
    load: Load, pass_: Pass, guests: Sequence[int], whole_pass: Mapping[Pass, Pass]
) -> None:
    """Hide the *guests* of a whole pass under what it exposes outside of windows."""
    exposed, took = list(load.exposed), list(load.took)
    for i in guests:
        exposed[i] = took[i] = load.alone[i]
    whole = [
        i
        for i, work in enumerate(load.works)
        if occurs_anywhere(load.counts[i])
        and whole_pass[work.pass_] == pass_
        and (work.window != "" or any_of(work.alone > 0))
    ]
    under = seconds_by_resource(load.works, exposed, whole)
    under[""] = total(load.works[i].slowdown * load.covered[i] for i in whole)
    less = seconds_by_resource(load.works, load.hidden, whole)
    for other, time in shared_seconds(load.shares, took, whole).items():
        less[other] = less.get(other, 0.0) + time
    hide(load, guests, under, less)


def load_where(split: Mask, works: Sequence[Work], stage: int) -> Load:
    """Return the load of each candidate; *split* is where its schedule separates W from B."""
    if isinstance(split, bool):
        return load(works, stage, split=split)
    apart, fused = load(works, stage, split=True), load(works, stage)

    def choose(a: Sequence[Real], b: Sequence[Real]) -> list[Real]:
        return [where(split, x, y) for x, y in zip(a, b, strict=True)]

    return Load(
        works=works,
        counts=apart.counts,
        shares=apart.shares,
        took=apart.took,
        alone=apart.alone,
        exposed=choose(apart.exposed, fused.exposed),
        hidden=choose(apart.hidden, fused.hidden),
        covered=choose(apart.covered, fused.covered),
        seconds={p: where(split, apart.seconds[p], fused.seconds[p]) for p in PASSES},
        flops=apart.flops,
    )
