"""What a micro-batch costs on a virtual stage: work added up, and what hides under it.

Serial work follows one upon another. Work with a *window* may run beside its hosts,
the serial work that names the window, on another resource:

- what hides on a resource is at most the share of the hosts' seconds on other
  resources; work on one resource runs one after another, and of different resources
  the one that sticks out longest counts;
- work that slows its hosts more hides first, then the order is by name. So more work
  of any kind never shortens a pass, whatever it displaces;
- an empty window is all serial work of the forward pass, or of the backward pass with
  all its parts. It comes last: what sticks out of other windows is time for it too, and
  what they keep its own resource busy is not.

Stages with equal counts cost the same and are added up once.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import TypeVar

from attrs import frozen

from parcost.numeric import Real, is_array, maximum, minimum
from parcost.terms import Memory, Once, Pass, Work

PASSES: tuple[Pass, ...] = ("F", "R", "B", "W")  # in the order in which they run
_WHOLE: Mapping[Pass, Pass] = {"F": "F", "R": "B", "B": "B", "W": "B"}

K = TypeVar("K", bound=Hashable)


@frozen(kw_only=True, eq=False)
class Load:
    """All work of one micro-batch on one virtual stage.

    *exposed*, *hidden* and *covered* (hidden by the term's own hosts, which it slows
    down) are seconds of each term, in order; *busy* those of each resource in each pass.
    """

    seconds: Mapping[Pass, Real]
    exposed: Sequence[Real]
    hidden: Sequence[Real]
    covered: Sequence[Real]
    busy: Mapping[tuple[Pass, str], Real]
    flops: Real

    @property
    def total(self) -> Real:
        """The seconds of all passes."""
        found = self.seconds
        return found["F"] + (found["R"] + found["B"]) + found["W"]

    def idle(self, passes: Iterable[Pass], resource: str) -> Real:
        """Return the seconds of *passes* in which *resource* has nothing to do."""
        found: Real = 0.0
        for pass_ in passes:
            found = found + self.seconds[pass_] - self.busy.get((pass_, resource), 0.0)
        return maximum(found, 0.0)


def count(term: Work | Once | Memory, stage: int) -> float:
    """Return how often *term* occurs on virtual stage *stage*."""
    return term.count if isinstance(term.count, (float, int)) else term.count[stage]


def kinds(terms: Iterable[Work | Once | Memory], stages: int) -> Sequence[int]:
    """Return, for each virtual stage, the first on which every term counts the same.

    >>> kinds([], 3)
    [0, 0, 0]
    """
    columns = [t.count for t in terms if not isinstance(t.count, (float, int))]
    if not columns:
        return [0] * stages
    first: dict[tuple[float, ...], int] = {}
    return [first.setdefault(key, x) for x, key in enumerate(zip(*columns, strict=True))]


def load(works: Sequence[Work], stage: int) -> Load:
    """Return what *works*, sorted by name, cost one micro-batch on a virtual stage."""
    seconds: dict[Pass, Real] = dict.fromkeys(PASSES, 0.0)
    busy: dict[tuple[Pass, str], Real] = {}
    took: list[Real] = []
    exposed: list[Real] = []
    hidden: list[Real] = [0.0] * len(works)
    covered: list[Real] = [0.0] * len(works)
    guests: dict[tuple[Pass, str], list[int]] = {}
    hosts: dict[tuple[Pass, str], dict[str, Real]] = {}
    taken: dict[tuple[Pass, str], Real] = {}  # under other windows, of each resource
    flops: Real = 0.0
    for i, work in enumerate(works):
        times = count(work, stage)
        time = work.seconds * times if times else 0.0  # infinity never takes place at times
        took.append(time)
        exposed.append(time)
        if not times:
            continue
        pass_, resource = work.pass_, work.resource
        flops = flops + work.flops * times
        busy[pass_, resource] = busy.get((pass_, resource), 0.0) + time
        if work.window is not None:
            window = (pass_, work.window) if work.window else (_WHOLE[pass_], "")
            guests.setdefault(window, []).append(i)
            continue
        seconds[pass_] = seconds[pass_] + time
        _add(hosts.setdefault((_WHOLE[pass_], ""), {}), resource, time)
        if work.host:
            _add(hosts.setdefault((pass_, work.host), {}), resource, time)
    for window, members in sorted(guests.items(), key=lambda item: not item[0][1]):
        less = {} if window[1] else {r: t for (p, r), t in taken.items() if p == window[0]}
        covers = _covered(works, took, members, hosts.get(window, {}), less)
        outs: dict[str, Real] = {}  # what sticks out so far, by resource
        longest: Real = 0.0
        for i, cover in zip(members, covers, strict=True):
            resource = works[i].resource
            before, out = outs.get(resource, 0.0), took[i] - cover
            exposed[i] = maximum(out - (longest - before), 0.0)
            hidden[i] = took[i] - exposed[i]
            covered[i] = cover
            outs[resource], longest = before + out, longest + exposed[i]
            pass_, slower = works[i].pass_, works[i].slowdown * cover
            seconds[pass_] = seconds[pass_] + (exposed[i] + slower)
            if window[1]:
                whole = hosts.setdefault((_WHOLE[pass_], ""), {})
                _add(whole, resource, exposed[i])
                _add(whole, "", slower)  # of hosts on whichever resource
                _add(taken, (_WHOLE[pass_], resource), cover)
    return Load(
        seconds=seconds,
        exposed=exposed,
        hidden=hidden,
        covered=covered,
        busy=busy,
        flops=flops,
    )


def _add(sums: dict[K, Real], key: K, seconds: Real) -> None:
    sums[key] = sums.get(key, 0.0) + seconds


def _covered(
    works: Sequence[Work],
    took: Sequence[Real],
    guests: Sequence[int],
    hosts: Mapping[str, Real],
    less: Mapping[str, Real],
) -> Sequence[Real]:
    """Return how much of each guest of a window the hosts cover.

    *less* is, for each resource, time of the hosts that other windows use on it.
    """
    covered: dict[int, Real] = {}
    for resource in dict.fromkeys(works[i].resource for i in guests):
        cover: Real = 0.0
        for other, time in hosts.items():
            if other != resource:
                cover = cover + time
        if resource in less:
            cover = maximum(cover - less[resource], 0.0)
        own = [i for i in guests if works[i].resource == resource]
        slowdowns = [works[i].slowdown for i in own]
        if is_array(*slowdowns) and any(s is not slowdowns[0] for s in slowdowns):
            found = _fill_by_slowdown(
                [took[i] for i in own], [works[i].share * cover for i in own], slowdowns
            )
        else:
            if not is_array(*slowdowns):
                own.sort(key=lambda i: -works[i].slowdown)
            found = _fill([took[i] for i in own], [works[i].share * cover for i in own])
        covered.update(zip(own, found, strict=True))
    return [covered[i] for i in guests]


def _fill(seconds: Sequence[Real], rooms: Sequence[Real]) -> Sequence[Real]:
    """Return how much of *seconds* finds room, one after another, the first first."""
    used: Real = 0.0
    found: list[Real] = []
    for time, room in zip(seconds, rooms, strict=True):
        fits = minimum(time, maximum(room - used, 0.0))
        used = used + fits
        found.append(fits)
    return found


def _fill_by_slowdown(
    seconds: Sequence[Real], rooms: Sequence[Real], slowdowns: Sequence[Real]
) -> Sequence[Real]:
    """Fill where what slows most differs from candidate to candidate."""
    import numpy as np

    n = len(seconds)
    columns = np.stack(np.broadcast_arrays(*seconds, *rooms, *slowdowns))
    order = np.argsort(-columns[2 * n :], axis=0, kind="stable")
    found = _fill(
        np.take_along_axis(columns[:n], order, axis=0),  # type: ignore[arg-type]
        np.take_along_axis(columns[n : 2 * n], order, axis=0),  # type: ignore[arg-type]
    )
    filled = np.empty(order.shape)
    np.put_along_axis(filled, order, np.stack(found), axis=0)
    return list(filled)
