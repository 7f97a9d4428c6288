"""Schedules to time, and a slow simulator to hold the replay against."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from parcost import Op
from parcost.plugins import load


def _orders() -> Any:
    path = Path(__file__).with_name("orders.py")
    spec = importlib.util.spec_from_file_location("orders", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


ORDERS = _orders()


@pytest.fixture(scope="session")
def zb_h1() -> Any:
    return ORDERS.zb_h1()


@pytest.fixture(scope="session")
def interleaved() -> Any:
    return SimpleNamespace(name="interleaved", order=ORDERS.interleaved)


@pytest.fixture(scope="session")
def zb_v() -> Any:
    return SimpleNamespace(name="zb_v", order=ORDERS.zb_v)


@pytest.fixture(scope="session")
def any_order() -> Callable[[int], Any]:
    return ORDERS.any_order  # type: ignore[no-any-return]


@pytest.fixture(scope="session")
def gpipe() -> Any:
    """GPipe as it is shipped."""
    return load().named("schedules")["gpipe"][1]


@pytest.fixture(scope="session")
def one_f_one_b() -> Any:
    """1F1B as it is shipped."""
    return load().named("schedules")["one_f_one_b"][1]


@pytest.fixture(scope="session")
def simulate() -> Callable[..., Any]:
    """A simulator in the words of the model: sweep over devices until nothing is left."""
    needs = ORDERS.needs

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
