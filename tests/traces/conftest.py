"""A hand-worked step, and the modules that only these tests share."""

from __future__ import annotations

import importlib.util
from collections import defaultdict
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from parcost import Edge, Formula, Memory, Once, Pipeline, StepTrace, Work
from parcost.contract.plugin import Plugin
from parcost.engine.reduce import reduce
from parcost.plugins.discovery import load
from parcost_apps.timeline.step_trace import step_trace

PLUGIN, FORMULA = Plugin("test"), Formula(text="given", source="by hand")
STUDY: Any = SimpleNamespace()


@pytest.fixture(scope="session")
def chakra_traces() -> ModuleType:
    """Return the reader of Chakra traces."""
    path = Path(__file__).parent / "chakra_traces.py"
    spec = importlib.util.spec_from_file_location("chakra_traces", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def trace_of(*terms: Any, p: int, m: int, kind: str = "one_f_one_b", **more: Any) -> StepTrace:
    """Return the trace of a step of some terms."""
    schedule = load().offers("schedules")[kind][1]
    cut = Pipeline(schedule=kind, stages=p, micro_batches=float(m), **more)
    times = [(PLUGIN, term) for term in terms if not isinstance(term, Memory)]
    outcome = reduce(cut, schedule, times, [(PLUGIN, t) for t in terms if isinstance(t, Memory)])
    return step_trace(STUDY, outcome, name="a", path="a.par", at={})


def work(name: str, seconds: float, pass_: Any = "F", **more: Any) -> Work:
    return Work(name=name, seconds=seconds, pass_=pass_, formula=FORMULA, **more)


def once(name: str, seconds: float, when: Any, **more: Any) -> Once:
    return Once(name=name, seconds=seconds, when=when, formula=FORMULA, **more)


@pytest.fixture(scope="session")
def terms() -> Any:
    """Return functions that make traces and terms."""
    return SimpleNamespace(trace_of=trace_of, work=work, once=once, formula=FORMULA)


@pytest.fixture
def two_by_two() -> StepTrace:
    """Return two stages and two micro-batches, small enough to be worked out on paper.

    A forward pass takes 1 s, of which 0.25 s is a transfer that is waited for. A backward pass
    takes 2 s; 0.5 s of a transfer hides under it. A message takes 0.5 s. Stages gather for 0.25 s
    before the first pass, and reduce for 0.5 s behind the last one. The end takes 1 s.
    """
    return trace_of(
        work("product", 0.75),
        work("gather", 0.25, resource="node"),
        work("gradient", 2.0, "B", host="gradient"),
        work("sum", 0.5, "B", resource="network", window="gradient"),
        Edge(name="hop", seconds=0.5, formula=FORMULA, bytes_=8.0),
        once("parameters", 0.25, "fill", resource="network"),
        once("reduction", 0.5, "drain", resource="network"),
        once("update", 1.0, "end", resource="hbm"),
        Memory(name="weights", bytes_=10.0, formula=FORMULA),
        Memory(name="kept", bytes_=3.0, formula=FORMULA, per_micro_batch=True),
        p=2,
        m=2,
    )


@pytest.fixture(scope="session")
def spans() -> Any:
    """Return what gives the slices of a device by stream, as names, starts and ends."""

    def by_stream(trace: StepTrace, device: int) -> dict[str, list[tuple[str, float, float]]]:
        found = defaultdict(list)
        for one in trace.slices(device):
            found[one.stream].append((one.name, one.start, one.end))
        return dict(found)

    return by_stream
