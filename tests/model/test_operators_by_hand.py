"""Bytes, shapes and counts of single operators and tensors, each worked out by hand.

A streaming operator moves each tensor that it reads and each that it writes once. In bf16 an
element has 2 B; what is kept in full precision has 4.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest

from parcost import Memory, Study
from parcost_plugins.vocabulary import FusedAttention, Gemm, Stream

StudyOf = Callable[..., Study]

TOKENS = 2048
BF16, FP32, MASK = 2, 4, 1


def streams(study: Study) -> dict[tuple[str, str], tuple[float, float]]:
    """Bytes per token of a streaming operator, and how often the last stage runs it."""
    return {
        (op.name, op.pass_): (op.bytes_ / TOKENS, op.count[-1])
        for op in study.operators
        if isinstance(op, Stream)
    }


def gemms(study: Study) -> dict[tuple[str, str], Gemm]:
    return {(op.name, op.pass_): op for op in study.operators if isinstance(op, Gemm)}


def memory_terms(study: Study) -> Mapping[str, Memory]:
    return {term.name: term for _, term in study.contributions("memory")}


def check(study: Study, wanted: Mapping[str, tuple[float, float, int]]) -> None:
    """Compare bytes per token forward and backward, and counts, of streaming operators."""
    found = streams(study)
    for name, (forward, backward, count) in wanted.items():
        assert found[name, "F"] == (pytest.approx(forward, rel=1e-12), count), name
        behind = "B" if (name, "B") in found else "W"
        assert found[name, behind] == (pytest.approx(backward, rel=1e-12), count), name


# --- Streaming operators ------------------------------------------------------------------------


def test_streams_of_a_gated_layer_with_its_ends(study_of: StudyOf) -> None:
    h, f, a, k, d, V = 4096, 14_336, 32, 8, 128, 128_256  # Llama 3 8B
    check(
        study_of("llama3_8b"),
        {
            # a row in and out; reads the gradient, and reads and writes the row that it is added to
            "embedding": (2 * h * BF16, 3 * h * BF16, 1),
            # x in, y out; dy and x in, dx out
            "layer norms": (2 * h * BF16, 3 * h * BF16, 64),
            "final norm": (2 * h * BF16, 3 * h * BF16, 1),
            # every query and key head in and out, in both passes
            "rotary embedding": (2 * (a + k) * d * BF16, 2 * (a + k) * d * BF16, 32),
            # gate and up in, product out; dy, gate and up in, both gradients out
            "MLP activation": (3 * f * BF16, 5 * f * BF16, 32),
            # two in, sum out; and two gradients in, their sum out
            "residual additions": (3 * h * BF16, 3 * h * BF16, 64),
            # logits in, fp32 out; maximum; difference, exponential; sum; quotient: in and out
            # where they are no sum. Softmax in, gradient out, in again and out in bf16
            "cross entropy": ((BF16 + 9 * FP32) * V, (BF16 + 3 * FP32) * V, 1),
        },
    )


def test_streams_of_a_layer_of_gpt(study_of: StudyOf) -> None:
    study = study_of("gpt3_175b", training="flash_attention = off, dropout = on")
    h, f, a = 12_288, 49_152, 96
    check(
        study,
        {
            "MLP activation": (2 * f * BF16, 3 * f * BF16, 96),
            # the addition reads and writes the rest of it
            "residual dropout": (MASK * h, (2 * BF16 + MASK) * h, 192),
            "embedding dropout": ((2 * BF16 + MASK) * h, (2 * BF16 + MASK) * h, 1),
            # scores in and out; the gradient and the probabilities in, the gradient out
            "softmax": (2 * TOKENS * a * BF16, 3 * TOKENS * a * BF16, 96),
            "attention dropout": ((2 * BF16 + MASK) * TOKENS * a,) * 2 + (96,),
        },
    )


def test_streams_of_norms_in_unusual_places(study_of: StudyOf) -> None:
    bloom, qwen = 14_336 * BF16, (32 + 8) * 128 * BF16
    check(study_of("bloom_176b"), {"embedding norm": (2 * bloom, 3 * bloom, 1)})
    check(study_of("qwen3_8b"), {"query and key norms": (2 * qwen, 3 * qwen, 36)})


def test_streams_of_a_mixture_with_latent_attention(study_of: StudyOf) -> None:
    h, E, top, shared, moe = 7168, 256, 8, 2048, 58
    check(
        study_of("deepseek_v3", extra="routing { distribution = balanced }"),
        {
            "MLA norms": (2 * (1536 + 512) * BF16, 3 * (1536 + 512) * BF16, 61),
            # 128 query heads and one key part of 64 elements
            "rotary embedding": (2 * 129 * 64 * BF16, 2 * 129 * 64 * BF16, 61),
            "router probabilities": (6 * E * FP32, 7 * E * FP32, moe),
            # a copy in and out; backward each is added to a sum, and the sums are zeros first
            "token permutation": (2 * top * h * BF16, (3 * top + 1) * h * BF16, moe),
            "token unpermutation": ((3 * top + 1) * h * BF16, 2 * top * h * BF16, moe),
            # into the order of the experts and back
            "sorting of routed tokens": (4 * top * h * BF16, 4 * top * h * BF16, moe),
            "activation of shared experts": (3 * shared * BF16, 5 * shared * BF16, moe),
            "activation of routed experts": (3 * top * shared * BF16, 5 * top * shared * BF16, moe),
        },
    )


def test_the_core_of_latent_attention_has_five_products_backward(study_of: StudyOf) -> None:
    cores = {
        op.pass_: op.flops
        for op in study_of("deepseek_v3").operators
        if isinstance(op, FusedAttention)
    }
    met = 2 * 128 * TOKENS * TOKENS / 2  # 2 FLOPs, heads, queries, keys before them
    assert cores["F"] == met * (192 + 128)
    # the scores again and the gradients of queries and keys; those of probabilities and values
    assert cores["B"] == met * (3 * 192 + 2 * 128)


# --- Heads that predict further tokens ----------------------------------------------------------


@pytest.mark.parametrize(("model", "heads"), [("deepseek_v3", 1), ("deepseek_v3_mtp", 2)])
def test_every_head_multiplies_and_keeps(study_of: StudyOf, model: str, heads: int) -> None:
    study = study_of(model, layout="pp = 1")
    h, V = 7168, 129_280
    found = gemms(study)
    for pass_ in ("F", "B", "W"):
        product = found["head", pass_]
        assert product.flops * product.count[0] == heads * 2 * TOKENS * h * V
    assert streams(study)["cross entropy", "F"] == ((BF16 + 9 * FP32) * V, heads)
    for name, each in (("head input", BF16 * h), ("loss softmax", FP32 * V)):
        term = memory_terms(study)[name]
        assert term.bytes_ * term.count[0] == heads * each * TOKENS  # type: ignore[index]
    # one head at a time has its logits in bf16 on the way
    assert memory_terms(study)["logits gradient"].bytes_ == BF16 * V * TOKENS
    assert tuple(memory_terms(study)["logits gradient"].count) == (1,)  # type: ignore[arg-type]


def test_a_prediction_layer_joins_the_stream_with_an_embedding(study_of: StudyOf) -> None:
    study = study_of("deepseek_v3_mtp", layout="tp = 8, sequence_parallel = on")
    h = 7168
    product = gemms(study)["prediction projection", "F"]
    assert (product.m, product.n, product.k, product.count[0]) == (TOKENS, h / 8, 2 * h, 1)
    check(
        study,
        {
            "embedding, for prediction": (2 * h * BF16, 3 * h * BF16, 1),
            # of the stream, of the embedding and ahead of the head, on an eighth of the tokens
            "prediction norms": (2 * h * BF16 / 8, 3 * h * BF16 / 8, 3),
        },
    )
    # inputs of three norms, and the two that are joined
    assert memory_terms(study)["prediction inputs"].bytes_ == 5 * h * BF16 * TOKENS / 8


# --- What backward frees, where weight gradients come later --------------------------------------


@pytest.mark.parametrize(("compute", "wide", "left"), [("bf16", 2, 0.5), ("fp32", 4, 1.0)])
def test_the_gradient_of_the_logits_takes_the_place_of_the_softmax(
    study_of: StudyOf, compute: str, wide: int, left: float
) -> None:
    recipe = f"""precision own extends bf16 {{ activation = {wide} B }}"""
    study = study_of("llama3_8b", training="precision = own", extra=recipe)
    softmax = memory_terms(study)["loss softmax"]
    # W of the head needs that gradient, which has the recipe's elements, and nothing else of it
    assert softmax.bytes_ * (1 - softmax.freed_at_b) == pytest.approx(
        wide * TOKENS * 128_256, rel=1e-12
    )
    assert softmax.freed_at_b == 1 - left, compute


@pytest.mark.slow
def test_nothing_that_no_weight_multiplies_waits_for_its_gradient(study_of: StudyOf) -> None:
    study = study_of("gpt3_175b", training="flash_attention = off, dropout = on")
    freed = {
        name: term.freed_at_b for name, term in memory_terms(study).items() if term.per_micro_batch
    }
    gone = {
        "attention probabilities",
        "attention dropout mask",
        "attention probabilities after dropout",
        "residual dropout masks",
        "embedding dropout mask",
        "final norm input",
    }
    assert {name for name, share in freed.items() if share == 1.0} == gone
    assert {name for name, share in freed.items() if 0.0 < share < 1.0} == {"loss softmax"}
    fused = memory_terms(study_of("llama3_8b"))["softmax statistics"]
    assert fused.freed_at_b == 1.0
    router = memory_terms(study_of("mixtral_8x7b"))["router logits and probabilities"]
    assert router.freed_at_b == 0.5


# --- One layer at a time ------------------------------------------------------------------------


def test_of_dense_and_mixed_layers_the_mixed_one_is_held(study_of: StudyOf) -> None:
    # Whole layers are recomputed one at a time. On a stage with both kinds the mixture is larger.
    study = study_of(
        "deepseek_v3", layout="pp = 2", training="recompute = full",
        extra="schedule { stages = [3, 58] }",
    )  # fmt: skip
    both = study_of("deepseek_v3", training="recompute = full")
    name = "MLP gate and up, recomputed"
    assert tuple(memory_terms(study)[name].count) == (1, 0)  # type: ignore[arg-type]
    assert tuple(memory_terms(both)[name].count) == (0,)  # type: ignore[arg-type]
    mixed = "gate and up of routed experts, recomputed"
    assert tuple(memory_terms(study)[mixed].count) == (0, 1)  # type: ignore[arg-type]
    assert tuple(memory_terms(both)[mixed].count) == (1,)  # type: ignore[arg-type]


@pytest.mark.parametrize(("overlap", "layers"), [("on", 2), ("off", 1)])
def test_offloaded_tensors_pass_the_device(study_of: StudyOf, overlap: str, layers: int) -> None:
    study = study_of("llama3_8b", extra=f"offload {{ activations = 50 %, overlap = {overlap} }}")
    passing = memory_terms(study)["queries, to and from the host"]
    assert passing.bytes_ == 0.5 * 4096 * BF16 * TOKENS
    assert tuple(passing.count) == (layers,)  # type: ignore[arg-type]


def test_a_shared_expert_with_a_gate_has_one_more_output(study_of: StudyOf) -> None:
    h, shared, moe = 2048, 5632, 24  # Qwen1.5-MoE-A2.7B: 60 experts of 1408, 4 for each token
    found = {f.name: f.per_token for f in study_of("qwen15_moe_a2_7b").flops}
    visited = 4 * 1408 + shared
    assert found["mixture of experts"] == 2 * moe * h * (60 + 3 * visited + 1)


def test_a_rank_routes_its_own_tokens(study_of: StudyOf) -> None:
    study = study_of("mixtral_8x7b", layout="tp = 8, sequence_parallel = on")
    router = gemms(study)["router", "F"]
    assert (router.m, router.n, router.k) == (TOKENS / 8, 8, 4096)
