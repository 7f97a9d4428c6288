"""The operators of a rank: shapes of matrix products, bytes of the others."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from parcost import Study
from parcost_plugins.vocabulary import Gemm, Stream, Training

from ..rows import try_each

StudyOf = Callable[..., Study]

M = 2048  # tokens of a micro-batch


def shapes(study: Study) -> dict[tuple[str, str], tuple[float, float, float]]:
    return {
        (op.name, op.pass_): (op.m, op.n, op.k) for op in study.operators if isinstance(op, Gemm)
    }


def per_token(study: Study) -> dict[tuple[str, str], float]:
    """Bytes per token of streaming operators, one occurrence each."""
    return {(op.name, op.pass_): op.bytes_ / M for op in study.operators if isinstance(op, Stream)}


def test_products_of_a_grouped_query_gated_layer(study_of: StudyOf) -> None:
    found = shapes(study_of("llama3_70b", layout="tp = 8, sequence_parallel = on"))
    qkv, gate_and_up = (64 + 2 * 8) * 128 / 8, 2 * 28_672 / 8
    assert found["QKV projection", "F"] == (M, qkv, 8192)
    assert found["attention output projection", "F"] == (M, 8192, 1024)
    assert found["MLP gate and up projection", "F"] == (M, gate_and_up, 8192)
    assert found["MLP down projection", "F"] == (M, 8192, 3584)
    assert found["head", "F"] == (M, 16_032, 8192)


def test_products_of_a_multi_head_plain_layer(study_of: StudyOf) -> None:
    found = shapes(study_of("gpt3_175b", layout="tp = 8, vocabulary_multiple = 128"))
    h = 12_288
    assert found["QKV projection", "F"] == (M, 3 * h / 8, h)
    assert found["attention output projection", "F"] == (M, h, h / 8)
    assert found["MLP up projection", "F"] == (M, 4 * h / 8, h)
    assert found["MLP down projection", "F"] == (M, h, 4 * h / 8)
    assert found["head", "F"] == (M, 51_200 / 8, h)  # 50 x 1024 rows


def test_backward_swaps_the_sides_of_every_product(study_of: StudyOf) -> None:
    found = shapes(study_of("llama3_70b", layout="tp = 8"))
    names = {name for name, _ in found}
    assert len(names) == 5
    for name in names:
        m, n, k = found[name, "F"]
        assert found[name, "B"] == (m, k, n)
        assert found[name, "W"] == (n, k, m)


def test_ranks_beyond_the_kv_heads_project_copies_of_them(study_of: StudyOf) -> None:
    found = shapes(study_of("llama3_70b", layout="tp = 16"))
    assert found["QKV projection", "F"] == (M, (64 + 2 * 16) * 128 / 16, 8192)


def test_unfused_attention_multiplies_per_head(study_of: StudyOf) -> None:
    study = study_of(
        "gpt3_175b",
        layout="tp = 8, vocabulary_multiple = 128",
        training="flash_attention = off, micro_batch = 2",
    )
    products = [op for op in study.operators if isinstance(op, Gemm) and op.batch > 1]
    assert {op.batch for op in products} == {2 * 96 / 8}
    assert [(op.m, op.n, op.k) for op in products if op.pass_ == "F"] == [
        (2048, 2048, 128),
        (2048, 128, 2048),
    ]
    assert len([op for op in products if op.pass_ == "B"]) == 4


def test_an_embedding_may_be_a_product_with_one_hot_rows(study_of: StudyOf) -> None:
    # a share of 128,256 / 8 = 16,032 rows of 8192: each token has a row as long as the share
    framework = "framework ours { embedding = product }"
    study = study_of("llama3_70b", layout="tp = 8", extra=framework)
    found, bytes_ = shapes(study), per_token(study)
    assert found["embedding", "F"] == (M, 8192, 16_032)
    assert found["embedding", "W"] == (16_032, 8192, M)
    assert ("embedding", "B") not in found
    assert bytes_["one-hot rows", "F"] == 2 * 16_032
    assert ("embedding", "F") not in bytes_
    (rows,) = [t for _, t in study.contributions("memory") if t.name == "one-hot rows"]
    assert rows.bytes_ == M * 2 * 16_032


def test_ends_stand_on_the_end_stages_and_layers_on_theirs(study_of: StudyOf) -> None:
    study = study_of("llama3_8b", layout="pp = 4", extra="schedule { stages = [7, 9, 9, 7] }")
    counts = {op.name: tuple(op.count) for op in study.operators if op.pass_ == "F"}
    assert counts["QKV projection"] == (7, 9, 9, 7)
    assert counts["layer norms"] == (14, 18, 18, 14)
    assert counts["embedding"] == (1, 0, 0, 0)
    assert counts["head"] == counts["final norm"] == counts["cross entropy"] == (0, 0, 0, 1)


def test_bytes_of_streaming_operators(study_of: StudyOf) -> None:
    # h 8192, 64 heads and 8 KV heads of 128, f 28672, V 128256, in bf16 on 8 ranks
    study = study_of("llama3_70b", layout="tp = 8, sequence_parallel = on")
    found = per_token(study)
    h = 8192 / 8  # sequence parallelism shards it
    assert found == {
        ("embedding", "F"): 4 * 8192,
        ("embedding", "W"): 6 * 8192,
        # the whole table, whatever the tokens are
        ("zero fill of the embedding gradient", "W"): 2 * 128_256 / 8 * 8192 / M,
        ("layer norms", "F"): 4 * h,
        ("layer norms", "B"): 6 * h,
        ("final norm", "F"): 4 * h,
        ("final norm", "B"): 6 * h,
        ("residual additions", "F"): 6 * h,
        ("residual additions", "B"): 6 * h,
        ("rotary embedding", "F"): 4 * (64 + 8) * 128 / 8,
        ("rotary embedding", "B"): 4 * (64 + 8) * 128 / 8,
        ("concatenation of the gradients of queries, keys and values", "B"): 4
        * (64 + 16)
        * 128
        / 8,
        ("MLP activation", "F"): (4 + 2) * 28_672 / 8,
        ("MLP activation", "B"): (6 + 4) * 28_672 / 8,
        # cast, maximum, difference, exponential, sum, quotient; product and cast
        ("cross entropy", "F"): (6 + 4 + 8 + 8 + 4 + 8) * 128_256 / 8,
        ("cross entropy", "B"): (8 + 6) * 128_256 / 8,
    }
    # fp32 twice and bf16, of the whole table, added to the buffer that fused products have
    terms = [term for _, term in study.contributions("terms")]
    (added,) = [term.bytes_ for term in terms if "accumulation" in term.name]
    assert added == 10 * 128_256 / 8 * 8192


def test_gelu_dropout_and_softmax_stream_as_well(study_of: StudyOf) -> None:
    study = study_of(
        "gpt3_175b",
        layout="tp = 8, vocabulary_multiple = 128",
        training="flash_attention = off, dropout = on",
    )
    found = per_token(study)
    h, scores = 12_288, 96 / 8 * 2048
    assert found["MLP activation", "F"] == 4 * 4 * h / 8
    assert found["MLP activation", "B"] == 6 * 4 * h / 8
    assert found["residual dropout", "F"] == h  # the mask, as the addition reads and writes
    assert found["residual dropout", "B"] == 4 * h + h
    assert found["MLP bias gradients", "B"] == 2 * (4 * h / 8 + h)
    assert found["attention bias gradients", "B"] == 2 * (3 * h / 8 + h)
    assert found["softmax", "F"] == 4 * scores
    assert found["softmax", "B"] == 6 * scores
    assert found["attention dropout", "F"] == (4 + 1) * scores
    assert ("rotary embedding", "F") not in found  # positions are learned


def test_without_sequence_parallelism_every_rank_norms_all_tokens(study_of: StudyOf) -> None:
    whole = per_token(study_of("llama3_70b", layout="tp = 8"))
    shard = per_token(study_of("llama3_70b", layout="tp = 8, sequence_parallel = on"))
    for name in ("layer norms", "residual additions", "final norm"):
        assert whole[name, "F"] == 8 * shard[name, "F"]
    assert whole["MLP activation", "F"] == shard["MLP activation", "F"]


def test_bytes_follow_the_recipe(study_of: StudyOf) -> None:
    half = per_token(study_of("llama3_8b"))
    full = per_token(
        study_of(
            "llama3_8b",
            extra="precision wide extends bf16 { activation = 4 B }",
            training="precision = wide",
        )
    )
    assert full["layer norms", "F"] == 2 * half["layer norms", "F"]
    # the loss is in fp32 whatever the recipe
    assert full["cross entropy", "F"] - half["cross entropy", "F"] == 2 * 128_256


@pytest.mark.parametrize("flash", ["on", "off"])
def test_full_recomputation_runs_the_layers_forward_once_more(
    study_of: StudyOf, flash: str
) -> None:
    study = study_of("llama3_8b", training=f"recompute = full, flash_attention = {flash}")
    ends = {"embedding", "head", "final norm", "cross entropy"}
    forward = {op.name for op in study.operators if op.pass_ == "F"}
    assert {op.name for op in study.operators if op.pass_ == "R"} == forward - ends


OWN, EARLY = "framework own { stops_early = on }", "framework = own, recompute = full"


@pytest.mark.parametrize(
    ("model", "more", "last"),
    [
        ("llama3_8b", "", 0),
        ("llama3_8b", ", dropout = on", 1),  # its mask is of that tensor
        ("gemma3_27b_text", "", 1),  # a norm behind the MLP reads it
    ],
)
def test_recomputation_that_stops_early_makes_no_more_than_backward_reads(
    study_of: StudyOf, model: str, more: str, last: int
) -> None:
    """The down projection of a layer runs again only where something behind it is read."""
    study = study_of(model, extra=OWN, training=f"{EARLY}{more}")
    again = {op.name: sum(op.count) for op in study.operators if op.pass_ == "R"}
    layers = study[Training].model.layers
    assert again.get("MLP down projection", 0) == last * layers
    assert again["MLP gate and up projection"] == again["attention output projection"] == layers
    assert again["residual additions"] == (1 + last) * layers


@try_each(
    "more, last",
    [
        ("", 0),
        ("recompute { stops_early = off }", 1),  # checkpoints that re-enter autograd
        ("adapters { rank = 8 }", 1),  # an adapter of the down projection runs after it
        ("adapters { rank = 8, down = off }", 0),
    ],
)
def test_a_spec_and_its_adapters_say_where_recomputation_stops(
    study_of: StudyOf, more: str, last: int
) -> None:
    study = study_of("llama3_8b", extra=f"{OWN}\n{more}", training=EARLY)
    again = {op.name: sum(op.count) for op in study.operators if op.pass_ == "R"}
    assert again.get("MLP down projection", 0) == last * 32
    assert again["attention output projection"] == 32


def test_what_is_not_made_again_is_not_reduced_again(study_of: StudyOf) -> None:
    """Of the two pairs of a layer both are gathered for, and one is reduced."""
    layout = "tp = 4, sequence_parallel = on"
    study = study_of("llama3_8b", layout=layout, extra=OWN, training=EARLY)
    terms = [term for _, term in study.contributions("terms") if getattr(term, "pass_", "") == "R"]
    times = {term.name: sum(term.count) for term in terms if term.name.startswith("tensor ")}
    assert times == {"tensor all-gather": 2 * 32, "tensor reduce-scatter": 32}


def test_selective_recomputation_runs_the_unfused_core_once_more(study_of: StudyOf) -> None:
    study = study_of(
        "gpt2_small",
        sequence=1024,
        training="recompute = selective, flash_attention = off, dropout = on",
    )
    assert {op.name for op in study.operators if op.pass_ == "R"} == {
        "attention scores",
        "softmax",
        "attention dropout",
        "attention context",
        "transpose of the attention output",
    }


def test_the_hosts_of_communication_are_named(study_of: StudyOf) -> None:
    hosts = {op.name: op.host for op in study_of("llama3_8b").operators if op.host}
    assert hosts == {
        "QKV projection": "attention, by columns",
        "attention core": "attention core",
        "attention output projection": "attention, by rows",
        "MLP gate and up projection": "MLP, by columns",
        "MLP down projection": "MLP, by rows",
        "head": "head, by columns",
    }


def test_attention_and_mlp_side_by_side_are_one_pair(study_of: StudyOf) -> None:
    study = study_of("palm_8b", layout="tp = 2, sequence_parallel = on")
    hosts = [op.host for op in study.operators if isinstance(op, Gemm) and op.pass_ == "F"]
    assert hosts.count("attention, by rows") == 1
    assert "MLP, by rows" not in hosts


@try_each("model, norms", [("llama3_8b", 2), ("gemma2_2b", 4), ("phi2", 1), ("palm_8b", 1)])
def test_a_layer_runs_the_norms_that_it_has(study_of: StudyOf, model: str, norms: int) -> None:
    study = study_of(model)
    (ran,) = [op for op in study.operators if op.name == "layer norms" and op.pass_ == "F"]
    layers = study[Training].model.layers
    assert sum(ran.count) == norms * layers
