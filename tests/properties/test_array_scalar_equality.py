"""One code path: a sweep gives at every point what that point gives alone."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import parcost
from parcost import SpecError

BASE = """
use catalog.devices.h100_sxm
use catalog.fabrics.hgx_h100
use catalog.models.llama3_8b
use catalog.precisions.bf16

cluster {{ devices = 64 }}
layout {{ tp = {tp}, pp = {pp}, zero = {zero}, sequence_parallel = {sp} }}
schedule {{ kind = {schedule} }}
training {{
  sequence     = {sequence}
  micro_batch  = {micro_batch}
  global_batch = {global_batch} sequences
  recompute    = {recompute}
}}
overlap {{ gradients = {overlap}, parameters = {overlap} }}
"""

CHOICES = {
    "tp": [1, 2, 3, 4, 8, 16],
    "pp": [1, 2, 4, 8],
    "zero": [0, 1, 2, 3],
    "sp": ["on", "off"],
    "schedule": ["one_f_one_b", "gpipe"],
    "sequence": [2048, 4096, 8192],
    "micro_batch": [1, 2, 3, 4],
    "global_batch": [64, 128, 192],
    "recompute": ["none", "selective", "full"],
    "overlap": ["on", "off"],
}


@st.composite
def sweeps(draw: st.DrawFn) -> dict[str, list[object]]:
    """Give every choice one value, and up to three of them several."""
    picked: dict[str, list[object]] = {
        name: [draw(st.sampled_from(values))] for name, values in CHOICES.items()
    }
    names = draw(st.lists(st.sampled_from(sorted(CHOICES)), min_size=1, max_size=3, unique=True))
    for name in names:
        some = st.lists(st.sampled_from(CHOICES[name]), min_size=2, max_size=3, unique=True)
        picked[name] = draw(some)
    return picked


def spec_text(picked: dict[str, list[object]]) -> str:
    values = {
        name: str(items[0]) if len(items) == 1 else "[" + ", ".join(map(str, items)) + "]"
        for name, items in picked.items()
    }
    return BASE.format(**values)


def evaluate_point(picked: dict[str, object]) -> dict[str, object] | None:
    """Return the figures of one point, or None where a rule rejects it."""
    (scenario,) = parcost.load_text(BASE.format(**picked))
    try:
        result = scenario.evaluate().result
    except SpecError:
        return None
    if result.outcome is None:
        return None
    return {f.name: f.value for _, f in result.figures}


AXES = {
    "layout.tp": "tp",
    "layout.pp": "pp",
    "layout.zero": "zero",
    "layout.sequence_parallel": "sp",
    "schedule.kind": "schedule",
    "training.sequence": "sequence",
    "training.micro_batch": "micro_batch",
    "training.global_batch": "global_batch",
    "training.recompute": "recompute",
    "overlap.gradients": "overlap",
    "overlap.parameters": "overlap",
}


@pytest.mark.slow
@settings(deadline=None, max_examples=min(25, settings().max_examples))
@given(sweeps())
def test_a_sweep_equals_its_points_one_by_one(picked: dict[str, list[object]]) -> None:
    if len(picked["overlap"]) > 1:
        picked["overlap"] = picked["overlap"][:1]  # written twice, it would be two axes
    (scenario,) = parcost.load_text(spec_text(picked))
    rows = scenario.evaluate().rows()
    expected = math.prod(len(v) for v in picked.values())
    assert len(rows) == expected
    for row in rows:
        point = {name: items[0] for name, items in picked.items()}
        for axis, _ in scenario.axes:
            value = row[axis]
            point[AXES[axis]] = int(value) if isinstance(value, float) else value
        figures = evaluate_point(point)
        if figures is None:
            assert not row["feasible"]
            continue
        for name, value in figures.items():
            assert row[name] == pytest.approx(value, rel=1e-12, abs=1e-12), (point, name)


def test_what_a_group_keeps_busy_is_decided_point_by_point() -> None:
    """At tp = 16 groups cross the network, at tp = 2 they do not: neither may tell the other."""
    picked: dict[str, object] = {
        **{name: values[0] for name, values in CHOICES.items()},
        "zero": 1,
        "sp": "on",
        "sequence": 4096,
        "overlap": "on",
    }
    text = BASE.format(**{**picked, "tp": "[2, 16]"})
    rows = parcost.load_text(text)[0].evaluate().rows()
    for row in rows:
        figures = evaluate_point({**picked, "tp": int(row["layout.tp"])})
        assert figures is not None
        assert row["step_time"] == pytest.approx(figures["step_time"], rel=1e-12)
