"""Mixtures of experts and latent attention: parameters, FLOPs, shapes and memory."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from parcost import Study, Work
from parcost_plugins.vocabulary import Gemm, Layout, Stream, Training

from ..evaluation import model_memory
from ..rows import try_each

StudyOf = Callable[..., Study]

BALANCED = "routing { distribution = balanced }"


def kept_bytes(study: Study, *, of: tuple[int, ...]) -> dict[str, float]:
    """Bytes that one layer of a kind keeps for a micro-batch, by tensor."""
    return {
        t.name: t.bytes_ for t in model_memory(study) if t.per_micro_batch and tuple(t.count) == of
    }


def forward_flops(study: Study, kind: str) -> float:
    return sum(f.per_token for f in study.flops if f.kind == kind)


def shapes(study: Study) -> dict[str, tuple[float, float, float, float]]:
    return {
        op.name: (op.batch, op.m, op.n, op.k)
        for op in study.operators
        if isinstance(op, Gemm) and op.pass_ == "F"
    }


def test_deepseek_v3_takes_250_gflop_per_token(study_of: StudyOf) -> None:
    study = study_of("deepseek_v3", sequence=4096)
    per_token = 3 * (forward_flops(study, "matmul") + forward_flops(study, "attention"))
    assert per_token == pytest.approx(2.504499e11, rel=1e-6)


def test_mixtral_multiplies_its_active_matrices(study_of: StudyOf) -> None:
    h, f, kv = 4096, 14_336, 1024
    layer = 2 * h * h + 2 * h * kv + 8 * h + 2 * 3 * h * f
    assert forward_flops(study_of("mixtral_8x7b"), "matmul") == 2 * (32 * layer + 32_000 * h)


def test_a_further_token_takes_another_layer_a_projection_and_the_head(study_of: StudyOf) -> None:
    without, with_ = (study_of(m, sequence=4096) for m in ("deepseek_v3", "deepseek_v3_mtp"))
    h, a, V = 7168, 128, 129_280
    latent = h * (1536 + 512 + 64) + 1536 * a * 192 + 512 * a * 256 + a * 128 * h
    mixture = 256 * h + 3 * h * (8 * 2048 + 2048)
    more = forward_flops(with_, "matmul") - forward_flops(without, "matmul")
    assert more == 2 * (latent + mixture + 2 * h * h + V * h)
    attention = forward_flops(with_, "attention") / forward_flops(without, "attention")
    assert attention == pytest.approx(62 / 61)


LAYOUTS = [
    "tp = 1",
    "tp = 4, sequence_parallel = on",
    "ep = 8",
    "tp = 2, ep = 4, etp = 2, sequence_parallel = on",
    "tp = 4, pp = 2, ep = 16, sequence_parallel = on",
    "pp = 4, ep = 4",
]


@pytest.mark.parametrize("model", ["mixtral_8x7b", "deepseek_v2", "qwen15_moe_a2_7b"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_parameters_of_all_ranks_add_up_to_the_model(
    study_of: StudyOf, model: str, layout: str
) -> None:
    if "ep = 16" in layout and model != "deepseek_v2":
        pytest.skip("as many experts do not divide")
    degrees = dict(part.split(" = ") for part in layout.split(", ") if "on" not in part)
    tp, ep, etp = (int(degrees.get(name, 1)) for name in ("tp", "ep", "etp"))
    whole = sum(p.total * sum(p.count) for p in study_of(model).parameters)
    found = 0.0
    for held in study_of(model, layout=layout).parameters:
        copies = ep * etp if held.expert else 1 if held.replicated else tp
        found += held.elements * sum(held.count) * copies
    assert found == whole


def test_experts_run_as_one_grouped_product_with_the_tokens_of_all_ranks(
    study_of: StudyOf,
) -> None:
    # 64 devices: 8 ranks share the experts, each has 4096 tokens for 8 of 256
    found = shapes(study_of("deepseek_v3", layout="ep = 8", sequence=4096, extra=BALANCED))
    tokens = 4096 * 8 * 8 / 256
    assert found["routed experts, up"] == (32, tokens, 2 * 2048, 7168)
    assert found["routed experts, down"] == (32, tokens, 7168, 2048)
    assert found["router"] == (1, 4096, 256, 7168)
    assert found["shared experts, up"] == (1, 4096, 4096, 7168)


def test_experts_cut_into_parts_see_the_tokens_of_every_rank_that_holds_one(
    study_of: StudyOf,
) -> None:
    found = shapes(
        study_of(
            "mixtral_8x7b",
            layout="tp = 4, ep = 2, etp = 4, sequence_parallel = on",
            sequence=4096,
            extra=BALANCED,
        )
    )
    # a rank routes 1024 tokens; 8 ranks share one set of experts
    assert found["router"][1] == 1024
    assert found["routed experts, up"] == (4, 1024 * 8 * 2 / 8, 2 * 14_336 / 4, 4096)


def test_the_latent_projections_have_the_shapes_of_the_paper(study_of: StudyOf) -> None:
    found = shapes(study_of("deepseek_v3", layout="tp = 4, sequence_parallel = on"))
    M = 2048
    assert found["MLA query down projection"] == (1, M / 4, 1536, 7168)  # its own tokens
    assert found["MLA query up projection"] == (1, M, 128 * 192 / 4, 1536)
    assert found["MLA KV down projection"] == (1, M / 4, 576, 7168)
    assert found["MLA KV up projection"] == (1, M, 128 * 256 / 4, 512)
    assert found["attention output projection"] == (1, M, 7168, 128 * 128 / 4)


def test_products_over_the_ranks_add_up_to_the_definition(study_of: StudyOf) -> None:
    layout = "tp = 2, ep = 4, etp = 2, sequence_parallel = on"
    study = study_of("mixtral_8x7b", layout=layout, extra=BALANCED)
    run = sum(
        op.flops * sum(op.count) for op in study.operators if type(op) is Gemm and op.pass_ == "F"
    )
    assert 2 * run / 2048 == pytest.approx(forward_flops(study, "matmul"), rel=1e-12)


def test_the_roles_tell_what_runs_in_low_precision(study_of: StudyOf) -> None:
    roles = {op.name: op.role for op in study_of("deepseek_v3").operators if isinstance(op, Gemm)}
    assert roles["router"] == "router"
    assert roles["routed experts, up"] == roles["routed experts, down"] == "expert"
    assert roles["head"] == "head"
    assert roles["shared experts, up"] == roles["MLA KV up projection"] == "linear"


@pytest.mark.parametrize(
    ("router_weights", "bytes_"),
    # The paper's count has the output of the 8 experts: 8 x 7168 x 2 bytes. A weight that is
    # multiplied within the expert leaves no use for it; one on its input keeps that twice.
    [("output", 356_352), ("activation", 241_664), ("input", 356_352)],
)
def test_a_mixture_keeps_so_many_bytes_per_token(
    study_of: StudyOf, router_weights: str, bytes_: float
) -> None:
    extra = BALANCED + f"\nframework own {{ router_weights = {router_weights} }}"
    study = study_of("deepseek_v3", layout="pp = 61", devices=61, sequence=4096, extra=extra)
    of = (0, 0, 0, *[1] * 58)
    assert sum(kept_bytes(study, of=of).values()) / 4096 == bytes_


def test_an_uneven_load_is_kept_by_the_busiest_rank(study_of: StudyOf) -> None:
    h, f = 7168, 2048
    even, uneven = (
        kept_bytes(
            study_of(
                "deepseek_v3",
                layout="pp = 61",
                devices=61,
                extra=f"routing {{ imbalance = {lam} }}",
            ),
            of=(0, 0, 0, *[1] * 58),
        )
        for lam in (1, 1.5)
    )
    more = (sum(uneven.values()) - sum(even.values())) / 2048
    assert more == 0.5 * 8 * (2 * h + 6 * f)


def test_latent_attention_keeps_its_waist_and_its_heads(study_of: StudyOf) -> None:
    study = study_of("deepseek_v3", layout="pp = 61", devices=61)
    found = kept_bytes(study, of=(1,) * 61)
    a = 128
    heads = 2 * a * (192 + 192 + 128 + 128) + 4 * a
    waist = 2 * (1536 + 576) + 2 * (1536 + 512)  # inputs of the norms, and what they make
    residual = 2 * 7168 * 3  # the layer's input, the normed one, and the MLP norm's input
    assert sum(found.values()) / 2048 == heads + waist + residual


def test_projecting_up_again_drops_queries_keys_and_values(study_of: StudyOf) -> None:
    study = study_of("deepseek_v3", extra="recompute { up_projection = on }")
    whole = study_of("deepseek_v3")
    gone = set(kept_bytes(whole, of=(61,))) - set(kept_bytes(study, of=(61,)))
    normed = {"compressed queries, normed", "compressed keys and values, normed"}
    assert gone == {"queries", "keys", "values"} | normed
    again = {op.name for op in study.operators if op.pass_ == "R"}
    assert again == {
        "MLA norms",
        "MLA query up projection",
        "MLA KV up projection",
        "rotary embedding",
        "keys and values, split",
    }


def test_keys_and_values_of_latent_attention_are_copied_apart(study_of: StudyOf) -> None:
    """A head's 128 + 128 elements are read, and a key of 192 and a value of 128 written."""
    study = study_of("deepseek_v3")
    moved = {op.pass_: op.bytes_ for op in study.operators if op.name == "keys and values, split"}
    ranks = study[Layout].tp
    tokens = study[Training].sequence * study[Training].micro_batch
    heads = 2 * tokens * 128 / ranks * (128 + 128 + 192 + 128)
    assert moved == {"F": pytest.approx(heads), "B": pytest.approx(heads)}


def test_recomputed_mixtures_run_everything_in_them_again(study_of: StudyOf) -> None:
    study = study_of("mixtral_8x7b", extra="recompute { moe = on }")
    again = {op.name for op in study.operators if op.pass_ == "R"}
    assert again == {
        "router",
        "router probabilities",
        "token permutation",
        "sorting of routed tokens",
        "token unpermutation",
        "routed experts, up",
        "activation of routed experts",
        "routed experts, down",
    }
    assert not [
        name for name in kept_bytes(study, of=(32,)) if "routed" in name or "router" in name
    ]


@pytest.mark.parametrize(
    ("module", "gone", "bytes_per_token", "run"),
    [
        ("norms", {"attention input", "MLP input"}, 4 * 8192, {"layer norms"}),
        ("activation", {"MLP activation"}, 2 * 28_672, {"MLP activation"}),
        (
            "mlp",
            {"MLP gate and up", "MLP activation"},
            6 * 28_672,
            {"MLP gate and up projection", "MLP activation", "MLP down projection"},
        ),
    ],
)
def test_a_part_that_is_made_again_is_neither_kept_nor_free(
    study_of: StudyOf, module: str, gone: set[str], bytes_per_token: float, run: set[str]
) -> None:
    study = study_of("llama3_70b", extra=f"recompute {{ {module} = on }}")
    whole = kept_bytes(study_of("llama3_70b"), of=(80,))
    found = kept_bytes(study, of=(80,))
    assert set(whole) - set(found) == gone
    assert (sum(whole.values()) - sum(found.values())) / 2048 == bytes_per_token
    assert {op.name for op in study.operators if op.pass_ == "R"} == run
    held = [t for t in model_memory(study) if t.once_per_device]
    assert {t.name for t in held} == {f"{name}, recomputed" for name in gone}


def test_recomputing_every_second_layer_costs_half_and_keeps_half(study_of: StudyOf) -> None:
    def measure(extra: str) -> tuple[float, float]:
        study = study_of("llama3_70b", training="recompute = full", extra=extra)
        again = sum(op.flops * sum(op.count) for op in study.operators if op.pass_ == "R")
        return again, sum(t.bytes_ * sum(t.count) for t in model_memory(study) if t.per_micro_batch)

    all_again, least = measure("")
    half_again, half = measure("recompute { every = 2 }")
    most = measure("recompute { every = 1000 }")[1]  # the first layer alone
    assert half_again == all_again / 2
    assert half - least == pytest.approx((most - least) * 40 / 79, rel=1e-12)


def test_copies_of_tokens_are_read_and_written(study_of: StudyOf) -> None:
    # Two experts of eight for a token of 4096 elements in bf16.
    def transfers(permutation: str) -> dict[tuple[str, str], float]:
        study = study_of(
            "mixtral_8x7b",
            training="framework = own",
            extra=f"""
            routing {{ distribution = balanced }}
            use catalog.frameworks.generic
            framework own extends generic {{ permutation = {permutation} }}
            """,
        )
        return {
            (op.name, op.pass_): op.bytes_ / (2048 * 2 * 4096 * 2)  # in copies
            for op in study.operators
            if isinstance(op, Stream)
        }

    eager, fused = transfers("eager"), transfers("fused")
    # Each copy is read and written; where they are added up, a sum of zeros is made for each
    # token, which is read and written for each copy. Backward is the other way round.
    assert eager["token permutation", "F"] == eager["token unpermutation", "B"] == 2
    assert eager["token permutation", "B"] == eager["token unpermutation", "F"] == 3.5
    # All eight experts are here, and their tokens are put in order and back.
    assert eager["sorting of routed tokens", "F"] == eager["sorting of routed tokens", "B"] == 4
    for name in ("token permutation", "token unpermutation"):
        assert fused[name, "F"] == fused[name, "B"] == 1.5  # a token for two copies


def test_tokens_of_one_expert_need_no_order(study_of: StudyOf) -> None:
    study = study_of("mixtral_8x7b", layout="ep = 8")
    found = [op for op in study.operators if op.name == "sorting of routed tokens"]
    assert {op.pass_ for op in found} == {"F", "B"}
    assert all(op.bytes_ == 0 and op.kernels == 0 for op in found)  # type: ignore[union-attr]


@pytest.mark.parametrize("layout", ["ep = [1, 2, 4, 8]", "tp = [1, 2, 4], sequence_parallel = on"])
def test_a_sweep_over_degrees_equals_its_points(study_of: StudyOf, layout: str) -> None:
    name, values = layout[:2], [1, 2, 4]
    rest = ", sequence_parallel = on" if name == "tp" else ""
    swept = study_of("mixtral_8x7b", layout=layout)
    for index, value in enumerate(values):
        point = study_of("mixtral_8x7b", layout=f"{name} = {value}{rest}")
        for many, one in zip(swept.parameters, point.parameters, strict=True):
            elements = many.elements
            assert (
                elements if isinstance(elements, float) else elements.flat[index]
            ) == one.elements
        for many, one in zip(swept.operators, point.operators, strict=True):
            flops = many.flops
            found = flops if isinstance(flops, float) else flops.flat[index]
            assert found == pytest.approx(one.flops, rel=1e-12), one.name


@try_each(
    "routing, padding",
    [
        ("distribution = balanced", 1.0),
        ("distribution = measured, loads = [200, 100, 100, 100, 100, 100, 100, 100]", 1.0),
        ("imbalance = 3.0", 1.0),
        ("imbalance = 3.0, capacity_factor = 1.25", 1.25),
    ],
)
def test_all_ranks_together_execute_what_the_tokens_ask_for(
    study_of: StudyOf, routing: str, padding: float
) -> None:
    """The time is that of the busiest rank; its work is not everyone's. Padding is."""
    extra = f"routing {{ {routing} }}"
    study = study_of("mixtral_8x7b", layout="ep = 8", sequence=4096, extra=extra)
    executed = sum(
        work.flops * sum(work.count)
        for _, work in study.contributions("terms")
        if isinstance(work, Work) and work.name.startswith("routed experts") and work.flops
    )
    of_a_rank = 3 * 32 * (4096 * 2) * 2 * 3 * 4096 * 14_336
    assert executed == pytest.approx(padding * of_a_rank)
