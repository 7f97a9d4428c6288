"""Positions that are a bias on the scores: nothing is rotated, and none are learned."""

from __future__ import annotations

import parcost
from parcost import SpecError

SPEC = """
use catalog.devices.a100_sxm_80g
use catalog.fabrics.dgx_a100
use catalog.models.llama32_1b
use catalog.precisions.bf16
model ours extends llama32_1b {{ {more} }}
cluster  {{ devices = 8 }}
training {{ model = ours, sequence = 2048, global_batch = 16 sequences }}
"""


def streams(more: str) -> set[str]:
    study = parcost.load_text(SPEC.format(more=more))[0].first
    return {operator.name for operator in study.operators}


def test_alibi_rotates_nothing() -> None:
    rotated, biased = streams(""), streams("alibi = on")
    assert {name for name in rotated if "rotary" in name}
    assert biased == {name for name in rotated if "rotary" not in name}


def test_bloom_rotates_nothing_and_learns_no_positions() -> None:
    text = SPEC.replace("llama32_1b", "bloom_176b").format(more="")
    study = parcost.load_text(text)[0].first
    assert not [o.name for o in study.operators if "rotary" in o.name]


def test_learned_positions_and_alibi_contradict_each_other() -> None:
    (scenario,) = parcost.load_text(SPEC.format(more="alibi = on, positions = 2048"))
    try:
        found = scenario.evaluate().diagnostics
    except SpecError as error:
        found = error.diagnostics
    assert "alibi-with-positions" in [d.id for d in found]
