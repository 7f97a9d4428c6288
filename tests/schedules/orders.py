"""Op orders to time, published ones and any that can run, and a slow simulator of them."""

from __future__ import annotations

import importlib.util
import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from parcost import Op

EXAMPLE = Path(__file__).parents[2] / "examples" / "parcost-zb-h1" / "parcost_zb_h1.py"


def zb_h1() -> Any:
    """Return the schedule of the third-party example, which is not installed here."""
    spec = importlib.util.spec_from_file_location("parcost_zb_h1", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.ZB_H1


def interleaved(p: int, m: int, v: int) -> list[list[Op]]:
    """Return interleaved 1F1B in groups of p; chunk c on device r is stage c p + r."""
    table = [(j, c) for g in range(0, m, p) for c in range(v) for j in range(g, g + p)]
    lists = []
    for r in range(p):
        forward = [Op("F", j, c * p + r) for j, c in table]
        backward = [Op("BW", j, (v - 1 - c) * p + r) for j, c in table]
        w = min(2 * (p - 1 - r) + (v - 1) * p, m * v)
        steady = [op for pair in zip(forward[w:], backward, strict=False) for op in pair]
        lists.append(forward[:w] + steady + backward[m * v - w :])
    return lists


def zb_v(p: int, m: int, v: int) -> list[list[Op]]:
    """Return ZB-V: two chunks, 0 on the way down and 1 on the way back up."""
    assert v == 2
    return [_zb_v(r, p, m) for r in range(p)]


def _zb_v(r: int, p: int, m: int) -> list[Op]:
    left = {(k, c): list(range(max(m, 2 * p - 1))) for k in "FBW" for c in (0, 1)}
    ops: list[Op] = []

    def do(*kinds: str) -> None:
        for kind in kinds:
            k, c = kind[0], int(kind[1])
            if left[k, c]:
                ops.append(Op(k, left[k, c].pop(0), r if c == 0 else 2 * p - 1 - r))  # type: ignore[arg-type]

    do(*["F0"] * (2 * (p - r) - 1))
    do(*["F1", "F0"] * r)
    do(*["F1", "B1", "W1"] * (p - r))
    while left["F", 0] or left["F", 1]:
        do("F0", "B0", "W0", "F1", "B1", "W1")
    do(*["B0", "B1"] * r)
    do(*["B0", "W0"] * (p - r))
    do(*["W1"] * len(left["W", 1]))
    do(*["W0"] * len(left["W", 0]))
    return [op for op in ops if op.micro_batch < m]


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

    return SimpleNamespace(name=f"any_{seed}", order=order)


def needs(op: Op, virtual: int) -> set[tuple[str, int, int]]:
    """Return what must be done before *op*, anywhere; B stands for BW as well."""
    kind, j, x = op
    if kind == "F":
        return {("F", j, x - 1)} if x else set()
    if kind == "W":
        return {("B", j, x)}
    return {("F", j, x)} | ({("B", j, x + 1)} if x + 1 < virtual else set())


def simulate(
    lists: Sequence[Sequence[Op]],
    times: Mapping[str, Sequence[Any]],
    hop: Any = 0,
    releases: Sequence[Any] | None = None,
) -> Any:
    """Simulate in the words of the model: sweep over devices until nothing is left.

    *hop* is one number, or one for each boundary of neighbouring stages.
    """
    virtual = len(times["F"])
    hops = hop if isinstance(hop, (list, tuple)) else [hop] * (virtual - 1)
    device = {op.stage: d for d, ops in enumerate(lists) for op in ops}
    end: dict[tuple[str, int, int], Any] = {}
    when: dict[Op, tuple[Any, Any]] = {}
    clock = [0] * len(lists)
    left = [list(ops) for ops in lists]
    while any(left):
        moved = False
        for d, ops in enumerate(left):
            while ops and needs(ops[0], virtual) <= end.keys():
                op = ops.pop(0)
                arrivals = [
                    end[key] + (hops[min(key[2], op.stage)] if device[key[2]] != d else 0)
                    for key in needs(op, virtual)
                ]
                release = releases[op.stage] if releases and op.kind == "F" else 0
                start = max([clock[d], release, *arrivals])
                kinds = "BW" if op.kind == "BW" else [op.kind]
                clock[d] = start + sum(times[k][op.stage] for k in kinds)
                end["B" if op.kind == "BW" else op.kind, op.micro_batch, op.stage] = clock[d]
                when[op] = (start, clock[d])
                moved = True
        assert moved, "deadlock"
    return SimpleNamespace(
        seconds=max(clock),
        starts=[
            min(s for op, (s, _) in when.items() if op.kind == "F" and op.stage == x)
            for x in range(virtual)
        ],
        ends=[
            max(e for op, (_, e) in when.items() if op.kind != "F" and op.stage == x)
            for x in range(virtual)
        ],
        spans=[
            max(e for op, (_, e) in when.items() if device[op.stage] == d)
            - min(s for op, (s, _) in when.items() if device[op.stage] == d)
            for d in range(len(lists))
        ],
    )
