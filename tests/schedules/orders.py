"""Op orders to time, any that can run, and a slow simulator of them."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

from parcost import Op, Pair, Schedule


class ListedSchedule(Schedule):
    """A schedule of an order that is written down."""

    def __init__(self, name: str, order: Callable[..., Any], copies: int = 1) -> None:
        self.name, self._order, self.copies = name, order, copies

    def order(self, *shape: int) -> Any:
        return self._order(*shape)


def any_order(seed: int) -> Any:
    """Return a schedule that does whatever can be done next, and so never deadlocks."""

    def order(p: int, m: int, v: int) -> list[list[Op]]:
        dice, places = random.Random(f"{seed} {p} {m} {v}"), random.Random(seed)
        device = [x % p for x in range(p * v)]
        places.shuffle(device)
        todo: set[Op] = set()
        for x in range(p * v):
            for j in range(m):
                split = dice.random() < 0.5
                todo |= {Op("F", j, x)}
                todo |= {Op("B", j, x), Op("W", j, x)} if split else {Op("BW", j, x)}
        done: set[tuple[str, int, int]] = set()
        lists: list[list[Op]] = [[] for _ in range(p)]
        while todo:
            op = dice.choice(sorted(op for op in todo if needs(op, p * v) <= done))
            todo.remove(op)
            done.add(("B" if op.kind == "BW" else op.kind, op.micro_batch, op.stage))
            lists[device[op.stage]].append(op)
        return lists

    return ListedSchedule(f"any_{seed}", order)


def any_pairs(seed: int) -> Any:
    """Return a schedule with two copies of each stage that also does things at once."""

    def order(p: int, m: int, v: int) -> list[list[Op | Pair]]:
        dice, places = random.Random(f"{seed} {p} {m} {v}"), random.Random(seed)
        homes = [[x % p for x in range(p * v)] for _ in range(2)]
        for home in homes:
            places.shuffle(home)
        way = [homes[j % 2] for j in range(m)]
        todo = {Op(kind, j, x) for kind in ("F", "BW") for j in range(m) for x in range(p * v)}  # type: ignore[arg-type]
        done: set[tuple[str, int, int]] = set()
        lists: list[list[Op | Pair]] = [[] for _ in range(p)]
        while todo:
            ready = sorted(op for op in todo if needs(op, p * v) <= done)
            op = dice.choice(ready)
            d = way[op.micro_batch][op.stage]
            beside = [o for o in ready if way[o.micro_batch][o.stage] == d and o.kind != op.kind]
            entry: Op | Pair = op
            if beside and dice.random() < 0.6:
                entry = Pair(*sorted((op, dice.choice(beside)), key=lambda o: o.kind != "F"))
            lists[d].append(entry)
            for each in ops_of(entry):
                todo.remove(each)
                done.add((each.kind[0], each.micro_batch, each.stage))
        return lists

    return ListedSchedule(f"pairs_{seed}", order, copies=2)


def needs(op: Op, virtual: int) -> set[tuple[str, int, int]]:
    """Return what must be done before *op*, anywhere; B stands for BW as well."""
    kind, j, x = op
    if kind == "F":
        return {("F", j, x - 1)} if x else set()
    if kind == "W":
        return {("B", j, x)}
    return {("F", j, x)} | ({("B", j, x + 1)} if x + 1 < virtual else set())


def ops_of(entry: Op | Pair) -> list[Op]:
    """Return the op, or both."""
    return [entry.forward, entry.backward] if isinstance(entry, Pair) else [entry]


def simulate(
    lists: Sequence[Sequence[Op | Pair]],
    times: Mapping[str, Any],
    hop: Any = 0,
    releases: Mapping[tuple[int, int], Any] | None = None,
    *,
    blocking: bool = False,
) -> Any:
    """Simulate in the words of the model: sweep over devices until nothing is left.

    *hop* is one number, or one for each boundary of neighbouring devices. ``times["FB"]``
    are pairs, by stages. *releases*, *starts* and *ends* are by stage and device.
    """
    virtual = len(times["F"])
    hops = hop if isinstance(hop, (list, tuple)) else [hop] * (len(lists) - 1)
    home = {
        (op.micro_batch, op.stage): d
        for d, entries in enumerate(lists)
        for entry in entries
        for op in ops_of(entry)
    }

    def way(a: int, b: int) -> Any:
        return max(hops[min(a, b) : max(a, b)], default=0)

    def lasts(entry: Op | Pair) -> Any:
        if isinstance(entry, Pair):
            x, y = entry.forward.stage, entry.backward.stage
            alone = times["F"][x] + times["B"][y] + times["W"][y]
            return times.get("FB", {}).get((x, y), alone)
        return sum(times[k][entry.stage] for k in entry.kind)

    end: dict[tuple[str, int, int], Any] = {}
    when: list[tuple[int, Op | Pair, Any, Any]] = []
    clock = [0] * len(lists)
    left = [list(entries) for entries in lists]
    begun: set[tuple[int, int]] = set()
    while any(left):
        moved = False
        for d, entries in enumerate(left):
            while entries and all(needs(op, virtual) <= end.keys() for op in ops_of(entries[0])):
                entry = entries.pop(0)
                start = clock[d]
                for op in ops_of(entry):
                    for key in needs(op, virtual):
                        start = max(start, end[key] + way(home[key[1], key[2]], d))
                    if op.kind == "F" and (op.stage, d) not in begun:
                        begun.add((op.stage, d))
                        start = max(start, (releases or {}).get((op.stage, d), 0))
                clock[d] = start + lasts(entry)
                when.append((d, entry, start, clock[d]))
                for op in ops_of(entry):
                    end[op.kind[0], op.micro_batch, op.stage] = when[-1][3]
                    reader = op.stage + (1 if op.kind == "F" else -1)
                    if blocking and op.kind != "W" and 0 <= reader < virtual:
                        clock[d] += way(home[op.micro_batch, reader], d)
                moved = True
        assert moved, "deadlock"
    copies = sorted({(op.stage, d) for d, entry, _, _ in when for op in ops_of(entry)})
    on = {
        copy: [
            (op.kind, start, stop)
            for d, entry, start, stop in when
            for op in ops_of(entry)
            if (op.stage, d) == copy
        ]
        for copy in copies
    }
    return SimpleNamespace(
        seconds=max(clock),
        starts={copy: min(s for kind, s, _ in on[copy] if kind == "F") for copy in copies},
        ends={copy: max(e for kind, _, e in on[copy] if kind != "F") for copy in copies},
        spans=[
            max(stop for at, _, _, stop in when if at == d)
            - min(start for at, _, start, _ in when if at == d)
            for d in range(len(lists))
        ],
        when=when,
    )
