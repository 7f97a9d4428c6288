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
    """Return whether a number of occurrences is not zero, or an array has a non-zero element.

    >>> occurs_anywhere(0.0), occurs_anywhere(2.0)
    (False, True)
    """
    return times != 0 if isinstance(times, (float, int)) else True


def times_of(seconds: Real, times: Real) -> Real:
    """Return the seconds of *times* occurrences; 0 for zero occurrences of an infinite time."""
    if isinstance(times, (float, int)):
        return seconds * times if times and times != 1 else seconds if times else 0.0
    return where(times > 0, seconds * times, 0.0)


def shared_resources(term: Work | Once) -> Iterable[tuple[str, Real]]:
    """Return the other busy resources of *term*, each with the share of its seconds.

    They are idle during its latency.
    """
    if not term.also:
        return ()
    moves = maximum(1.0 - ratio(term.latency, term.seconds), 0.0)
    both = zip(term.also, term.also_busy, strict=True)
    return [(name, share * moves) for name, share in both if name != term.resource]


def kinds(terms: Iterable[Work | Once | Memory], stages: int) -> Sequence[int]:
    """Return for each virtual stage the first stage with equal counts of every term.

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

    *split* says that the schedule separates W from B. Then neither hides communication of the
        other.
    """
    whole_pass = _APART if split else _WHOLE
    counts = [count(work, stage) for work in works]
    zeros: list[Real] = [0.0] * len(works)
    took, hidden, covered, alone = zeros[:], zeros[:], zeros[:], zeros[:]
    shares: list[Iterable[tuple[str, Real]]] = [()] * len(works)
    seconds: dict[Pass, Real] = dict.fromkeys(PASSES, 0.0)
    members: dict[Pass, list[int]] = {}  # by whole pass
    overlapping: dict[tuple[Pass, str], list[int]] = {}
    hosts: dict[tuple[Pass, str], list[int]] = {}
    flops: Real = 0.0
    for i, (work, times) in enumerate(zip(works, counts, strict=True)):
        if not occurs_anywhere(times):
            continue
        took[i] = time = times_of(work.seconds, times)
        pass_, window = work.pass_, work.window
        members.setdefault(whole_pass[pass_], []).append(i)
        if work.also:
            shares[i] = shared_resources(work)
        flops = flops + work.flops * times
        if window is None:
            seconds[pass_] = seconds[pass_] + time
            if work.host:
                hosts.setdefault((pass_, work.host), []).append(i)
        else:
            if any_of(work.alone > 0):
                alone[i] = work.alone * time
                seconds[pass_] = seconds[pass_] + alone[i]
            overlapping.setdefault((pass_ if window else whole_pass[pass_], window), []).append(i)
    load = Load(
        works=works,
        counts=counts,
        shares=shares,
        took=took,
        alone=alone,
        exposed=list(took),
        hidden=hidden,
        covered=covered,
        seconds=seconds,
        flops=flops,
    )
    for key in sorted(overlapping, key=lambda key: not key[1]):
        if key[1]:
            own = hosts.get(key, ())
            under = seconds_by_resource(works, took, own)
            hide(load, overlapping[key], under, shared_seconds(shares, took, own))
        else:
            _hide_under_pass(load, overlapping[key], members[key[0]])
    return load


def _hide_under_pass(load: Load, overlapping: Sequence[int], members: Sequence[int]) -> None:
    """Hide the *overlapping* works of a whole pass under the exposed seconds of its *members*."""
    works, exposed, took = load.works, list(load.exposed), list(load.took)
    for i in overlapping:
        exposed[i] = took[i] = load.alone[i]
    whole = [i for i in members if works[i].window != "" or any_of(works[i].alone > 0)]
    windows = [i for i in whole if works[i].window]
    under = seconds_by_resource(works, exposed, whole)
    under[""] = total(works[i].slowdown * load.covered[i] for i in windows)
    less = seconds_by_resource(works, load.hidden, windows)
    for other, time in shared_seconds(load.shares, took, whole).items():
        less[other] = less.get(other, 0.0) + time
    hide(load, overlapping, under, less)


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
