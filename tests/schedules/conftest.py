"""Schedules to time, and a slow simulator to hold the replay against."""

from __future__ import annotations

import importlib.util
import random
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from parcost import Op
from parcost.plugins import load

EXAMPLE = Path(__file__).parents[2] / "examples" / "parcost-zb-h1" / "parcost_zb_h1.py"


@pytest.fixture(scope="session")
def zb_h1() -> Any:
    """The schedule of the third-party example, which is not installed here."""
    spec = importlib.util.spec_from_file_location("parcost_zb_h1", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.ZB_H1


@pytest.fixture(scope="session")
def interleaved() -> Any:
    """Interleaved 1F1B in groups of p micro-batches; chunk c on device r is stage c p + r."""

    def order(stages: int, micro_batches: int, chunks: int) -> list[list[Op]]:
        p, m, v = stages, micro_batches, chunks
        table = [(j, c) for g in range(0, m, p) for c in range(v) for j in range(g, g + p)]
        lists = []
        for r in range(p):
            forward = [Op("F", j, c * p + r) for j, c in table]
            backward = [Op("BW", j, (v - 1 - c) * p + r) for j, c in table]
            w = min(2 * (p - 1 - r) + (v - 1) * p, m * v)
            steady = [op for pair in zip(forward[w:], backward, strict=False) for op in pair]
            lists.append(forward[:w] + steady + backward[m * v - w :])
        return lists

    return SimpleNamespace(name="interleaved", order=order)


@pytest.fixture(scope="session")
def zb_v() -> Any:
    """ZB-V: two chunks in a V, chunk 0 on the way down and chunk 1 on the way back up."""

    def device(r: int, p: int, m: int) -> list[Op]:
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

    def order(stages: int, micro_batches: int, chunks: int) -> list[list[Op]]:
        assert chunks == 2
        return [device(r, stages, micro_batches) for r in range(stages)]

    return SimpleNamespace(name="zb_v", order=order)


@pytest.fixture(scope="session")
def any_order() -> Callable[[int], Any]:
    """A schedule that does whatever can be done next, by a seed, and so never deadlocks."""

    def schedule(seed: int) -> Any:
        def order(stages: int, micro_batches: int, chunks: int) -> list[list[Op]]:
            dice = random.Random(f"{seed} {stages} {micro_batches} {chunks}")
            places = random.Random(seed)
            virtual = stages * chunks
            device = [x % stages for x in range(virtual)]
            places.shuffle(device)
            todo: set[Op] = set()
            for x in range(virtual):
                for j in range(micro_batches):
                    split = dice.random() < 0.5
                    todo |= {Op("F", j, x)}
                    todo |= {Op("B", j, x), Op("W", j, x)} if split else {Op("BW", j, x)}
            done: set[tuple[str, int, int]] = set()
            lists: list[list[Op]] = [[] for _ in range(stages)]
            while todo:
                ready = [op for op in todo if needs(op, virtual) <= done]
                op = dice.choice(sorted(ready))
                todo.remove(op)
                done.add(("B" if op.kind == "BW" else op.kind, op.micro_batch, op.stage))
                lists[device[op.stage]].append(op)
            return lists

        return SimpleNamespace(name=f"any_{seed}", order=order)

    return schedule


def needs(op: Op, virtual: int) -> set[tuple[str, int, int]]:
    """Return what must be done before *op*, anywhere."""
    kind, j, x = op
    if kind == "F":
        return {("F", j, x - 1)} if x else set()
    if kind == "W":
        return {("B", j, x)}
    return {("F", j, x)} | ({("B", j, x + 1)} if x + 1 < virtual else set())


@pytest.fixture(scope="session")
def simulate() -> Callable[..., Any]:
    """A simulator in the words of the model: sweep over devices until nothing is left."""

    def run(
        lists: Sequence[Sequence[Op]],
        times: Mapping[str, Sequence[Any]],
        hop: Any = 0,
        releases: Sequence[Any] | None = None,
    ) -> Any:
        virtual = len(times["F"])
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
                        end[key] + (hop if device[key[2]] != d else 0) for key in needs(op, virtual)
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

    return run


@pytest.fixture(scope="session")
def gpipe() -> Any:
    """GPipe as it is shipped."""
    return offered("gpipe")


@pytest.fixture(scope="session")
def one_f_one_b() -> Any:
    """1F1B as it is shipped."""
    return offered("one_f_one_b")


def offered(name: str) -> Any:
    return load().named("schedules")[name][1]
