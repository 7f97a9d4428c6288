"""Which single changes reach a target: against bubbles worked out by hand."""

from __future__ import annotations

import pytest

import parcost

SPEC = """
use catalog.devices.h100_sxm
use catalog.precisions.bf16
model small {{
  layers = 12, hidden = 1024, heads = 16, vocabulary = 32000, tied = on
}}
fabric site {{ level node {{ bandwidth = 450 GB/s per_direction, latency = 0 s }} }}
cluster {{ devices = {devices} }}
layout {{ pp = 4 }}
training {{ sequence = 1024, global_batch = {batch} sequences }}
schedule {{ stages = [3, 3, 3, 3] }}
targets {{ {targets} }}
"""


def section_rows(targets: str, batch: int = 8, devices: int = 4) -> list[tuple[object, ...]]:
    text = SPEC.format(targets=targets, batch=batch, devices=devices)
    (scenario,) = parcost.load_text(text)
    sections = [s for _, s in scenario.evaluate().result.sections]
    return [tuple(row) for s in sections if "targets" in s.title for row in s.rows]


@pytest.mark.slow
def test_the_fewest_micro_batches_are_found() -> None:
    """The bubble shrinks with every micro-batch: the number found suffices, one less does not."""
    (row,) = [r for r in section_rows("bubble = 12 %") if "micro-batches" in str(r[0])]
    m = int(str(row[0]).split()[0])
    (short,) = parcost.load_text(SPEC.format(targets="", batch=m - 1, devices=4))
    (enough,) = parcost.load_text(SPEC.format(targets="", batch=m, devices=4))
    assert short.evaluate().result.figure("bubble") > 0.12
    assert enough.evaluate().result.figure("bubble") <= 0.12


@pytest.mark.slow
def test_nothing_is_needed_where_the_target_is_met() -> None:
    assert [r[0] for r in section_rows("bubble = 90 %")] == ["none is needed"]


@pytest.mark.slow
def test_an_unreachable_target_is_reported_with_the_closest_value() -> None:
    text = SPEC.format(targets="mfu = 99 %", batch=8, devices=4)
    (scenario,) = parcost.load_text(text)
    (section,) = [s for _, s in scenario.evaluate().result.sections if "targets" in s.title]
    assert "no single change" in section.notes[0]
    assert len(section.rows) == 3


@pytest.mark.slow
def test_without_a_target_nothing_is_tried() -> None:
    assert section_rows("") == []


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("bubble = 0 %", "`bubble` must be above 0"),
        ("mfu = 120 %", "`mfu` must be at most 100 %"),
        ("step_time = 0 s", "`step_time` must be above 0"),
    ],
)
def test_an_impossible_target_is_rejected(target: str, message: str) -> None:
    with pytest.raises(parcost.SpecError, match=message):
        parcost.load_text(SPEC.format(targets=target, batch=8, devices=4))[0].studies()
