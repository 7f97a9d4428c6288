"""Overlap of communication with compute, for one micro-batch on a virtual stage.

Serial work runs in sequence. Work with a *window* may overlap with its hosts, the serial work that
names the window, on another resource:

- hidden time on a resource is at most the share of the hosts' seconds on other resources; work on
  one resource runs in sequence, and the longest exposed time of a resource counts;
- work with more slowdown of its hosts is hidden first, then the order is by name. So additional
  work never shortens a pass;
- the slowdown can hide work on another resource than the one that slows its hosts;
- work may use further resources for a share of its seconds; it is then limited by them, too;
- a share of the work may run alone, without hosts;
- the empty window is all serial work of the forward pass, or of the backward pass. The backward
  pass includes R, B and W, but not W if the schedule separates it. It is evaluated last: exposed
  time of other windows can hide it as well, except time in which its own resource is busy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from parcost.contract.terms import Work
from parcost.engine.load import Load
from parcost.numeric import Mask, Real, all_of, any_of, is_array, maximum, minimum, where


def seconds_by_resource(
    works: Sequence[Work], seconds: Sequence[Real], members: Iterable[int]
) -> dict[str, Real]:
    """Return the seconds in which the works with indices *members* keep each resource busy."""
    found: dict[str, Real] = {}
    for i in members:
        resource = works[i].resource
        found[resource] = found[resource] + seconds[i] if resource in found else seconds[i]
    return found


def shared_seconds(
    shares: Sequence[Iterable[tuple[str, Real]]], seconds: Sequence[Real], members: Iterable[int]
) -> dict[str, Real]:
    """Return the seconds in which *members* keep further resources busy, by resource."""
    found: dict[str, Real] = {}
    for i in members:
        for other, share in shares[i]:
            found[other] = found.get(other, 0.0) + share * seconds[i]
    return found


def hide(
    load: Load, overlapping: Sequence[int], under: Mapping[str, Real], less: Mapping[str, Real]
) -> None:
    """Compute the covered and the exposed seconds of the works *overlapping* in one window."""
    outs: dict[str, Real] = {}  # the uncovered seconds so far, by resource
    longest: Real = 0.0
    covered, beyond = _covered_seconds(load, overlapping, under, less)
    for i in overlapping:
        work, time, cover = load.works[i], load.took[i] - load.alone[i], covered[i]
        before, out = outs.get(work.resource, 0.0), time - cover
        exposed = maximum(out - (longest - before), 0.0)
        outs[work.resource] = before + out
        for other, over in beyond.get(i, {}).items():
            before = outs.get(other, 0.0)
            exposed = maximum(exposed, over - (longest - before))
            outs[other] = before + over
        longest = longest + exposed
        load.exposed[i], load.hidden[i] = load.alone[i] + exposed, time - exposed
        load.covered[i] = cover
        longer = exposed + work.slowdown * cover
        load.seconds[work.pass_] = load.seconds[work.pass_] + longer


def _covered_seconds(
    load: Load, overlapping: Sequence[int], under: Mapping[str, Real], less: Mapping[str, Real]
) -> tuple[Mapping[int, Real], Mapping[int, Mapping[str, Real]]]:
    """Return the seconds of each overlapping work that its hosts cover.

    *under* are the hosts' seconds by resource. *less* are the hosts' seconds in which other hosts
    and windows keep the resource busy. The second result has, for each work, the seconds on its
    further resources that no host covers.
    """
    works = load.works
    took = {i: load.took[i] - load.alone[i] for i in overlapping}  # beside what hides under them
    covered: dict[int, Real] = {}
    slows = _slows_hosts(load, overlapping)
    longer: Real = 0.0  # by which those slow their hosts, for the others to hide under

    known: dict[str, Real] = {}

    def idle_seconds(resource: str) -> Real:
        if resource not in known:
            cover: Real = 0.0
            for other, time in under.items():
                if other != resource:
                    cover = cover + time
            known[resource] = maximum(cover - less[resource], 0.0) if resource in less else cover
        return known[resource]

    def covers(resource: str, cover: Real) -> Iterator[tuple[int, Real]]:
        own = [i for i in overlapping if works[i].resource == resource]
        slowdowns = [works[i].slowdown for i in own]
        if is_array(*slowdowns) and any(s is not slowdowns[0] for s in slowdowns):
            found = _fill_by_slowdown(
                [took[i] for i in own], [works[i].share * cover for i in own], slowdowns
            )
        else:
            if not is_array(*slowdowns):
                own.sort(key=lambda i: -works[i].slowdown)
            found = _fill([took[i] for i in own], [works[i].share * cover for i in own])
        return zip(own, found, strict=True)

    for resource, slow in slows.items():
        if any_of(slow):
            for i, part in covers(resource, idle_seconds(resource)):
                covered[i] = part
                longer = longer + works[i].slowdown * part
    for resource, slow in slows.items():
        if not all_of(slow):
            for i, part in covers(resource, idle_seconds(resource) + longer):
                covered[i] = where(slow, covered.get(i, 0.0), part)
    crowded = any(works[i].also for i in overlapping)
    return covered, _limit_by_shared_resources(
        load, overlapping, took, covered, idle_seconds
    ) if crowded else {}


def _slows_hosts(load: Load, overlapping: Sequence[int]) -> dict[str, Mask]:
    """Return, by resource, the mask where its transfers slow down the work that they
    overlap with.
    """
    slows: dict[str, Mask] = {}
    for i in overlapping:
        work = load.works[i]
        slows[work.resource] = slows.get(work.resource, False) | (work.slowdown > 0)
    return slows


def _limit_by_shared_resources(
    load: Load,
    overlapping: Sequence[int],
    took: Mapping[int, Real],
    covered: dict[int, Real],
    idle_seconds: Callable[[str], Real],
) -> Mapping[int, Mapping[str, Real]]:
    """Reduce *covered* for works whose further resources have no idle time left.

    Time on such a resource beyond its *idle_seconds* is exposed, even if the work's own resource is
    idle. Works with that resource as their own come first. *took* are the seconds of each work. The
    result has the seconds of each work on its further resources that no host covers.
    """
    works = load.works
    used: dict[str, Real] = {}
    beyond: dict[int, Mapping[str, Real]] = {}
    for i in overlapping:
        used[works[i].resource] = used.get(works[i].resource, 0.0) + covered[i]
    for i in overlapping:
        over: dict[str, Real] = {}
        needs = [(other, part, part * took[i]) for other, part in load.shares[i]]
        for other, _, time in needs:
            idle = maximum(works[i].share * idle_seconds(other) - used.get(other, 0.0), 0.0)
            over[other] = maximum(time - idle, 0.0)
            covered[i] = minimum(covered[i], took[i] - over[other])
        for other, part, time in needs:
            over[other] = maximum(over[other], part * (took[i] - covered[i]))
            used[other] = used.get(other, 0.0) + (time - over[other])
        beyond[i] = over
    return beyond


def _fill(seconds: Sequence[Real], limits: Sequence[Real]) -> Sequence[Real]:
    """Return the part of each of *seconds* that fits into its limit; earlier entries are served
    first.
    """
    used: Real = 0.0
    found: list[Real] = []
    for time, limit in zip(seconds, limits, strict=True):
        fits = minimum(time, maximum(limit - used, 0.0))
        used = used + fits
        found.append(fits)
    return found


def _fill_by_slowdown(
    seconds: Sequence[Real], limits: Sequence[Real], slowdowns: Sequence[Real]
) -> Sequence[Real]:
    """Fit seconds into limits in descending order of slowdown, which may differ between
    candidates.
    """
    import numpy as np

    n = len(seconds)
    columns = np.stack(np.broadcast_arrays(*seconds, *limits, *slowdowns))
    order = np.argsort(-columns[2 * n :], axis=0, kind="stable")
    found = _fill(
        np.take_along_axis(columns[:n], order, axis=0),  # type: ignore[arg-type]
        np.take_along_axis(columns[n : 2 * n], order, axis=0),  # type: ignore[arg-type]
    )
    filled = np.empty(order.shape)
    np.put_along_axis(filled, order, np.stack(found), axis=0)
    return list(filled)
