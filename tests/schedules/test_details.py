"""Figures that only a timeline gives."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

import pytest

import parcost
from parcost import Study
from parcost_plugins.schedules.details import details

from ..rows import try_each

SPEC = """
use catalog.devices.h100_sxm
use catalog.precisions.bf16
fabric quick {{ level node {{ size = 8 devices, bandwidth = 1e9 GB/s per_direction, latency = 0 s }} }}
kernels {{ model = constant, memory_bound = off, cuda_graphs = iteration }}
model equal {{ layers = 16, hidden = 1, parameters = 1.6 G }}
cluster  {{ devices = 8 }}
layout   {{ pp = 8 }}
training {{ sequence = 1024, global_batch = 32 sequences }}
schedule {{ {schedule} }}
"""


@try_each(
    "schedule, span",
    [
        ("kind = one_f_one_b", 117),
        ("kind = zb_h1", 103),
        ("kind = zb_h2", 96),
        ("kind = zb_v, chunks = 2", 96),
    ],
)
def test_the_longest_span_counts_without_a_barrier(schedule: str, span: float) -> None:
    (scenario,) = parcost.load_text(SPEC.format(schedule=schedule))
    result = scenario.evaluate().result
    assert result.outcome is not None
    each = result.outcome.ideal_seconds / 96  # of a pass: F = B = W
    assert result.figure("longest_span") == pytest.approx(span * each, rel=1e-6)
    assert result.figure("span_bubble") == pytest.approx(1 - 96 / span, abs=1e-6)


def test_a_sweep_has_no_span() -> None:
    (scenario,) = parcost.load_text(SPEC.format(schedule="overlap = [50 %, 100 %]"))
    with pytest.raises(KeyError):
        scenario.evaluate().result.figure("longest_span")


def test_a_span_in_which_nothing_takes_time_has_no_bubble(bind: Callable[..., Study]) -> None:
    study = bind({"cluster.devices": 2, "layout.pp": 2}, parameters=[], terms=[])
    outcome = SimpleNamespace(
        pipeline=study.pipeline,
        makespan_seconds=0.0,
        ideal_seconds=0.0,
        timeline=lambda: [[SimpleNamespace(start=0.0, end=0.0)]] * 2,
    )
    found = {figure.name: figure.value for figure in details(study, outcome, brief=False)}  # type: ignore[arg-type]
    assert found == {"longest_span": 0.0, "span_bubble": 0.0}
