"""Adapters under tensor parallelism and on experts: counts, work, memory and messages by hand.

By the code of Megatron-Bridge (ParallelLinearAdapter) and of mcore-bridge (LoraParallelLinear).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import parcost
from parcost import Once, Study, Work
from parcost_plugins.vocabulary import Gemm
from parcost_plugins.vocabulary.causes import HOST, TENSOR

from ..rows import try_each

StudyOf = Callable[..., Study]

# Llama 3 8B with fused projections, rank 16, two tensor-parallel ranks, 2048 tokens in bf16
L, H, Q, KV, F, R, T, S = 32, 4096, 4096, 1024, 14_336, 16, 2, 2048
QKV, FC1 = Q + 2 * KV, 2 * F
WHOLE = R * ((H + QKV) + (Q + H) + (H + FC1) + (F + H))  # 1,114,112 a layer
#: A beside columns and B beside rows are whole on every rank.
COPIED = R * 4 * H  # 262,144
ONE = COPIED + R * (QKV + Q + FC1 + F) // T  # 688,128
FUSED = "adapters {{ rank = 16, fused = on, split = {} }}"


def terms(study: Study, hook: str, word: str) -> list[Any]:
    return [term for _, term in study.contributions(hook) if word in term.name]


def split_study(study_of: StudyOf, split: str, sharded: str, **named: Any) -> Study:
    layout = f"tp = 2, sequence_parallel = {sharded}"
    return study_of("llama3_8b", layout=layout, extra=FUSED.format(split), **named)


# --- tensor parallelism ------------------------------------------------------------------------


@try_each("split, each, copied", [("both", WHOLE // 2, 0), ("one", ONE, COPIED)])
def test_a_rank_holds_half_of_both_matrices_or_of_one(
    study_of: StudyOf, split: str, each: int, copied: int
) -> None:
    found = [p for p in split_study(study_of, split, "on").parameters if p.adapter]
    assert sum(p.elements * sum(p.count) for p in found) == L * each
    assert sum(p.elements * sum(p.count) for p in found if p.replicated) == L * copied
    assert sum(p.total * sum(p.count) for p in found) == L * WHOLE == 35_651_584


@try_each(
    "split, sharded, work",
    [
        ("both", "on", WHOLE // 2),
        ("both", "off", WHOLE // 2),
        # A beside columns and B beside rows see the tokens of the rank: half of them, or all.
        ("one", "on", WHOLE // 2),
        ("one", "off", ONE),
    ],
)
def test_the_matrix_on_every_rank_multiplies_the_tokens_of_the_rank(
    study_of: StudyOf, split: str, sharded: str, work: int
) -> None:
    study = split_study(study_of, split, sharded)
    for pass_ in "FBW":
        found = sum(
            o.flops * sum(o.count)
            for o in study.operators
            if isinstance(o, Gemm) and o.role == "adapter" and o.pass_ == pass_
        )
        assert found == 2 * S * L * work


WIDE, THIN = S * H * 2, S * R * 2  # bytes of the residual stream, and of an inner activation


def messages(study: Study) -> dict[tuple[str, str], tuple[float, float]]:
    """Return the bytes and the number of the messages in a layer, by collective and pass."""
    found: dict[tuple[str, str], tuple[float, float]] = {}
    for term in terms(study, "terms", "adapter"):
        if isinstance(term, Work) and term.cause is TENSOR:
            name = term.name.removeprefix("adapter ")
            found[name, term.pass_] = (float(term.bytes_), sum(term.count) / L)
    return found


@try_each(
    "split, sharded, expected",
    [
        (
            "both",
            "on",
            {
                ("inner activation all-gather", "F"): (THIN, 2),
                ("inner activation all-reduce", "F"): (THIN, 2),
                ("output all-gather", "F"): (WIDE, 2),
                ("inner activation gradient all-reduce", "B"): (THIN, 4),
                ("output gradient all-gather", "B"): (WIDE, 2),
            },
        ),
        (
            "both",
            "off",
            {
                ("inner activation all-gather", "F"): (THIN, 2),
                ("inner activation all-reduce", "F"): (THIN, 2),
                ("output all-gather", "F"): (WIDE, 2),
                ("inner activation gradient all-reduce", "B"): (THIN, 4),
                ("input gradient all-reduce", "B"): (WIDE, 2),
            },
        ),
        (
            "one",
            "on",
            {
                ("inner activation all-gather", "F"): (THIN, 2),
                ("inner activation reduce-scatter", "F"): (THIN, 2),
                ("saved inner activation all-gather", "B"): (THIN, 2),
                ("inner activation gradient reduce-scatter", "B"): (THIN, 2),
                ("inner activation gradient all-gather", "B"): (THIN, 2),
            },
        ),
        (
            "one",
            "off",
            {
                ("inner activation all-reduce", "F"): (THIN, 2),
                ("inner activation gradient all-reduce", "B"): (THIN, 2),
            },
        ),
    ],
)
def test_messages_of_adapters_follow_the_code_of_the_tools(
    study_of: StudyOf, split: str, sharded: str, expected: dict[tuple[str, str], Any]
) -> None:
    assert messages(split_study(study_of, split, sharded)) == expected


def test_communication_in_chunks_leaves_adapters_to_gather_their_input(study_of: StudyOf) -> None:
    overlap = "overlap { tensor = pipelined }"
    study = study_of(
        "llama3_8b",
        layout="tp = 2, sequence_parallel = on",
        extra=f"{FUSED.format('both')}\n{overlap}",
    )
    found = messages(study)
    assert found["input all-gather", "F"] == (WIDE, 2)
    assert found["input gradient reduce-scatter", "B"] == (WIDE, 2)


def test_an_all_to_all_sends_a_share_of_the_outputs(study_of: StudyOf) -> None:
    found = messages(split_study(study_of, "both, all_to_all = on", "on"))
    assert found["output all-to-all", "F"] == (WIDE / T, 2)
    assert found["output gradient all-to-all", "B"] == (WIDE / T, 2)
    assert ("output all-gather", "F") not in found
    whole = messages(split_study(study_of, "both, all_to_all = on", "off"))
    assert whole == messages(split_study(study_of, "both", "off"))


def test_inputs_that_are_gathered_again_are_saved_as_shards(study_of: StudyOf) -> None:
    plain, again = (split_study(study_of, f"both{more}", "on") for more in ("", ", regather = on"))
    for name in ("attention input", "MLP input"):
        assert (saved_bytes(plain, name), saved_bytes(again, name)) == (WIDE, WIDE / T)
    more = messages(again).items() - messages(plain).items()
    assert dict(more) == {
        ("input all-gather", "F"): (WIDE, 2),
        ("saved input all-gather", "B"): (WIDE, 2),
        ("input gradient reduce-scatter", "B"): (WIDE, 2),
    }
    for off in ("training = recompute", "kernels = graphs"):
        training = "recompute = full" if "recompute" in off else ""
        extra = "" if training else "kernels { cuda_graphs = layer }\n"
        extra += FUSED.format("both, regather = on")
        layout = "tp = 2, sequence_parallel = on"
        study = study_of("llama3_8b", layout=layout, training=training, extra=extra)
        assert ("saved input all-gather", "B") not in messages(study)


def test_the_input_of_qkv_of_a_mixture_takes_1_6_gb_less(study_of: StudyOf) -> None:
    """Qwen3 30B-A3B, tp 4 and ep 4, qkv alone, 8,192 tokens: measured as 1.569 GB less.

    The shard of the norm's output is saved in any case, so that all gathered elements are freed.
    """
    targets = "output = off, gate = off, up = off, down = off"
    kept = [
        saved_bytes(
            study_of(
                "qwen3_30b_a3b",
                layout="tp = 4, ep = 4, sequence_parallel = on",
                sequence=8192,
                training="framework = nemo",
                extra="use catalog.frameworks.nemo\n"
                f"adapters {{ rank = 8, fused = on, split = both, {targets}, {more} }}",
            ),
            "attention ",
        )
        for more in ("regather = off", "regather = on")
    ]
    assert (kept[0] - kept[1]) * L == 48 * 8192 * 2048 * 2


@try_each(
    "targets, layout, attention, mlp",
    [
        # Without adapters the output of the norm is saved; with them it is their input,
        ("query = off, key = off, value = off, gate = off, up = off", "tp = 1", WIDE, WIDE),
        ("", "tp = 1", 0, 0),
        # unless that is gathered or dropped.
        ("", "tp = 2, sequence_parallel = on", WIDE / T, WIDE / T),
        ("dropout = on", "tp = 1", WIDE, WIDE),
        ("gate = off, up = off", "tp = 1", 0, WIDE),
    ],
)
def test_kernels_of_a_norm_and_a_linear_layer_save_the_norm_before_frozen_weights(
    study_of: StudyOf, targets: str, layout: str, attention: float, mlp: float
) -> None:
    study = study_of(
        "llama3_8b",
        layout=layout,
        training="framework = nemo",
        extra=f"use catalog.frameworks.nemo\n{FUSED.format(f'both, {targets}')}",
    )
    assert saved_bytes(study, "attention norm output") == attention
    assert saved_bytes(study, "MLP norm output") == mlp


def test_full_recomputation_repeats_the_messages_of_forward(study_of: StudyOf) -> None:
    found = messages(split_study(study_of, "both", "on", training="recompute = full"))
    assert found["inner activation all-gather", "R"] == (THIN, 2)
    assert found["inner activation all-reduce", "R"] == (THIN, 2)
    assert found["output all-gather", "R"][0] == WIDE


def test_frozen_weights_gather_no_saved_inputs(study_of: StudyOf) -> None:
    study = split_study(study_of, "both", "on")
    for name in ("saved input all-gather", "embedding gradient all-gather", "layer norm gradient"):
        assert not terms(study, "terms", name)
    full = study_of("llama3_8b", layout="tp = 2, sequence_parallel = on")
    for name in ("saved input all-gather", "embedding gradient all-gather", "layer norm gradient"):
        assert terms(full, "terms", name)


@try_each(
    "split, sharded, elements", [("one", "on", L * COPIED), ("both", "on", 0), ("one", "off", 0)]
)
def test_copied_matrices_have_partial_gradients_with_sequence_parallelism(
    study_of: StudyOf, split: str, sharded: str, elements: int
) -> None:
    found = terms(split_study(study_of, split, sharded), "terms", "adapter gradient all-reduce")
    sums = [term for term in found if isinstance(term, Once)]
    assert sum(term.bytes_ for term in sums) == 4 * elements  # in fp32


def saved_bytes(study: Study, word: str) -> float:
    """Return the bytes that a layer saves of the tensors with a *word* in their name."""
    found = terms(study, "memory", word)
    return sum(term.bytes_ * sum(term.count) for term in found if term.per_micro_batch) / L


@try_each(
    "split, sharded, inputs, inner",
    [
        ("both", "on", WIDE, 4 * THIN),  # the gathered input of qkv, as that of fc1
        ("both", "off", WIDE, 4 * THIN),
        ("one", "on", WIDE / 2, 4 * THIN / 2),
        ("one", "off", WIDE, 4 * THIN),
    ],
)
def test_adapters_save_gathered_inputs_or_those_of_the_rank(
    study_of: StudyOf, split: str, sharded: str, inputs: float, inner: float
) -> None:
    study = split_study(study_of, split, sharded)
    assert saved_bytes(study, "attention input") == saved_bytes(study, "MLP input") == inputs
    assert saved_bytes(study, "inner activation") == inner
    assert saved_bytes(study, "MLP activation") == S * F * 2 / 2


@try_each("split, qkv, proj", [("both", S * H, S * Q / 2), ("one", S * H / 2, S * Q / 2)])
def test_a_dropout_saves_its_output_and_a_mask(
    study_of: StudyOf, split: str, qkv: float, proj: float
) -> None:
    extra = FUSED.format(f"{split}, dropout = on")
    study = study_of("llama3_8b", layout="tp = 2, sequence_parallel = on", extra=extra)
    assert saved_bytes(study, "query and key and value, input after dropout") == 3 * qkv
    assert saved_bytes(study, "output, input after dropout") == 3 * proj


@try_each("split", ["both", "one"])
def test_one_rank_alone_exchanges_nothing(study_of: StudyOf, split: str) -> None:
    plain = study_of("llama3_8b", extra="adapters { rank = 16, fused = on }")
    study = study_of("llama3_8b", extra=FUSED.format(split))
    assert not messages(study)
    for found in (plain, study):
        own = [p for p in found.parameters if p.adapter]
        assert sum(p.elements * sum(p.count) for p in own) == L * WHOLE


# --- experts -----------------------------------------------------------------------------------

# Qwen3 30B-A3B: 48 layers, 128 experts of width 768, 8 for each token
MOE, E, TOP, FE, HE = 48, 128, 8, 768, 2048
OF_EXPERT = R * ((HE + 2 * FE) + (FE + HE))  # fc1 and fc2: 102,400
MLP_ONLY = "query = off, key = off, value = off, output = off"


def expert_study(study_of: StudyOf, extra: str, layout: str = "ep = 8") -> Study:
    adapters = f"adapters {{ rank = 16, fused = on, {MLP_ONLY}, {extra} }}"
    return study_of("qwen3_30b_a3b", layout=layout, extra=adapters)


@try_each(
    "experts, held, total",
    [("shared", OF_EXPERT, OF_EXPERT), ("each", E // 8 * OF_EXPERT, E * OF_EXPERT)],
)
def test_experts_share_an_adapter_or_have_one_each(
    study_of: StudyOf, experts: str, held: int, total: int
) -> None:
    study = expert_study(study_of, f"experts = {experts}")
    found = [p for p in study.parameters if p.adapter]
    assert all(p.expert for p in found)
    assert sum(p.elements * sum(p.count) for p in found) == MOE * held
    assert sum(p.total * sum(p.count) for p in found) == MOE * total
    flops = sum(f.per_token for f in study.flops if f.adapter)
    assert flops == 2 * MOE * TOP * OF_EXPERT


@try_each("experts", ["shared", "each"])
def test_adapters_multiply_the_tokens_that_the_experts_receive(
    study_of: StudyOf, experts: str
) -> None:
    study = expert_study(study_of, f"experts = {experts}")
    found = [o for o in study.operators if isinstance(o, Gemm) and o.role == "adapter"]
    for pass_ in "FBW":
        mean = sum(o.mean_flops * sum(o.count) for o in found if o.pass_ == pass_)
        assert mean == pytest.approx(2 * S * TOP * MOE * OF_EXPERT)
    assert {o.batch for o in found} == {1.0 if experts == "shared" else E / 8}


def test_a_rank_of_experts_of_its_own(study_of: StudyOf) -> None:
    found = expert_study(study_of, "experts = shared, expert_rank = 2").parameters
    assert sum(p.elements * sum(p.count) for p in found if p.adapter) == MOE * OF_EXPERT / 8


@try_each(
    "experts, layout, bytes_",
    [
        ("shared", "ep = 8", 4 * MOE * OF_EXPERT),
        ("shared", "ep = 1", 0),
        ("each", "ep = 8", 0),
    ],
)
def test_a_shared_adapter_is_summed_over_the_expert_parallel_ranks(
    study_of: StudyOf, experts: str, layout: str, bytes_: int
) -> None:
    study = expert_study(study_of, f"experts = {experts}", layout)
    found = terms(study, "terms", "shared adapter all-reduce")
    assert sum(term.bytes_ for term in found) == bytes_


def test_a_shared_adapter_may_be_summed_with_each_micro_batch(study_of: StudyOf) -> None:
    study = expert_study(study_of, "experts = shared, shared_sum = micro_batch")
    found = [one for one in terms(study, "terms", "all-reduce") if isinstance(one, Work)]
    sums = [one for one in found if "routed experts" in one.name]
    assert {one.pass_ for one in sums} == {"W"}
    assert sum(one.bytes_ * sum(one.count) for one in sums) == 2 * MOE * OF_EXPERT  # in bf16
    assert not terms(study, "terms", "shared adapter all-reduce")


def test_experts_save_the_inputs_of_their_adapters_alone(study_of: StudyOf) -> None:
    def saved_by(extra: str, word: str) -> float:
        found = terms(expert_study(study_of, extra), "memory", word)
        return float(sum(t.bytes_ * sum(t.count) for t in found if t.per_micro_batch) / MOE)

    both, up = "experts = shared", "experts = shared, down = off"
    received = saved_by(both, "tokens at routed experts") / (2 * HE)
    assert received >= S * TOP  # as many as are sent, or more on the busiest rank
    assert saved_by(both, "activation of routed experts") == 2 * FE * received
    assert saved_by(up, "activation of routed experts") == 0
    assert saved_by("experts = shared, gate = off, up = off", "tokens at routed experts") == 0
    assert saved_by(both, "inner activation") == pytest.approx(2 * 2 * R * received)


def test_shared_experts_have_adapters_as_a_dense_mlp_has(study_of: StudyOf) -> None:
    model = "model mixed extends qwen3_30b_a3b { shared_experts = 1, shared_ffn = 1024 }"
    extra = (
        f"{model}\nadapters {{ rank = 16, fused = on, split = both, experts = each, {MLP_ONLY} }}"
    )
    study = study_of(
        "qwen3_30b_a3b",
        layout="tp = 2, ep = 8, sequence_parallel = on",
        training="model = mixed",
        extra=extra,
    )
    found = [p for p in study.parameters if p.adapter and not p.expert]
    assert sum(p.total * sum(p.count) for p in found) == MOE * R * (HE + 2048 + 1024 + HE)
    assert sum(p.elements * sum(p.count) for p in found) == MOE * R * (HE + 2048 + 1024 + HE) / 2
    sent = {term.name: sum(term.count) for term in terms(study, "terms", "adapter ")}
    # The up projection of shared experts has no norm in its kernel: its adapter gathers.
    assert sent["adapter input all-gather"] == sent["adapter output all-gather"] == MOE


@try_each(
    "split, sharded, forward, backward",
    [
        # Of qkv and of the output: 4 kernels each and a copy of gathered columns; 1 + 2 messages.
        ("both", "on", 2 * 5 + 3, 2 * 5 + 3),
        ("both", "off", 2 * 5 + 3, 2 * 5 + 3),
        ("one", "on", 2 * 4 + 2, 2 * 4 + 3),
        ("one", "off", 2 * 4 + 1, 2 * 4 + 1),
    ],
)
def test_the_host_issues_the_messages_of_adapters(
    study_of: StudyOf, split: str, sharded: str, forward: int, backward: int
) -> None:
    own = (
        'framework own { version = "1", issue = 1 us, forward_kernels = 20, backward_kernels = 40 }'
    )
    study = study_of(
        "llama3_8b",
        layout=f"tp = 2, sequence_parallel = {sharded}",
        training="framework = own",
        extra=f"{own}\n{FUSED.format(split)}",
    )
    found = terms(study, "terms", "adapters of attention")
    issued = {t.pass_: float(t.seconds) for t in found if t.cause is HOST}
    assert issued == pytest.approx({"F": forward * 1e-6, "B": backward * 1e-6, "W": 2 * 2 * 1e-6})


@try_each(
    "layout, adapters, ignored",
    [
        ("tp = 2, sequence_parallel = off", "split = both, all_to_all = on", "all_to_all"),
        ("tp = 2, sequence_parallel = off", "split = both, regather = on", "regather"),
        ("tp = 1", "experts = each", "experts"),
    ],
)
def test_what_has_no_effect_is_named(layout: str, adapters: str, ignored: str) -> None:
    (scenario,) = parcost.load_text(
        f"""
        use catalog.devices.h100_sxm
        use catalog.fabrics.hgx_h100
        use catalog.precisions.bf16
        use catalog.models.llama3_8b
        cluster {{ devices = 8 }}
        layout {{ {layout} }}
        training {{ sequence = 2048, global_batch = 8 sequences }}
        adapters {{ rank = 16, {adapters} }}
        """
    )
    found = scenario.evaluate().result.diagnostics
    assert [d.message for d in found] == [f"`adapters.{ignored}` has no effect"]
