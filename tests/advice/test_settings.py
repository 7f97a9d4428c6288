"""Which settings would make a step faster: each is what its own spec says it is."""

from __future__ import annotations

from typing import Any

import pytest

import parcost

DENSE = """
use catalog.devices.h100_sxm
use catalog.fabrics.hgx_h100
use catalog.models.llama3_70b
use catalog.precisions.bf16
cluster { devices = 64 }
layout { tp = 8, pp = 4, zero = 1, sequence_parallel = on }
training { sequence = 8192, micro_batch = 1, global_batch = 32 sequences }
"""
EXPERTS = """
use catalog.devices.h800_sxm
use catalog.fabrics.hgx_h800
use catalog.models.deepseek_v3
use catalog.precisions.fp8_deepseek
cluster { devices = 2048 }
layout { pp = 16, ep = 64, zero = 1 }
schedule { assignment = front }
training { sequence = 4096, micro_batch = 1, global_batch = 1024 sequences, recompute = full }
"""


def result(text: str, values: dict[str, Any] | None = None) -> parcost.Result:
    (scenario,) = parcost.load_text(text, overrides=values or {})
    return scenario.evaluate().result


def rows(found: parcost.Result) -> list[tuple[str, float, float]]:
    (section,) = [s for _, s in found.sections if s.title == "Levers"]
    return [(str(row[0]), float(row[1][0]), float(row[2][0])) for row in section.rows]


def step(text: str, values: dict[str, Any]) -> float:
    return float(result(text, values).figure("step_time"))


@pytest.mark.slow
def test_more_chunks_are_a_lever_where_the_bubble_is_large() -> None:
    # The bubble is 3 of 11 slots of 8 micro-batches; with v chunks it is 3 / v of them.
    found = result(DENSE)
    now = float(found.figure("step_time"))
    (title, seconds, change) = next(row for row in rows(found) if row[0].startswith("schedule"))
    assert title.startswith("schedule { kind = interleaved, chunks = ")
    chunks = int(title.split()[-2])
    steps = {
        v: step(DENSE, {"schedule.kind": "interleaved", "schedule.chunks": v}) for v in (2, chunks)
    }
    assert seconds == steps[chunks] <= steps[2] < now
    assert change == pytest.approx(seconds / now - 1)


@pytest.mark.slow
def test_two_stages_have_chunks_as_a_lever_and_one_stage_has_none() -> None:
    # Two stages idle 1 of 4 + 1 slots of 4 micro-batches; one stage idles none.
    two = result(DENSE, {"layout.pp": 2, "layout.tp": 8, "cluster.devices": 128})
    assert any(title.startswith("schedule") for title, *_ in rows(two))
    one = result(DENSE, {"layout.pp": 1, "layout.tp": 8})
    assert not any(title.startswith("schedule") for title, *_ in rows(one))


@pytest.mark.slow
def test_how_tokens_are_sent_is_a_lever() -> None:
    found = {title: seconds for title, seconds, _ in rows(result(EXPERTS))}
    once = step(EXPERTS, {"routing.deduplicate": "on"})
    assert found["routing.deduplicate = on"] == pytest.approx(once, rel=1e-12)
    (dispatcher,) = [title for title in found if title.startswith("routing.dispatcher = ")]
    name = dispatcher.split(" = ")[1]
    assert found[dispatcher] == pytest.approx(step(EXPERTS, {"routing.dispatcher": name}))


@pytest.mark.slow
def test_illegal_and_oversized_layouts_are_no_levers() -> None:
    # Without recomputation the fullest stage needs 50.4 GiB of 79.65, with a margin of 8 %.
    small = result(DENSE, {"memory.usable": 0.65, "training.recompute": "full"})
    titles = [title for title, *_ in rows(small)]
    assert "training.recompute = none" in titles
    tight = result(DENSE, {"memory.usable": 0.55, "training.recompute": "full"})
    assert "training.recompute = none" not in [title for title, *_ in rows(tight)]


def test_unsupported_features_are_no_levers() -> None:
    lacks = """
    framework mine { offers kinds { attribute = "schedule.kind", values = "one_f_one_b" } }
    """
    found = rows(result(DENSE + lacks, {"training.framework": "mine"}))
    assert not [title for title, *_ in found if title.startswith("schedule")]


@pytest.mark.slow
def test_a_screen_has_two_settings_and_a_part_of_the_machine() -> None:
    first, second, third, *_ = rows(result(EXPERTS))
    assert [" = " in title for title, *_ in (first, second, third)] == [True, True, False]
    assert first[1] < second[1]
