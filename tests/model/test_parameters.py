"""Parameters: exact totals of published models, and what each rank holds of them."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import parcost
from parcost import Study
from parcost.engine.rules import diagnose

from ..rows import try_each

StudyOf = Callable[..., Study]

# Each counted once by hand from the architecture; the vocabulary is not padded.
TOTALS = {
    "gpt2_small": 124_439_808,
    "gpt2_xl": 1_557_611_200,
    "gpt3_175b": 174_604_259_328,
    "llama2_7b": 6_738_415_616,
    "llama2_13b": 13_015_864_320,
    "llama2_70b": 68_976_648_192,
    "llama3_8b": 8_030_261_248,
    "llama3_70b": 70_553_706_496,
    "llama31_405b": 405_853_388_800,
}


def total(study: Study) -> float:
    return sum(held.total * sum(held.count) for held in study.parameters)


def on_stage(study: Study, stage: int) -> float:
    return sum(held.elements * held.count[stage] for held in study.parameters)


@try_each("model", TOTALS)
def test_totals_equal_the_published_models_exactly(study_of: StudyOf, model: str) -> None:
    assert total(study_of(model)) == TOTALS[model]


@pytest.mark.slow
def test_the_total_does_not_depend_on_the_layout(study_of: StudyOf) -> None:
    layouts = ["tp = 8", "tp = 16", "pp = 4", "tp = 4, pp = 2, vocabulary_multiple = 128"]
    found = {total(study_of("llama3_8b", layout=layout)) for layout in layouts}
    assert found == {TOTALS["llama3_8b"]}


@try_each("tp", [1, 2, 4, 8])
@try_each("model", ["llama2_13b", "llama3_70b", "llama31_405b"])
def test_shards_and_copies_over_the_ranks_add_up_to_the_total(
    study_of: StudyOf, model: str, tp: int
) -> None:
    study = study_of(model, layout=f"tp = {tp}")
    held = sum(p.elements * sum(p.count) * (1 if p.replicated else tp) for p in study.parameters)
    assert held == TOTALS[model]


@try_each("pp", [1, 2, 4, 8])
def test_stages_add_up_to_the_total(study_of: StudyOf, pp: int) -> None:
    study = study_of("llama3_8b", layout=f"pp = {pp}")
    assert sum(on_stage(study, x) for x in range(pp)) == TOTALS["llama3_8b"]


def test_a_stage_of_llama_3_70b_holds_its_layers_and_an_end(study_of: StudyOf) -> None:
    study = study_of("llama3_70b", layout="tp = 8, pp = 4, sequence_parallel = on")
    layer = 855_638_016 / 8 + 2 * 8192
    embedding = 128_256 * 8192 / 8
    assert on_stage(study, 0) == 20 * layer + embedding == 2_270_756_864
    assert on_stage(study, 1) == 20 * layer
    assert on_stage(study, 3) == 20 * layer + embedding + 8192


def test_ranks_beyond_the_kv_heads_hold_copies_of_them(study_of: StudyOf) -> None:
    study = study_of("llama3_70b", layout="tp = 16")
    (projection,) = [p for p in study.parameters if p.name == "QKV projection"]
    heads, kv, d, h = 64, 8, 128, 8192
    assert projection.total == (heads + 2 * kv) * d * h
    assert 16 * projection.elements == (heads + 2 * 16) * d * h


def test_a_padded_vocabulary_is_held_and_not_counted(study_of: StudyOf) -> None:
    study = study_of("gpt2_small", layout="tp = 4, vocabulary_multiple = 128")
    (embedding,) = [p for p in study.parameters if p.name == "embedding"]
    assert 4 * embedding.elements == 50_688 * 768  # 99 x 512 rows
    assert embedding.total == 50_257 * 768


def test_a_tied_head_is_copied_to_the_last_of_several_stages(study_of: StudyOf) -> None:
    alone = study_of("gpt2_small")
    piped = study_of("gpt2_small", layout="pp = 2")
    embedding, positions, layer, norm = 50_257 * 768, 1024 * 768, 7_087_872, 2 * 768
    assert on_stage(alone, 0) == TOTALS["gpt2_small"]
    assert on_stage(piped, 0) == embedding + positions + 6 * layer
    assert on_stage(piped, 1) == embedding + norm + 6 * layer
    assert total(piped) == TOTALS["gpt2_small"]


def test_qwen_has_biases_on_queries_keys_and_values_alone(study_of: StudyOf) -> None:
    # 28 layers of 3584, 28 heads and 4 KV heads of 128, MLP of 18944, vocabulary of 152064
    study = study_of("qwen25_7b")
    layer = 3584 * 128 * (2 * 28 + 2 * 4) + 36 * 128 + 3 * 3584 * 18_944 + 2 * 3584
    assert total(study) == 28 * layer + 2 * 152_064 * 3584 + 3584 == 7_615_616_512


def test_every_bias_of_a_gated_mlp_is_counted(study_of: StudyOf) -> None:
    model = """model m {
      layers = 1, hidden = 64, heads = 4, ffn = 100, vocabulary = 10, gated = on, biases = on
    }"""
    attention = 4 * 64 * 64 + 4 * 64
    mlp = 3 * 64 * 100 + 2 * 100 + 64
    assert total(study_of(model)) == attention + mlp + 3 * 64 + 2 * 10 * 64


def test_parts_say_where_they_stand(study_of: StudyOf) -> None:
    study = study_of("gpt2_small", layout="pp = 2")
    places = {p.name: p.place for p in study.parameters}
    assert [name for name, place in places.items() if place == "before"] == [
        "embedding",
        "position embedding",
    ]
    assert [name for name, place in places.items() if place == "after"] == [
        "head, shared with the embedding",
        "final norm",
    ]


@try_each("kv, holds", [(12, True), (4, True), (1, True), (5, False)])
def test_query_heads_share_kv_heads_evenly(study_of: StudyOf, kv: int, holds: bool) -> None:
    model = f"model m {{ layers = 1, hidden = 768, heads = 12, kv_heads = {kv}, vocabulary = 8 }}"
    study = study_of(model)
    (check,) = [c for _, c in study.contributions("checks") if c.id == "kv-heads-share"]
    assert check.holds == holds
    if not holds:
        said = diagnose(check, study).message
        assert said == f"12 heads are not divisible by {kv} KV heads"


SMALL = """
use catalog.devices.h100_sxm
use catalog.fabrics.hgx_h100
use catalog.models.llama32_1b
use catalog.precisions.bf16
cluster {{ devices = 8 }}
layout {{ pp = 4, zero = {zero} }}
training {{ sequence = 4096, global_batch = 64 sequences, recompute = full }}
schedule {{ kind = {kind}, chunks = {chunks} }}
"""
EMBEDDING = 128_256 * 2048
LAYER = (1_235_814_400 - EMBEDDING - 2048) / 16


@try_each(
    "kind, chunks, layers",
    [
        ("zb_v", 2, 4),
        ("dualpipe_v", 2, 4),
        ("dualpipe", 1, 8),
        ("chimera", 1, 8),
    ],
)
def test_a_device_with_both_ends_holds_a_tied_embedding_once(
    kind: str, chunks: int, layers: int
) -> None:
    """18 B for each parameter of its layers, the last norm, and the embedding."""
    text = SMALL.format(kind=kind, chunks=chunks, zero=0)
    result = parcost.load_text(text)[0].evaluate().result
    expected = 18 * (layers * LAYER + 2048 + EMBEDDING)
    assert result.figure("state_memory") == pytest.approx(expected, rel=1e-12)
    assert not any("shared embedding" in line.name for line in result.outcome.ledger)


@pytest.mark.parametrize("kind, chunks", [("one_f_one_b", 1), ("interleaved", 2)])
def test_ends_on_two_devices_hold_one_each(kind: str, chunks: int) -> None:
    result = parcost.load_text(SMALL.format(kind=kind, chunks=chunks, zero=0))[0].evaluate().result
    held = {line.name for _, line in result.study.contributions("parameters")}
    assert "head, shared with the embedding" in held
    assert any("shared embedding" in line.name for line in result.outcome.ledger)


def test_an_embedding_between_both_ends_of_a_v_stays_gathered() -> None:
    """Under ZeRO 3 it is whole from the first stage to the head: gathered once, in forward."""
    text = SMALL.format(kind="zb_v", chunks=2, zero=3)
    result = parcost.load_text(text)[0].evaluate().result
    names = [line.name for line in result.outcome.ledger]
    assert "embedding parameter all-gather, stage 0" in names
    passes = [x.pass_ for x in result.outcome.ledger if x.name.startswith("embedding parameter")]
    assert passes == ["F"]


def test_a_v_that_does_not_exist_is_refused_by_its_rule() -> None:
    text = SMALL.format(kind="zb_v", chunks=1, zero=0)
    assert "schedule-limits" in [d.id for d in parcost.load_text(text)[0].check()]


WIDE = "layers = 2, hidden = 512, heads = 8, kv_heads = 2, ffn = 1024, vocabulary = 100"


@try_each(
    "more, added",
    [
        ("qk_norm = on", 2 * 2 * 64),
        ("qk_norm = on, qk_norm_whole = on", 2 * (8 + 2) * 64),
        ("norm = layer", (2 * 2 + 1) * 512),
        ("norm = layer, norm_weights = 1", 0),
        ("norm_weights = 0", -(2 * 2 + 1) * 512),
        ("qkv_biases = on", 2 * (8 + 4) * 64),
        ("output_bias = on", 2 * 512),
        ("mlp_biases = on", 2 * (2 * 1024 + 512)),
        ("qkv_biases = on, output_bias = on, mlp_biases = on", 2 * (12 * 64 + 512 + 2560)),
        ("biases = on", 2 * (12 * 64 + 512 + 2560)),
        ("activation_parameters = 2", 2 * 2),
    ],
)
def test_norms_and_biases_by_hand(study_of: StudyOf, more: str, added: int) -> None:
    plain, found = (study_of(f"model m {{ {WIDE}{rest} }}") for rest in ("", f", {more}"))
    assert total(found) - total(plain) == added
    split = study_of(f"model m {{ {WIDE}, {more} }}", layout="tp = 2")
    assert total(split) == total(found)
