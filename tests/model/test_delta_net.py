"""Gated delta nets and gated attention, counted by hand for Qwen3-Next-80B-A3B."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

import parcost
from parcost import Scenario, Study
from parcost_plugins.physics import flops_per_token
from parcost_plugins.vocabulary import Stream

from ..rows import try_each

StudyOf = Callable[..., Study]

NEXT, EXPERTS = "qwen3_next_80b_a3b", "routing { distribution = uniform }"

#: A model whose layers have either kind, on one device.
MIXED = """
use catalog.devices.b200
use catalog.fabrics.hgx_b200
use catalog.precisions.bf16
model mixed {{ layers = 4, hidden = 2048, heads = 16, head_dim = 128, vocabulary = 1024{} }}
cluster {{ devices = 1 }}
layout {{ tp = 1 }}
training {{ sequence = 8192, global_batch = 1 sequences{} }}
"""
DELTA = ", delta_heads = 96, delta_key_dim = 128, full_every = 4"


def contributions_of(study: Study, kind: str) -> list[Any]:
    return [each for _, each in study.contributions(kind)]


def load(model: str, training: str = "") -> Scenario:
    (scenario,) = parcost.load_text(MIXED.format(model, training))
    return scenario


def study_of_text(model: str, training: str = "") -> Study:
    (study,) = load(model, training).studies()
    return study


def test_parameters_of_a_layer_are_those_of_its_matrices(study_of: StudyOf) -> None:
    # Queries and keys are 16 x 128 wide, values and gates 32 x 128; 36 of 48 layers have them.
    found = {p.name: p for p in study_of(NEXT, extra=EXPERTS).parameters}
    by_hand = {
        "delta net input projection": 2048 * (2 * 2048 + 2 * 4096),
        "delta net gate projection": 2048 * 2 * 32,
        "delta net convolution": 4 * (2 * 2048 + 4096),
        "delta net decays": 2 * 32,
        "delta net norm": 128,
        "delta net output projection": 4096 * 2048,
    }
    for name, each in by_hand.items():
        assert (found[name].total, sum(found[name].count)) == (each, 36), name
    # 16 query heads of 256 with as many gates, and 2 heads each of keys and values.
    assert found["QKV projection"].total == 2048 * (2 * 16 + 2 * 2) * 256
    assert sum(found["QKV projection"].count) == 12


def test_the_query_projection_makes_the_gates() -> None:
    gated, plain = (
        load(f", output_gate = {gate}").evaluate().result.figure("tp_query_columns")
        for gate in ("on", "off")
    )
    assert (gated, plain) == (2 * 2048, 2048)


@try_each("sequence, gigaflops", [(4096, 23.04), (32768, 31.50), (131072, 60.49)])
def test_flops_of_a_token_are_the_published_convention(
    study_of: StudyOf, sequence: int, gigaflops: float
) -> None:
    study = study_of(NEXT, sequence=sequence, extra=EXPERTS)
    assert flops_per_token(study) / 1e9 == pytest.approx(gigaflops, abs=0.005)


def test_a_layer_keeps_these_bytes_of_a_token(study_of: StudyOf) -> None:
    study = study_of(NEXT, layout="tp = 1", extra=EXPERTS)
    kept = {
        m.name: m.bytes_ / 2048
        for m in contributions_of(study, "memory")
        if m.name.startswith("delta net") and m.per_micro_batch
    }
    assert kept == {
        "delta net input": 2 * 2048,
        "delta net convolution input": 2 * 8192,
        "delta net queries and keys": 2 * 2 * 4096,  # behind their repetition for 32 heads
        "delta net values": 2 * 4096,
        "delta net gates": 2 * 4096,
        "delta net decays and chunk inverses": 32 * (8 + 2 * 64),
        "delta net rule output": 2 * 4096,
        "delta net output": 2 * 4096,
    }


def test_the_states_of_the_running_layer_are_in_the_peak(study_of: StudyOf) -> None:
    study = study_of(NEXT, layout="tp = 1", extra=EXPERTS)
    held = {m.name: m for m in contributions_of(study, "memory")}
    states = held["delta net states and W, U, backward"]
    # 32 states of 128 x 128 for each of 2048 / 64 chunks, and their gradients; W; U, V and dV.
    by_hand = 2 * 2 * 32 * (32 * 128 * 128) + 2 * 2048 * 4096 * (1 + 3)
    assert states.bytes_ == by_hand
    assert (states.moments, set(states.count)) == (("backward",), {1})


@try_each(
    "heads, tokens, forward, backward",
    [
        (96, 8192, 1.204, 4.184),  # the shape that the times were taken from
        (64, 4 * 4096, 1.517, 5.428),
        (16, 2 * 16384, 0.925, 3.147),
    ],
)
def test_the_rule_takes_the_measured_time(
    heads: int, tokens: int, forward: float, backward: float
) -> None:
    """Milliseconds of flash-linear-attention on a B200: pytorch/helion, BENCHMARKS.md."""
    study = study_of_text(f", delta_heads = {heads}, delta_key_dim = 128, full_every = 4")
    found = {
        w.pass_: 1e3 * w.seconds * tokens / 8192
        for w in contributions_of(study, "terms")
        if w.name == "delta net rule"
    }
    assert found == {
        "F": pytest.approx(forward, rel=0.16),
        "B": pytest.approx(backward, rel=0.16),
    }


def test_the_rule_counts_its_products_as_flops() -> None:
    study = study_of_text(DELTA)
    (forward,) = [
        op
        for op in study.operators
        if isinstance(op, Stream) and (op.name, op.pass_) == ("delta net rule", "F")
    ]
    # Chunks of 64 tokens: K K', its inverse, W, U; W S, the state, q S; q k', and its product.
    by_hand = 2 * 64 * 128 + 64**2 / 3 + 2 * 64 * 256 + 3 * 2 * 128 * 128 + 2 * 64 * (128 + 128)
    assert forward.flops == pytest.approx(8192 * 96 * by_hand)


def test_ranks_of_tensor_parallelism_share_the_heads(study_of: StudyOf) -> None:
    whole, halves = (
        {p.name: p.elements for p in study_of(NEXT, layout=f"tp = {tp}", extra=EXPERTS).parameters}
        for tp in (1, 2)
    )
    for name in ("input projection", "gate projection", "convolution", "output projection"):
        assert halves[f"delta net {name}"] == whole[f"delta net {name}"] / 2
    assert halves["delta net norm"] == whole["delta net norm"]


def test_a_model_whose_layers_all_attend_costs_what_one_without_does() -> None:
    plain, full = (study_of_text(text) for text in ("", f"{DELTA[:-1]}1"))
    for kind in ("parameters", "operators", "memory", "flops"):
        alone, beside = contributions_of(plain, kind), contributions_of(full, kind)
        nets = [each for each in beside if each.name.startswith("delta net")]
        assert nets, kind
        assert [each.name for each in beside if each not in nets] == [e.name for e in alone], kind
        assert not any(any(getattr(each, "count", ())) for each in nets), kind
        assert not any(getattr(each, "per_token", 0.0) for each in nets), kind


def test_full_recomputation_runs_the_rule_again() -> None:
    study = study_of_text(DELTA, ", recompute = full")
    passes = [op.pass_ for op in study.operators if op.name == "delta net rule"]
    assert sorted(passes) == ["B", "F", "R"]
    kept = [m for m in contributions_of(study, "memory") if m.name.startswith("delta net")]
    assert not any(any(m.count) for m in kept if m.per_micro_batch)


@try_each(
    "model, layout, extra, message",
    [
        (DELTA, "tp = 1, cp = 2", "", "a gated delta net is not modeled with context parallelism"),
        (f"{DELTA}, window = 1024", "tp = 1", "", "is not modeled with attention in a window"),
        (
            f"{DELTA}, causal = off",
            "tp = 1",
            "",
            "is not modeled with attention in both directions",
        ),
        (f"{DELTA}, kv_lora = 512", "tp = 1", "", "is not modeled with latent attention (MLA)"),
        (
            DELTA,
            "tp = 1",
            "adapters { rank = 8 }",
            "a gated delta net is not modeled with adapters",
        ),
        (
            ", output_gate = on, kv_lora = 512",
            "tp = 1",
            "",
            "a gate on the output of attention is not modeled with latent attention (MLA)",
        ),
        (f"{DELTA}, delta_key_heads = 4", "tp = 8", "", "4 key heads of the gated delta net are"),
        (f"{DELTA}, delta_key_heads = 5", "tp = 1", "", "96 value heads are not divisible by 5"),
        (f"{DELTA}, delta_key_heads = 0", "tp = 1", "", "96 value heads are not divisible by 0"),
        (
            f"{DELTA}, delta_value_dim = 0",
            "tp = 1",
            "",
            "a head of a gated delta net has the size 0",
        ),
    ],
)
def test_what_is_not_modeled_beside_it_is_refused(
    model: str, layout: str, extra: str, message: str
) -> None:
    text = (
        MIXED.format(model, "").replace("devices = 1", "devices = 8").replace("= 1 seq", "= 8 seq")
    )
    (scenario,) = parcost.load_text(f"{text.replace('tp = 1', layout)}\n{extra}")
    (result,) = scenario.evaluate().results
    assert message in " ".join(d.message for d in result.diagnostics)


@try_each(
    "model, layout, extra, helps",
    [
        (DELTA, "tp = 1, cp = 2", "", ["layout.cp = 1", "delta_heads = 0"]),
        (f"{DELTA}, window = 1024", "tp = 1", "", ["window = 0", "delta_heads = 0"]),
        (f"{DELTA}, causal = off", "tp = 1", "", ["causal = on", "delta_heads = 0"]),
        (", output_gate = on, kv_lora = 512", "tp = 1", "", ["kv_lora = 0", "output_gate = off"]),
        (DELTA, "tp = 1", "adapters { rank = 8 }", ["adapters", "delta_heads = 0"]),
    ],
)
def test_the_help_beside_it_names_values_that_are_accepted(
    model: str, layout: str, extra: str, helps: list[str]
) -> None:
    text = MIXED.format(model, "").replace("devices = 1", "devices = 8").replace("= 1 s", "= 8 s")
    text = text.replace("tp = 1", layout)
    (scenario,) = parcost.load_text(f"{text}\n{extra}")
    (found,) = [d for d in scenario.check() if d.id == "mixer-beside"]
    assert re.findall("`(.*?)`", found.help or "") == helps
    name = re.search(r"model (\w+)", text)
    assert name
    for value in helps:
        path, _, setting = value.rpartition(" = ")
        if not path:  # the block, which the help says to leave out
            (changed,) = parcost.load_text(text)
        else:
            given = {path if "." in path else f"{name[1]}.{path}": setting}
            (changed,) = parcost.load_text(f"{text}\n{extra}", overrides=given)
        assert "mixer-beside" not in {d.id for d in changed.check()}
