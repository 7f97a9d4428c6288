"""Terms in a word or two, schedules, and random steps to add up."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from parcost import Edge, Formula, Memory, Once, Outcome, Pipeline, Work
from parcost.contract.plugin import Plugin
from parcost.engine.reduce import reduce
from parcost.plugins.discovery import load
from parcost.search.replays import replay_step
from parcost.search.stage_loads import StageLoads, StructureLoads
from parcost.search.timing import sum_hops
from parcost_apps.testing import simulate

PLUGIN = Plugin("test")
FORMULA = Formula(text="given")


def _orders() -> Any:
    path = Path(__file__).parents[1] / "schedules" / "orders.py"
    spec = importlib.util.spec_from_file_location("orders", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


ORDERS = _orders()


class Make:
    """Terms without ceremony, and the sum of them."""

    def __init__(self) -> None:
        registered = load().offers("schedules")
        self.registered = {name: schedule for name, (_, schedule) in registered.items()}
        self.schedules: dict[str, Any] = {}
        for name, schedule in self.registered.items():
            free = ORDERS.ListedSchedule(name, schedule.order, schedule.copies)  # of limits
            self.schedules[name] = schedule if name in ("gpipe", "one_f_one_b") else free
        self.listed = ORDERS.ListedSchedule
        self.any_order = ORDERS.any_order
        self.any_pairs = ORDERS.any_pairs
        self.simulate = simulate

    @staticmethod
    def work(name: str, seconds: Any, pass_: Any = "F", **more: Any) -> Work:
        return Work(name=name, seconds=seconds, pass_=pass_, formula=FORMULA, **more)

    @staticmethod
    def edge(seconds: Any, name: str = "hop", **more: Any) -> Edge:
        return Edge(name=name, seconds=seconds, formula=FORMULA, **more)

    @staticmethod
    def once(name: str, seconds: Any, when: Any, **more: Any) -> Once:
        return Once(name=name, seconds=seconds, when=when, formula=FORMULA, **more)

    @staticmethod
    def memory(name: str, bytes_: Any, **more: Any) -> Memory:
        return Memory(name=name, bytes_=bytes_, formula=FORMULA, **more)

    def step(
        self,
        *terms: Any,
        p: int = 1,
        m: Any = 1.0,
        v: int = 1,
        schedule: Any = "one_f_one_b",
        **more: Any,
    ) -> Outcome:
        """Add up *terms*; *more* is of the pipeline."""
        found = self.schedules[schedule] if isinstance(schedule, str) else schedule
        pipeline = Pipeline(schedule=found.name, stages=p, micro_batches=m, chunks=v, **more)
        time = [(PLUGIN, t) for t in terms if not isinstance(t, Memory)]
        memory = [(PLUGIN, t) for t in terms if isinstance(t, Memory)]
        outcome = reduce(pipeline, found, time, memory)
        edges = [term for term in terms if isinstance(term, Edge)]
        timed = [term for term in terms if not isinstance(term, (Edge, Memory))]
        every = slice(0, np.size(m) if np.ndim(m) else None)
        loads = StructureLoads(StageLoads(timed, pairs=True), range(p * v), every)
        seconds, bytes_ = replay_step(pipeline, found, loads, sum_hops(edges), memory)
        assert np.allclose(seconds, outcome.step_seconds, rtol=1e-12, atol=1e-12)
        assert np.allclose(bytes_, outcome.memory_bytes, rtol=1e-12, atol=1e-12)
        return outcome


@pytest.fixture(scope="session")
def make() -> Make:
    return Make()
