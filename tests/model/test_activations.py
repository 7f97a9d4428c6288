"""Activation memory: one set of saved tensors against both published accounts."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from parcost import Memory, Study

from ..evaluation import model_memory
from ..rows import try_each

StudyOf = Callable[..., Study]

CLASSIC = "flash_attention = off, dropout = on"


def layer(study: Study) -> float:
    """Bytes that a layer keeps for one micro-batch."""
    (of_layers,) = [tuple(t.count) for t in model_memory(study) if t.name == "layer input"]
    kept = [t for t in model_memory(study) if t.per_micro_batch and tuple(t.count) == of_layers]
    return sum(t.bytes_ for t in kept)


def gpt(study_of: StudyOf, layout: str = "tp = 1", training: str = CLASSIC) -> Study:
    return study_of("gpt3_175b", layout=f"{layout}, vocabulary_multiple = 128", training=training)


s, h, a = 2048, 12_288, 96


def test_a_classic_layer_of_gpt_3_keeps_sbh_times_34_and_5as_over_h(study_of: StudyOf) -> None:
    found = layer(gpt(study_of))
    assert found == s * h * (34 + 5 * a * s / h) == 2_868_903_936
    assert 96 * found == pytest.approx(275.4e9, rel=1e-4)


@pytest.mark.parametrize("t", [2, 4, 8])
def test_tensor_parallelism_alone_leaves_ten_parts_whole(study_of: StudyOf, t: int) -> None:
    found = layer(gpt(study_of, f"tp = {t}"))
    assert found == s * h * (10 + 24 / t + 5 * a * s / (h * t))


@pytest.mark.parametrize("t", [2, 4, 8])
def test_sequence_parallelism_divides_all_of_it(study_of: StudyOf, t: int) -> None:
    found = layer(gpt(study_of, f"tp = {t}, sequence_parallel = on"))
    assert found == s * h / t * (34 + 5 * a * s / h)


def test_selective_recomputation_drops_the_scores(study_of: StudyOf) -> None:
    study = gpt(study_of, "tp = 8, sequence_parallel = on", f"{CLASSIC}, recompute = selective")
    assert layer(study) == s * h * 34 / 8
    assert layer(study) == pytest.approx(106.95e6, rel=1e-4)
    # the scores of the one layer that is being recomputed
    (backward,) = {t.moments for t in model_memory(study) if t.once_per_device}
    assert tuple(backward) == ("backward", "end_of_backward")
    again = sum(t.bytes_ for t in model_memory(study) if t.once_per_device)
    assert again == 5 * a * s * s / 8


def test_flash_attention_keeps_a_statistic_per_head_and_token(study_of: StudyOf) -> None:
    study = gpt(study_of, "tp = 8, sequence_parallel = on", "dropout = on")
    assert layer(study) == (s * h * 34 + 4 * a * s) / 8


def test_the_first_stage_of_gpt_3_as_megatron_lm_estimates_it(study_of: StudyOf) -> None:
    # 16 micro-batches in flight; the estimator divides token ids by tp as well: 8 s b
    study = study_of(
        "gpt3_175b",
        layout="tp = 8, pp = 16, sequence_parallel = on, vocabulary_multiple = 128",
        training=f"{CLASSIC}, recompute = selective",
        devices=128,
    )
    alive = {t.name: 16 * t.bytes_ * t.count[0] for t in model_memory(study) if t.per_micro_batch}
    ids = alive["token ids"]
    assert ids == 16 * 8 * s
    assert (sum(alive.values()) - ids + ids / 8) / 2**20 == 9840.03125


def test_a_modern_layer_of_llama_3_70b(study_of: StudyOf) -> None:
    study = study_of("llama3_70b", layout="tp = 8, sequence_parallel = on", sequence=8192)
    assert 8 * layer(study) / 8192 == 274_688
    assert layer(study) == 281_280_512


def test_without_sequence_parallelism_a_modern_layer_keeps_8h_whole(study_of: StudyOf) -> None:
    study = study_of("llama3_70b", layout="tp = 8", sequence=8192)
    assert layer(study) == 8192 * (8 * 8192 + (274_688 - 8 * 8192) / 8)


def test_a_plain_mlp_keeps_two_tensors_of_its_width(study_of: StudyOf) -> None:
    model = """model m {
      layers = 2, hidden = 64, heads = 4, ffn = 100, vocabulary = 10, gated = off
    }"""
    # 8 h in the residual stream, Q, K, V, O, statistics, and 2 f + 2 f
    assert layer(study_of(model)) == 2048 * (8 * 64 + 8 * 64 + 4 * 4 + 4 * 100)


def test_every_saved_tensor_has_its_own_name_and_formula(study_of: StudyOf) -> None:
    study = study_of("llama3_70b", layout="tp = 8, sequence_parallel = on")
    kept = [t for t in model_memory(study) if t.per_micro_batch]
    assert {t.name for t in kept} == {
        "layer input",
        "attention input",
        "queries",
        "keys",
        "values",
        "softmax statistics",
        "attention output",
        "MLP norm input",
        "MLP input",
        "MLP gate and up",
        "MLP activation",
        "token ids",
        "final norm input",
        "head input",
        "loss softmax",
    }
    for term in kept:
        symbols = set(term.formula.text.replace("/", " ").split()) - {"2", "4", "8"}
        assert symbols <= set(term.formula.inputs), term.name


def term_bytes(term: Memory) -> float:
    """The bytes that a formula such as ``2 s b f e / t`` says."""
    found, sign = 1.0, 1
    for symbol in term.formula.text.split():
        if symbol == "/":
            sign = -1
        else:
            value = float(symbol) if symbol.isdigit() else term.formula.inputs[symbol][0]
            found *= value**sign
            sign = 1
    return found


@try_each("recompute", ["none", "selective", "full"])
@try_each("sequence_parallel", ["on", "off"])
def test_formulas_say_what_the_bytes_are(
    study_of: StudyOf, recompute: str, sequence_parallel: str
) -> None:
    study = gpt(
        study_of,
        f"tp = 8, sequence_parallel = {sequence_parallel}",
        f"{CLASSIC}, micro_batch = 2, recompute = {recompute}",
    )
    for term in model_memory(study):
        assert term.bytes_ == pytest.approx(term_bytes(term), rel=1e-12), term.name


@pytest.mark.parametrize(("sequence_parallel", "shards"), [("off", 1), ("on", 8)])
def test_full_recomputation_keeps_the_layers_input_and_makes_one_layer_again(
    study_of: StudyOf, sequence_parallel: str, shards: int
) -> None:
    layout = f"tp = 8, sequence_parallel = {sequence_parallel}"
    study, whole = (
        gpt(study_of, layout, f"{CLASSIC}, recompute = {how}") for how in ("full", "none")
    )
    assert layer(study) == 2 * s * h / shards
    again = [t for t in model_memory(study) if t.once_per_device]
    backward = ("backward", "end_of_backward")
    assert all(tuple(t.moments) == backward and tuple(t.count) == (1,) for t in again)
    assert layer(study) + sum(t.bytes_ for t in again) == layer(whole)


def test_a_stage_without_layers_recomputes_none(study_of: StudyOf) -> None:
    study = study_of(
        "llama3_8b",
        layout="pp = 2",
        training="recompute = full",
        extra="schedule { stages = [32, 0] }",
    )
    assert {tuple(t.count) for t in model_memory(study) if t.once_per_device} == {(1, 0)}


def test_more_recomputation_never_keeps_more(study_of: StudyOf) -> None:
    one_layer = """model m {
      layers = 1, hidden = 1024, heads = 8, ffn = 4096, vocabulary = 1000, gated = off
    }"""

    def most(how: str) -> float:
        study = study_of(one_layer, training=f"{CLASSIC}, recompute = {how}")
        return sum(t.bytes_ for t in model_memory(study) if "backward" in t.moments)

    assert most("full") <= most("selective") <= most("none")


def test_logits_take_six_bytes_at_the_loss(study_of: StudyOf) -> None:
    study = study_of("llama3_70b", layout="tp = 8, sequence_parallel = on", sequence=8192)
    names = {"loss softmax", "logits gradient"}
    held = sum(t.bytes_ for t in model_memory(study) if t.name in names and "loss" in t.moments)
    assert held == 6 * 8192 * 128_256 / 8
    assert held == pytest.approx(0.788e9, rel=1e-3)


def test_the_ends_are_on_the_end_stages(study_of: StudyOf) -> None:
    study = gpt(study_of, "tp = 8, pp = 4, sequence_parallel = on")
    ends = {t.name: (t.bytes_, tuple(t.count)) for t in model_memory(study) if sum(t.count) == 1}
    first, last = (1, 0, 0, 0), (0, 0, 0, 1)
    assert ends["token ids"] == (8 * s, first)
    assert ends["embedding dropout mask"] == (s * h / 8, first)
    assert ends["final norm input"] == ends["head input"] == (2 * s * h / 8, last)


def test_saved_tensors_follow_the_recipe_and_masks_do_not(study_of: StudyOf) -> None:
    wide = gpt_in(study_of, "activation = 4 B")
    half = gpt_in(study_of, "activation = 2 B")
    masks = s * h * 2 + a * s * s
    assert layer(wide) - masks == 2 * (layer(half) - masks)


def gpt_in(study_of: StudyOf, recipe: str) -> Study:
    return study_of(
        "gpt3_175b",
        training=f"{CLASSIC}, precision = own",
        extra=f"precision own extends bf16 {{ {recipe} }}",
    )


def test_weight_gradients_that_wait_hold_32_of_34_and_no_scores(study_of: StudyOf) -> None:
    # Qi et al. 2023 (zero bubble), section 2.2: 32 s b h of s b h (34 + 5 a s / h)
    study = gpt(study_of)
    (of_layers,) = [tuple(t.count) for t in model_memory(study) if t.name == "layer input"]
    kept = [t for t in model_memory(study) if t.per_micro_batch and tuple(t.count) == of_layers]
    assert sum(t.bytes_ * (1 - t.freed_at_b) for t in kept) == 32 * s * h


def test_a_loss_in_chunks_holds_one_of_them(study_of: StudyOf) -> None:
    study = study_of("llama3_70b", sequence=8192, training="loss_chunks = 8")
    found = {t.name: t for t in model_memory(study) if "logits" in t.name or "softmax" in t.name}
    del found["softmax statistics"]
    assert {name: term.bytes_ for name, term in found.items()} == {
        "logits": 2 * 8192 * 128_256 / 8,
        "loss softmax": 4 * 8192 * 128_256 / 8,
    }
    assert not any(term.per_micro_batch for term in found.values())
    assert {tuple(term.moments) for term in found.values()} == {("loss",)}
