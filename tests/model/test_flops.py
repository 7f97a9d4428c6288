"""FLOPs by definition against published formulas, and against what the ranks run."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from parcost import Study
from parcost_plugins.vocabulary import FusedAttention, Gemm

from ..rows import try_each

StudyOf = Callable[..., Study]


def forward_flops(study: Study, kind: str) -> float:
    return sum(f.per_token for f in study.flops if f.kind == kind)


def executed_flops(study: Study, passes: str, *, core: bool = True) -> float:
    """FLOPs of one micro-batch on one rank, over all virtual stages."""
    return sum(
        op.flops * sum(op.count)
        for op in study.operators
        if op.pass_ in passes and (core or isinstance(op, Gemm))
    )


def test_llama_31_405b_takes_2524_gflop_per_token(study_of: StudyOf) -> None:
    study = study_of("llama31_405b", sequence=8192)
    per_token = 3 * (forward_flops(study, "matmul") + forward_flops(study, "attention"))
    assert per_token == pytest.approx(2.523956e12, rel=1e-6)
    assert per_token / (6 * 405_853_388_800) == pytest.approx(1.0365, abs=5e-5)


def test_the_formula_of_narayanan_2021_is_four_layer_and_three_head_passes(
    study_of: StudyOf,
) -> None:
    # 96 B s L h^2 (1 + s / 6h + V / 16Lh): full recomputation, attention not halved
    study = study_of("gpt3_175b")
    L, h, s, V = 96, 12_288, 2048, 50_257
    head = next(f.per_token for f in study.flops if f.name == "head")
    layers = forward_flops(study, "matmul") - head + 2 * forward_flops(study, "attention")
    expected = 96 * L * h**2 * (1 + s / (6 * h) + V / (16 * L * h))
    assert 4 * layers + 3 * head == pytest.approx(expected, rel=1e-12)


def test_attention_is_half_of_what_the_palm_paper_counts(study_of: StudyOf) -> None:
    # its 12 L H Q T does not halve for causality
    study = study_of("llama3_70b", sequence=8192)
    assert 3 * forward_flops(study, "attention") == 12 * 80 * 64 * 128 * 8192 / 2


def test_a_tied_head_multiplies_as_well(study_of: StudyOf) -> None:
    study = study_of("gpt2_small")
    layer = 12 * 768**2
    assert forward_flops(study, "matmul") == 2 * (12 * layer + 50_257 * 768)


@try_each("tp", [1, 2, 4, 8])
@try_each("model", ["gpt3_175b", "llama2_7b", "llama3_70b"])
def test_products_over_the_ranks_add_up_to_the_definition(
    study_of: StudyOf, model: str, tp: int
) -> None:
    multiple = 1 if tp == 1 else 128  # GPT-3's vocabulary does not divide
    study = study_of(
        model,
        layout=f"tp = {tp}, vocabulary_multiple = {multiple}",
        training="micro_batch = 2",
    )
    tokens, padding = 2 * 2048, study_padding(study)
    for passes in "FBW":
        run = tp * executed_flops(study, passes, core=False) / tokens
        assert run == pytest.approx(forward_flops(study, "matmul") + padding, rel=1e-12)


def study_padding(study: Study) -> float:
    (held,) = [p for p in study.parameters if p.name == "embedding"]
    (group,) = {round(p.total / p.elements) for p in study.parameters if p.name == "QKV projection"}
    return 2 * (group * held.elements - held.total)


@try_each("tp", [1, 2, 4, 8])
def test_the_fused_core_runs_the_causal_half_and_five_halves_of_it_backward(
    study_of: StudyOf, tp: int
) -> None:
    study = study_of("llama3_70b", layout=f"tp = {tp}")
    core = {op.pass_: op.flops * sum(op.count) for op in study.operators if is_core(op)}
    assert tp * core["F"] / 2048 == pytest.approx(forward_flops(study, "attention"), rel=1e-12)
    assert core["B"] == 2.5 * core["F"]


def is_core(operator: object) -> bool:
    return isinstance(operator, FusedAttention)


def test_the_unfused_core_computes_what_is_masked_too(study_of: StudyOf) -> None:
    study = study_of("llama3_70b", layout="tp = 8", training="flash_attention = off")
    core = {
        passes: sum(
            op.flops * sum(op.count)
            for op in study.operators
            if isinstance(op, Gemm) and op.batch > 1 and op.pass_ == passes
        )
        for passes in "FBW"
    }
    assert 8 * core["F"] / 2048 == pytest.approx(2 * forward_flops(study, "attention"), rel=1e-12)
    assert core["B"] == 2 * core["F"]
    assert core["W"] == 0


def test_doubling_the_micro_batch_doubles_the_flops(study_of: StudyOf) -> None:
    one, two = (study_of("llama3_8b", training=f"micro_batch = {b}") for b in (1, 2))
    assert executed_flops(two, "FBW") == 2 * executed_flops(one, "FBW")


def test_full_recomputation_of_llama_2_7b_executes_a_third_more(study_of: StudyOf) -> None:
    study = study_of("llama2_7b", sequence=4096, training="recompute = full")
    asked = 3 * (forward_flops(study, "matmul") + forward_flops(study, "attention")) * 4096
    again = executed_flops(study, "R")
    assert 1 + again / asked == pytest.approx(1.3272, abs=5e-5)
    head = next(f.per_token for f in study.flops if f.name == "head")
    layers = forward_flops(study, "matmul") - head + forward_flops(study, "attention")
    assert again == pytest.approx(layers * 4096, rel=1e-12)


def test_selective_recomputation_adds_the_core(study_of: StudyOf) -> None:
    study = study_of(
        "llama2_7b", sequence=4096, training="recompute = selective, flash_attention = off"
    )
    asked = 3 * (forward_flops(study, "matmul") + forward_flops(study, "attention"))
    core = forward_flops(study, "attention")
    assert 1 + core / asked == pytest.approx(1.0251, abs=5e-5)
    # by definition; separate kernels run the masked half as well
    assert executed_flops(study, "R") == pytest.approx(2 * core * 4096, rel=1e-12)


def test_a_fused_core_has_nothing_left_to_recompute_selectively(study_of: StudyOf) -> None:
    none, selective = (
        study_of("llama2_7b", training=f"recompute = {how}") for how in ("none", "selective")
    )
    assert executed_flops(selective, "FRBW") == executed_flops(none, "FRBW")
    assert executed_flops(selective, "R") == 0
