"""Op orders to time: any that can run."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from parcost import Op, Pair, Schedule
from parcost_apps.testing.simulator import inputs_of, ops_of


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
            op = dice.choice(sorted(op for op in todo if inputs_of(op, p * v) <= done))
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
            ready = sorted(op for op in todo if inputs_of(op, p * v) <= done)
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
