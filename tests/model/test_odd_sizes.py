"""Layers whose sizes differ in every factor: each part counted by hand, tensor by tensor."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import parcost
from parcost import Memory, Study
from parcost_plugins.model import details
from parcost_plugins.physics.elementwise import copies
from parcost_plugins.vocabulary import Gemm, Stream

from ..evaluation import model_memory
from ..rows import try_each

#: Two sequences of 33 tokens: half of the 66 on a rank where the sequence is shared.
T, OWN = 66, 33
LAYOUT = "tp = 2, sequence_parallel = on"

#: 5 layers of width 96 with 6 heads of 10, of which 2 for keys and values, and 3 that predict.
DENSE = """
model odd {
  layers = 5, hidden = 96, heads = 6, kv_heads = 2, head_dim = 10, ffn = 140, vocabulary = 210
  biases = on, qk_norm = on, sinks = on, norm = layer, norms = 5, embedding_norm = on
  head_bias = on, prediction_layers = 3
}
"""
#: Compressed queries of 18, keys and values of 24; heads of 10 + 4, and values of 8.
LATENT = """
model odd {
  layers = 5, hidden = 96, heads = 6, ffn = 140, vocabulary = 210
  q_lora = 18, kv_lora = 24, nope_dim = 10, rope_dim = 4, v_dim = 8
}
"""
#: 12 experts of 28, of which a token visits 3, beside 2 shared ones of 20.
MIXTURE = """
model odd {
  layers = 5, hidden = 96, heads = 6, ffn = 140, vocabulary = 210, biases = on
  experts = 12, top_k = 3, expert_ffn = 28, shared_experts = 2, shared_ffn = 20
  router_bias = on, shared_gate = on, clamped = on
}
"""
#: Six ranks share a set of experts; a rank has 4 halves, and 33 x 6 x 3 / 12 tokens for each.
EXPERTS, EACH = "tp = 2, ep = 3, etp = 2, sequence_parallel = on", 49.5


def study_of(
    model: str = DENSE,
    *,
    layout: str = LAYOUT,
    framework: str = "",
    training: str = "",
    routing: str = "",
    extra: str = "",
) -> Study:
    (scenario,) = parcost.load_text(
        f"""
        use catalog.devices.h100_sxm
        use catalog.fabrics.hgx_h100
        use catalog.precisions.bf16
        use catalog.frameworks.generic
        framework own extends generic {{ {framework} }}
        {model}
        cluster {{ devices = 24 }}
        layout {{ {layout} }}
        training {{
          sequence = 33, micro_batch = 2, global_batch = 48 sequences, framework = own, {training}
        }}
        routing {{ distribution = balanced, {routing} }}
        {extra}
        """
    )
    (study,) = scenario.studies()
    return study


# --- Parameters ---------------------------------------------------------------------------------


def test_parameters_of_a_dense_layer_with_all_that_there_is() -> None:
    study = study_of(layout=f"{LAYOUT}, pp = 2", extra="schedule { stages = [3, 2] }")
    layers, first, last = (3, 5), (1, 0), (0, 1)
    expected = {
        "embedding": (105 * 96, 210 * 96, first),
        "QKV projection": (96 * 50, 96 * 100, layers),
        "QKV biases": (50, 100, layers),
        "attention output projection": (96 * 30, 96 * 60, layers),
        "attention output bias": (96, 96, layers),
        "query and key norms": (20, 20, layers),
        "attention sinks": (3, 6, layers),
        "MLP gate and up projection": (192 * 70, 192 * 140, layers),
        "MLP gate and up projection biases": (140, 280, layers),
        "MLP down projection": (96 * 70, 96 * 140, layers),
        "MLP down projection bias": (96, 96, layers),
        "layer norms": (5 * 192, 5 * 192, layers),
        "embedding norm": (192, 192, first),
        "final norm": (192, 192, last),
        "head bias": (105, 210, last),
        "prediction projection": (96 * 96, 192 * 96, (0, 3)),
        "prediction norms": (3 * 192, 3 * 192, (0, 3)),
    }
    found = {p.name: (p.elements, p.total, tuple(p.count)) for p in study.parameters}
    # Two stages on devices of their own: the last has the embedding for prediction as well.
    assert found.pop("head") == (105 * 96, 210 * 96, last)
    assert found.pop("embedding, for prediction") == (105 * 96, 0, last)
    assert found == expected
    assert {p.name for p in study.parameters if p.replicated} == {
        name for name, (elements, total, _) in expected.items() if elements == total
    }
    assert {p.name for p in study.parameters if p.place == "layer"} == {
        name for name, (_, _, count) in expected.items() if count == layers
    }


@pytest.mark.parametrize(("tied", "pp", "copied"), [("on", 1, 0), ("on", 2, 0), ("off", 1, 0)])
def test_only_a_later_stage_of_an_untied_model_copies_the_embedding_to_predict(
    tied: str, pp: int, copied: int
) -> None:
    model = DENSE.replace("layers = 5", f"layers = 5, tied = {tied}")
    study = study_of(model, layout=f"pp = {pp}", extra=f"schedule {{ stages = {[5, 0][:pp]} }}")
    names = [part.name for part in study.parameters]
    assert names.count("embedding, for prediction") == copied
    assert ("head" in names) == (tied == "off")
    assert ("head, shared with the embedding" in names) == (pp == 2)


def test_parameters_of_plain_norms_and_routers() -> None:
    model = DENSE.replace("norm = layer", "norm = rms")
    found = {part.name: part.elements for part in study_of(model).parameters}
    assert found["layer norms"] == 5 * 96
    assert found["embedding norm"] == found["final norm"] == 96
    assert found["prediction norms"] == 3 * 96
    model = MIXTURE.replace("router_bias = on, shared_gate = on,", "")
    found = {part.name: part.elements for part in study_of(model, layout=EXPERTS).parameters}
    assert found["router"] == 12 * 96


def test_parameters_of_latent_attention() -> None:
    found = {p.name: (p.elements, p.total, p.replicated) for p in study_of(LATENT).parameters}
    assert {name: part for name, part in found.items() if "MLA" in name or "output" in name} == {
        "MLA query down projection": (96 * 18, 96 * 18, True),
        "MLA query up projection": (18 * 3 * 14, 18 * 6 * 14, False),
        "MLA KV down projection": (96 * 28, 96 * 28, True),
        "MLA KV up projection": (24 * 3 * 18, 24 * 6 * 18, False),
        "attention output projection": (96 * 3 * 8, 96 * 6 * 8, False),
        "MLA norms": (18 + 24, 18 + 24, True),
    }


@pytest.mark.slow
def test_parameters_of_a_mixture() -> None:
    study = study_of(MIXTURE, layout=EXPERTS)
    mixture = ("router", "routed experts", "biases of routed experts", "shared experts")
    found = {p.name: p for p in study.parameters if p.name in mixture}
    assert {n: (p.elements, p.total, p.replicated, p.expert) for n, p in found.items()} == {
        # a column and a bias for each expert, and the gate of the shared ones
        "router": (13 * 96 + 12, 13 * 96 + 12, True, False),
        "routed experts": (4 * 3 * 96 * 14, 12 * 3 * 96 * 28, False, True),
        "biases of routed experts": (4 * (2 * 14 + 96), 12 * (2 * 28 + 96), False, True),
        "shared experts": (3 * 96 * 20, 3 * 96 * 40, False, False),
    }
    plain = study_of(MIXTURE.replace("clamped", "gated = off, clamped"), layout=EXPERTS)
    found = {p.name: p for p in plain.parameters if p.name in mixture}
    assert {n: p.total for n, p in found.items()} == {
        "router": 13 * 96 + 12,
        "routed experts": 12 * 2 * 96 * 28,
        "biases of routed experts": 12 * (28 + 96),
        "shared experts": 2 * 96 * 40,
    }


# --- FLOPs --------------------------------------------------------------------------------------


def forward_flops(study: Study) -> dict[str, float]:
    return {part.name: part.per_token for part in study.flops}


def test_flops_of_a_token() -> None:
    # 8 layers; a token attends to 16.5 of 33 tokens
    assert forward_flops(study_of()) == {
        "attention projections": 2 * 8 * 96 * 160,
        "attention core": 2 * 8 * 6 * 20 * 16.5,
        "MLP": 2 * 8 * 3 * 96 * 140,
        "head": 2 * 4 * 96 * 210,
        "prediction projections": 2 * 3 * 192 * 96,
    }
    latent = forward_flops(study_of(LATENT))
    projected = 96 * (18 + 28) + 18 * 84 + 24 * 108 + 96 * 48
    assert latent["attention projections"] == 2 * 5 * projected
    assert latent["attention core"] == 2 * 5 * 6 * (14 + 8) * 16.5
    # without compressed queries, they come from the stream
    direct = forward_flops(study_of(LATENT.replace("q_lora = 18, ", "")))
    projected = 96 * 28 + 96 * 84 + 24 * 108 + 96 * 48
    assert direct["attention projections"] == 2 * 5 * projected
    # the router, three experts of three matrices, two shared ones, and their gate
    mixture = forward_flops(study_of(MIXTURE, layout=EXPERTS))
    assert mixture["mixture of experts"] == 2 * 5 * 96 * (12 + 3 * (3 * 28 + 2 * 20) + 1)


# --- Operators ----------------------------------------------------------------------------------


def products(study: Study, pass_: str = "F") -> dict[str, tuple[Any, ...]]:
    """Return rows, columns and depth of the products of a pass, and how many there are of each."""
    return {
        op.name: (op.m, op.n, op.k, op.batch, sum(op.count))
        for op in study.operators
        if isinstance(op, Gemm) and op.pass_ == pass_
    }


def streams(study: Study) -> dict[tuple[str, str], tuple[Any, ...]]:
    """Return bytes, kernels and occurrences of the streams of each pass."""
    return {
        (op.name, op.pass_): (op.bytes_, op.kernels, sum(op.count))
        for op in study.operators
        if isinstance(op, Stream)
    }


def test_products_of_a_dense_model() -> None:
    assert products(study_of()) == {
        "QKV projection": (T, 50, 96, 1, 8),
        "attention output projection": (T, 96, 30, 1, 8),
        "MLP gate and up projection": (T, 140, 96, 1, 8),
        "MLP down projection": (T, 96, 70, 1, 8),
        "head": (T, 105, 96, 1, 4),
        "prediction projection": (T, 48, 192, 1, 3),
    }


def test_products_of_latent_attention_meet_the_blocks_of_others() -> None:
    # Three ranks share the sequence, and what travels is compressed: keys and values of three
    # blocks are made; backward makes those of two once more, and takes gradients of three.
    study = study_of(
        LATENT,
        layout=f"{LAYOUT}, cp = 3",
        extra="context { algorithm = ring, latent = on }",
    )
    name, own = "MLA KV up projection", T / 3
    assert [products(study, p)[name][:3] for p in "FBW"] == [
        (3 * own, 54, 24),
        (5 * own, 24, 54),
        (54, 24, 3 * own),
    ]
    assert products(study)["MLA query up projection"][:3] == (own, 42, 18)
    assert products(study)["MLA query down projection"][:3] == (own / 2, 18, 96)


def test_queries_keys_and_values_are_projected_down_by_two_products_or_one() -> None:
    two, one = study_of(LATENT), study_of(LATENT, extra="kernels { fused_down_projection = on }")
    summed = ("sum of the gradients of queries, keys and values", "B")
    # three tensors of a rank's own tokens, in 2 B
    assert streams(two)[summed] == (3 * 2 * OWN * 96, 1, 5)
    assert summed not in streams(one)
    assert products(one)["MLA query and KV down projection"] == (OWN, 18 + 28, 96, 1, 5)
    names = {"MLA query down projection", "MLA KV down projection"}
    assert set(products(two)) - set(products(one)) == names
    # Without compressed queries there is nothing to join.
    direct = LATENT.replace("q_lora = 18, ", "")
    assert summed in streams(study_of(direct, extra="kernels { fused_down_projection = on }"))


def test_each_down_projection_casts_its_input_and_keeps_the_copy() -> None:
    for extra, products_down in (("", 2), ("\nkernels { fused_down_projection = on }", 1)):
        study = study_of(LATENT, training="precision = own", extra=NARROW + extra)
        assert layers_keep(study)["attention input"] == products_down * OWN * 96
        narrow = [name for name in products(study) if "down projection" in name and "MLA" in name]
        assert len(narrow) == products_down
    wide = study_of(LATENT)
    assert layers_keep(wide)["attention input"] == 2 * OWN * 96


def test_products_of_a_mixture() -> None:
    found = products(study_of(MIXTURE, layout=EXPERTS))
    assert found["router"] == (OWN, 12, 96, 1, 5)
    assert found["routed experts, up"] == (EACH, 2 * 14, 96, 4, 5)
    assert found["routed experts, down"] == (EACH, 96, 14, 4, 5)
    assert found["shared experts, up"] == (T, 2 * 20, 96, 1, 5)
    assert found["shared experts, down"] == (T, 96, 20, 1, 5)
    plain = MIXTURE.replace("clamped = on", "gated = off")
    assert products(study_of(plain, layout=EXPERTS))["routed experts, up"][1] == 14


def test_streams_of_a_dense_model() -> None:
    found = streams(study_of(training="dropout = on", framework="separate_projections = on"))
    one = 2 * OWN * 96  # bytes of the stream, shared out
    whole = 2 * T * 96
    assert {key: found[key] for key in found if "accumulation" not in key[0]} == {
        ("embedding", "F"): (2 * whole, 1, 1),
        ("embedding", "W"): (3 * whole, 1, 1),
        ("zero fill of the embedding gradient", "W"): (2 * 105 * 96, 1, 1),
        ("embedding dropout", "F"): (2.5 * one, 1, 1),
        ("embedding dropout", "W"): (2.5 * one, 1, 1),
        ("embedding norm", "F"): (2 * one, 1, 1),
        ("embedding norm", "B"): (3 * one, 2, 1),
        ("layer norms", "F"): (2 * one, 1, 5 * 8),
        ("layer norms", "B"): (3 * one, 2, 5 * 8),
        ("final norm", "F"): (2 * one, 1, 1),
        ("final norm", "B"): (3 * one, 2, 1),
        ("residual additions", "F"): (3 * one, 1, 2 * 8),
        ("residual additions", "B"): (3 * one, 1, 2 * 8),
        ("residual dropout", "F"): (0.5 * one, 0, 2 * 8),
        ("residual dropout", "B"): (2.5 * one, 1, 2 * 8),
        # 3 query heads and 1 key head of 10, in kernels apart
        ("query and key norms", "F"): (2 * 2 * 40 * T, 2, 8),
        ("query and key norms", "B"): (3 * 2 * 40 * T, 4, 8),
        ("rotary embedding", "F"): (2 * 2 * 40 * T, 2, 8),
        ("rotary embedding", "B"): (2 * 2 * 40 * T, 2, 8),
        ("sum of the gradients of queries, keys and values", "B"): (2 * 3 * whole, 2, 8),
        ("sum of the gradients of gate and up", "B"): (3 * whole, 1, 8),
        # read once: 50 outputs and the stream behind attention, 2 x 70 and the stream behind
        ("attention bias gradients", "B"): (2 * 50 * T + one, 2, 8),
        ("MLP bias gradients", "B"): (2 * 140 * T + one, 2, 8),
        ("MLP activation", "F"): (3 * 2 * 70 * T, 1, 8),
        ("MLP activation", "B"): (5 * 2 * 70 * T, 1, 8),
        ("cross entropy", "F"): (38 * 105 * T, 20, 4),
        ("cross entropy", "B"): (14 * 105 * T, 6, 4),
        ("embedding, for prediction", "F"): (2 * whole, 1, 3),
        ("embedding, for prediction", "W"): (3 * whole, 1, 3),
        ("prediction norms", "F"): (2 * one, 1, 9),
        ("prediction norms", "B"): (3 * one, 2, 9),
    }


@pytest.mark.slow
def test_biases_of_queries_keys_and_values_alone_have_one_sum() -> None:
    model = DENSE.replace("biases = on,", "qkv_biases = on,", 1)
    found = streams(study_of(model))
    assert found["attention bias gradients", "B"] == (2 * 50 * T, 1, 8)
    assert ("MLP bias gradients", "B") not in found
    names = [p.name for p in study_of(model).parameters]
    assert [name for name in names if "bias" in name] == ["QKV biases", "head bias"]


def test_streams_of_latent_attention() -> None:
    found = streams(study_of(LATENT))
    assert found["MLA norms", "F"] == (2 * 2 * (18 + 24) * OWN, 2, 5)
    # 4 elements of each query head, and of the one key that all heads share
    assert found["rotary embedding", "F"] == (2 * 2 * 4 * 4 * T, 2, 5)
    direct = streams(study_of(LATENT.replace("q_lora = 18, ", "")))
    assert direct["MLA norms", "F"] == (2 * 2 * 24 * OWN, 1, 5)


def test_streams_of_a_mixture() -> None:
    study = study_of(
        MIXTURE,
        layout=EXPERTS,
        framework="expert_activation = traced, expert_biases = eager, permutation = fused",
    )
    found = streams(study)
    received, inner, all_ = 4 * EACH, 4 * EACH * 14, 4 * EACH * 96
    sent = 2 * OWN * 3 * 96  # bytes of the copies that a rank sends
    # a token is read for its three copies, or written
    for name in ("token permutation", "token unpermutation"):
        for pass_ in ("F", "B"):
            assert found[name, pass_] == (pytest.approx(sent * 4 / 3), 1, 5)
    # in the order of the experts, and back: twice in and out
    for pass_ in ("F", "B"):
        assert found["sorting of routed tokens", pass_] == (2 * 4 * all_, 2, 5)
    assert received == 198
    assert found["router probabilities", "F"][0] == 6 * 4 * 12 * OWN
    assert found["activation of shared experts", "F"] == (3 * 2 * 20 * T, 1, 5)
    for key, (bytes_, _, count) in found.items():
        if "biases of routed" in key[0]:
            assert bytes_ % (2 * all_) == 0
            assert count == 5
        if "clamps" in key[0] or key[0] == "activation of routed experts":
            assert bytes_ % (2 * inner) == 0
    apart = [found[f"biases of routed experts, {n}", "F"][1] for n in ("added", "joined")]
    single = study_of(
        MIXTURE.replace("experts = 12", "experts = 3", 1).replace("top_k = 3", "top_k = 2"),
        layout=EXPERTS,
        framework="expert_biases = eager",
    )
    one = [streams(single)[f"biases of routed experts, {n}", "F"][1] for n in ("added", "joined")]
    # of four experts one after another, and joined once
    assert apart == [4 * one[0], one[1]]
    # a rank of one expert has nothing to sort
    assert streams(single)["sorting of routed tokens", "F"][:2] == (0, 0)


def test_copies_of_tokens_are_made_and_added_up() -> None:
    """A copy is read and written; a sum of zeros is written, and read and written for each."""
    there, back = copies("eager", 4.0)
    assert [(t.kernels, t.tensors, t.steps) for t in there] == [(1, 2, 0), (2, 3.25, 1)]
    assert [(t.kernels, t.tensors, t.steps) for t in back] == [(2, 3.25, 1), (1, 2, 0)]
    assert (there.backward.step_kind, back.forward.step_kind) == ("indexed", "scattered")
    for passes in copies("fused", 4.0):
        assert [(t.kernels, t.tensors, t.steps) for t in passes] == [(1, 1.25, 0)] * 2


@pytest.mark.parametrize(("experts", "kernels"), [(12, 2), (6, 2), (3, 0)])
def test_tokens_of_several_experts_are_sorted(experts: int, kernels: int) -> None:
    model = MIXTURE.replace("experts = 12", f"experts = {experts}", 1)
    found = streams(study_of(model, layout=EXPERTS))["sorting of routed tokens", "F"]
    # 33 tokens of six ranks go to three experts, which are on three pairs of ranks; in and out,
    # there and back
    assert found[:2] == (2 * 2 * 2 * (33 * 6 * 3 / 3) * 96 if kernels else 0, kernels)


@try_each(
    "routing, sorted_",
    [
        ("", True),
        ("deduplicate = on", False),
        ("dispatcher = allgather", False),
        ("dispatcher = deepep", False),
    ],
)
def test_tokens_are_sorted_unless_deduplicated_or_gathered(routing: str, sorted_: bool) -> None:
    found = streams(study_of(MIXTURE, layout=EXPERTS, routing=routing))
    assert (("sorting of routed tokens", "F") in found) == sorted_


@pytest.mark.parametrize(
    ("hide", "hosts"),
    [
        ("none", {"MLP, by columns", "", "MLP, by rows"}),
        ("shared_experts", {"shared experts", "shared experts, by rows"}),
    ],
)
def test_shared_experts_host_the_exchange_where_it_may_hide(hide: str, hosts: set[str]) -> None:
    study = study_of(MIXTURE, layout=EXPERTS, routing=f"hide = {hide}")
    assert {op.host for op in study.operators if "shared" in op.name} == hosts


@pytest.mark.parametrize("model", [DENSE, MIXTURE, LATENT])
def test_a_stated_size_stands_in_place_of_all_parts(model: str) -> None:
    study = study_of(model.replace("layers", "parameters = 3840, layers", 1))
    assert {part.name for part in study.parameters} == {"parameters"}
    assert {part.name for part in study.flops} == {"all parameters", "attention core"}
    shape = {"first half of the parameters, in", "first half of the parameters, out",
             "second half of the parameters, in", "second half of the parameters, out"}  # fmt: skip
    assert set(products(study)) == shape
    assert not model_memory(study)


def test_learned_positions_are_on_every_rank_and_turn_nothing() -> None:
    study = study_of(DENSE.replace("layers = 5", "layers = 5, positions = 50"))
    (part,) = [part for part in study.parameters if part.name == "position embedding"]
    assert (part.elements, part.total, part.replicated) == (50 * 96, 50 * 96, True)
    assert part.place == "before"
    assert not [key for key in streams(study) if "rotary" in key[0]]


# --- Memory -------------------------------------------------------------------------------------


def compute(term: Memory) -> Any:
    """Return what the formula of *term* comes to, symbols side by side multiplied."""
    text = re.sub(r"(?<=[\w)]) (?=[\w(])", " * ", term.formula.text)
    text = re.sub(r"^(.+) \? (.+) : (.+)$", r"(\2) if \1 else \3", text)
    return eval(text, {}, {symbol: value for symbol, (value, _) in term.formula.inputs.items()})


EAGER = "norm = composite, activation = halves"
NARROW = "precision own extends bf16 { narrow = fp8, kept = 1 B }"
OFFLOAD = "offload { activations = 25 % }"


@try_each(
    "model, layout, framework, training, extra",
    [
        (DENSE, LAYOUT, EAGER, "dropout = on", OFFLOAD),
        (DENSE, LAYOUT, "keeps_gathers = on", "precision = own", NARROW),
        (DENSE, "tp = 2", "loss = eager", "", "kernels { attention = unfused }"),
        (DENSE, LAYOUT, "loss = eager", "loss_chunks = 3, dropout = on, flash_attention = off", ""),
        (DENSE.replace("biases = on", "gated = off", 1), LAYOUT, "loss = logits", "", ""),
        (DENSE, LAYOUT, "loss = gradient", "loss_chunks = 3, precision = own", NARROW),
        (
            DENSE,
            LAYOUT,
            "loss = eager",
            "precision = own",
            "precision own extends bf16 { activation = 8 B }",
        ),
        (LATENT, LAYOUT, "", "precision = own", NARROW),
        (LATENT, "tp = 2", "", "recompute = full", ""),
        (MIXTURE, EXPERTS, "router_weights = input", "precision = own", NARROW),
        (
            MIXTURE.replace("clamped", "gated = off, clamped"),
            EXPERTS,
            "router_weights = output",
            "",
            "",
        ),
    ],
)
def test_formulas_of_tensors_compute_their_bytes(
    model: str, layout: str, framework: str, training: str, extra: str
) -> None:
    study = study_of(model, layout=layout, framework=framework, training=training, extra=extra)
    for term in model_memory(study):
        assert term.bytes_ == pytest.approx(compute(term), rel=1e-12), term.name
        assert "host" not in term.name or term.once_per_device


def layers_keep(study: Study) -> dict[str, float]:
    """Return the bytes that a layer keeps of a micro-batch, by tensor."""
    most = max(sum(t.count) for t in model_memory(study) if t.per_micro_batch)
    return {
        t.name: t.bytes_
        for t in model_memory(study)
        if t.per_micro_batch and sum(t.count) == most and t.tag != "ends"
    }


@pytest.mark.slow
def test_tensors_of_a_dense_layer() -> None:
    study = study_of(framework=EAGER, training="dropout = on")
    one, whole = OWN * 96, T * 96
    assert layers_keep(study) == {
        "attention input": 2 * one,
        "queries": 2 * 30 * T,
        "keys": 2 * 10 * T,
        "values": 2 * 10 * T,
        "attention output": 2 * 30 * T,
        "softmax statistics": 4 * 3 * T,
        "MLP input": 2 * one,
        "MLP gate and up": 2 * 2 * 70 * T,
        "activated gate": 2 * 70 * T,
        "MLP activation": 2 * 70 * T,
        "inputs of query and key norms": (4 + 2) * (30 + 10) * T,
        "norm inputs in fp32 and normed values": 5 * (4 + 2) * one,
        "residual dropout masks": 2 * one,
    }
    # Norms in one kernel keep their inputs as they are, and no fp32 copy.
    fused = layers_keep(study_of(framework="norm = fused"))
    assert fused["layer input"] == fused["MLP norm input"] == 2 * one
    assert fused["inputs of norms after attention and MLP"] == 3 * 2 * one
    assert fused["inputs of query and key norms"] == 2 * (30 + 10) * T
    assert "norm inputs in fp32 and normed values" not in fused
    gathered = layers_keep(study_of(framework="keeps_gathers = on"))
    assert gathered["attention input"] == gathered["MLP input"] == 2 * whole
    assert gathered["layer input"] == 2 * one


@try_each("count", [0, 1, 2, 3])
def test_a_layer_keeps_the_inputs_of_its_norms(count: int) -> None:
    model = DENSE.replace("norms = 5", f"norms = {count}")
    found = layers_keep(study_of(model, framework=EAGER))
    behind = layers_keep(study_of(model)).get("inputs of norms after attention and MLP", 0)
    assert behind == (2 * OWN * 96 if count == 3 else 0)
    behind = found.get("inputs of norms after attention and MLP", 0)
    assert behind == 0  # the cast to fp32 is all that is read again
    inside = found.get("norm inputs in fp32 and normed values", 0)
    assert inside == count * 6 * OWN * 96


@pytest.mark.slow
def test_the_core_keeps_its_output_twice_where_the_projection_keeps_a_narrow_one() -> None:
    name = "attention output in the compute type"
    for kept, bytes_ in ((1, 2), (2, 0), (3, 0)):
        recipe = NARROW.replace("kept = 1", f"kept = {kept}")
        found = layers_keep(study_of(training="precision = own", extra=recipe))
        assert found["attention output"] == kept * 30 * T
        assert found[name] == bytes_ * 30 * T
    assert name not in layers_keep(study_of())


def test_tensors_of_latent_attention() -> None:
    found = layers_keep(study_of(LATENT))
    assert {n: b for n, b in found.items() if "MLP" not in n} == {
        "layer input": 2 * OWN * 96,
        "attention input": 2 * OWN * 96,
        "compressed queries": 2 * OWN * 18,
        "compressed queries, normed": 2 * OWN * 18,
        "compressed keys and values": 2 * OWN * 28,
        "compressed keys and values, normed": 2 * OWN * 24,
        "queries": 2 * T * 42,
        "keys": 2 * T * 42,
        "values": 2 * T * 24,
        "attention output": 2 * T * 24,
        "softmax statistics": 4 * T * 3,
    }
    direct = layers_keep(study_of(LATENT.replace("q_lora = 18, ", "")))
    assert set(found) - set(direct) == {"compressed queries", "compressed queries, normed"}
    # In fp8 the projection up keeps what it multiplies in a byte; the norm its input as it is.
    narrow = layers_keep(study_of(LATENT, training="precision = own", extra=NARROW))
    assert narrow["compressed queries"] == 2 * OWN * 18
    assert narrow["compressed queries, normed"] == OWN * 18
    # Operators of PyTorch keep fp32 inputs of the norm, and what its gain multiplies.
    eager = layers_keep(study_of(LATENT, framework="norm = composite"))
    assert eager["compressed queries"] == (4 + 2) * OWN * 18
    # With the projection up only its compressed input stays.
    again = layers_keep(study_of(LATENT, extra="recompute { up_projection = on }"))
    assert again["compressed queries"] == 2 * OWN * 18
    assert not {name for name in again if "normed" in name} | {"queries", "keys"} & set(again)


def test_narrow_weights_of_latent_attention_are_its_five_projections() -> None:
    """Every rank holds the down projections whole; a byte each way on H100."""
    linear = {
        "MLA query down projection": 96 * 18,
        "MLA query up projection": 18 * 84 / 2,
        "MLA KV down projection": 96 * 28,
        "MLA KV up projection": 24 * 108 / 2,
        "attention output projection": 96 * 48 / 2,
        "MLP gate and up projection": 96 * 280 / 2,
        "MLP down projection": 96 * 140 / 2,
    }
    study = study_of(
        LATENT, training="precision = fp8_blockwise", extra="use catalog.precisions.fp8_blockwise"
    )
    assert {p.name: p.elements for p in study.parameters if p.in_linear_layer} == linear
    copies = {t.name: t.bytes_ for _, t in study.contributions("memory") if "narrow" in t.name}
    assert copies == {"narrow weights": 2 * 5 * sum(linear.values())}
    assert "router" not in {p.name for p in study_of(MIXTURE).parameters if p.in_linear_layer}


def test_tensors_of_a_mixture() -> None:
    found = layers_keep(study_of(MIXTURE, layout=EXPERTS, framework="router_weights = input"))
    assert {n: b for n, b in found.items() if "expert" in n or "router" in n or "mix" in n} == {
        "mixture input": 2 * OWN * 96,
        "router logits and probabilities": 8 * OWN * 12,
        "tokens at routed experts": 2 * 198 * 96,
        "input of routed experts, unweighted": 2 * 198 * 96,
        "gate and up of routed experts": 2 * 2 * 198 * 14,
        "activation of routed experts": 2 * 198 * 14,
        "gate and up of shared experts": 2 * 2 * T * 20,
        "activation of shared experts": 2 * T * 20,
    }


def test_the_router_keeps_a_wide_input_beside_the_narrow_one_of_shared_experts() -> None:
    """Megatron-Core, moe_utils.py: RouterGatingLinearFunction saves its input as it is."""
    fp8 = {"layout": EXPERTS, "training": "precision = own", "extra": NARROW}
    found = layers_keep(study_of(MIXTURE, **fp8))
    assert found["mixture input"] == 2 * OWN * 96
    assert found["input of shared experts"] == OWN * 96
    alone = layers_keep(study_of(MIXTURE.replace("shared_experts = 2, shared_ffn = 20", ""), **fp8))
    assert alone["mixture input"] == 2 * OWN * 96
    assert "input of shared experts" not in alone
    assert "input of shared experts" not in layers_keep(study_of(MIXTURE, layout=EXPERTS))


def test_only_a_model_of_a_stated_size_saves_what_it_says() -> None:
    stated = study_of(DENSE.replace("layers = 5", "layers = 5, saved = 34 B"))
    assert layers_keep(stated) == layers_keep(study_of())


def recomputed_tensors(study: Study) -> set[str]:
    """Return the tensors that are made again."""
    return {
        t.name.removesuffix(", recomputed") for t in model_memory(study) if "recomputed" in t.name
    }


GATES = "gate and up of routed experts; gate and up of shared experts"
ACTIVATIONS = "activation of routed experts; activation of shared experts"
COMPILED = "remakes_elementwise = on, mode = compiled"


NORMED = "compressed queries, normed; compressed keys and values, normed"


@try_each(
    "model, framework, extra, expected",
    [
        (
            DENSE,
            EAGER,
            "recompute { norms = on }",
            "attention input; MLP input; norm inputs in fp32 and normed values",
        ),
        (DENSE, EAGER, "recompute { activation = on }", "activated gate; MLP activation"),
        (DENSE, EAGER, "recompute { mlp = on }", "MLP gate and up; activated gate; MLP activation"),
        (DENSE, COMPILED, "", "attention input; MLP input; MLP activation"),
        (DENSE, f"{COMPILED}", "kernels { mode = eager }", ""),
        (DENSE, "remakes_elementwise = on, mode = eager", "", ""),
        (
            DENSE,
            "remakes_elementwise = on",
            "kernels { mode = compiled }",
            "attention input; MLP input; MLP activation",
        ),
        (DENSE, "mode = compiled", "", ""),
        (LATENT, "", "recompute { up_projection = on }", f"queries; keys; values; {NORMED}"),
        (LATENT, "", "recompute { norms = on }", "attention input; MLP input"),
        (LATENT, COMPILED, "", f"attention input; MLP input; MLP activation; {NORMED}"),
        (MIXTURE, "", "recompute { norms = on }", "attention input; mixture input"),
        (MIXTURE, "", "recompute { activation = on }", ACTIVATIONS),
        (
            MIXTURE,
            "",
            "recompute { moe = on }",
            f"router logits and probabilities; tokens at routed experts; {GATES}; {ACTIVATIONS}",
        ),
        (
            MIXTURE,
            COMPILED,
            "",
            f"attention input; mixture input; {ACTIVATIONS}",
        ),
    ],
)
def test_recomputed_tensors_are_not_saved(
    model: str, framework: str, extra: str, expected: str
) -> None:
    layout = EXPERTS if model is MIXTURE else LAYOUT
    study = study_of(model, layout=layout, framework=framework, extra=extra)
    assert recomputed_tensors(study) == set(filter(None, expected.split("; ")))
    assert not recomputed_tensors(study) & set(layers_keep(study))


@try_each(
    "gated, recompute, expected",
    [
        ("on", "", ""),
        ("on", "keep_qkv = on", "queries; keys; values"),
        ("on", "keep_core = on", "attention output; softmax statistics"),
        ("on", "keep_output = on", "MLP norm input"),
        ("on", "keep_up = on", "MLP gate and up"),
        ("on", "keep_down = on", "MLP output"),
        (
            "on",
            "alternate = on",
            "queries; values; attention output; softmax statistics; MLP gate; MLP output",
        ),
        ("off", "alternate = on", "queries; values; attention output; softmax statistics; MLP up"),
    ],
)
def test_tensors_saved_beside_the_input_of_a_recomputed_layer(
    gated: str, recompute: str, expected: str
) -> None:
    model = DENSE.replace("biases = on", f"gated = {gated}, biases = on", 1)
    block = f"recompute {{ {recompute} }}"
    study = study_of(model, training="recompute = full", extra=block)
    kept = set(layers_keep(study)) - {"layer input"}
    assert kept == set(filter(None, expected.split("; ")))
    assert not recomputed_tensors(study) & kept
    if "down" in recompute:
        assert layers_keep(study)["MLP output"] == 2 * OWN * 96
    # of what is not recomputed as a whole, nothing is kept beside
    assert "MLP output" not in layers_keep(study_of(model, extra=block))


def test_products_make_again_what_is_not_kept() -> None:
    study = study_of(training="recompute = full", extra="recompute { alternate = on }")
    found = products(study, "R")
    assert found["QKV projection"][1] == 10  # keys
    assert found["MLP gate and up projection"][1] == 70  # up
    assert "MLP down projection" not in found
    assert found["attention output projection"][1] == 96


def test_scores_in_memory_are_made_again_with_the_output_of_their_core() -> None:
    study = study_of(
        training="recompute = full, flash_attention = off", extra="recompute { keep_core = on }"
    )
    assert "attention output" in recomputed_tensors(study)


@try_each(
    "loss, chunks, held, passing",
    [
        (
            "eager",
            1,
            {"loss softmax": 4},
            {"logits gradient": 2, "gradients of the loss in fp32": 12 - 2},
        ),
        ("softmax", 1, {"loss softmax": 4}, {"logits gradient": 2}),
        ("logits", 1, {"loss logits": 2}, {"logits gradient": 2}),
        ("gradient", 1, {"loss gradient": 2}, {}),
        ("eager", 2, {}, {"logits": 2 / 2, "loss softmax": 4 / 2}),
        ("softmax", 3, {}, {"logits": 2 / 3, "loss softmax": 4 / 3}),
        ("logits", 2, {}, {"logits": 2 / 2}),
    ],
)
def test_tensors_of_a_loss(
    loss: str, chunks: int, held: dict[str, float], passing: dict[str, float]
) -> None:
    study = study_of(framework=f"loss = {loss}", training=f"loss_chunks = {chunks}")
    found = [t for t in model_memory(study) if "loss" in t.name or "logits" in t.name]
    found = [t for t in found if t.name != "block of the freed logits"]
    logits = 105 * T
    assert all(("m" in t.formula.inputs) == (chunks > 1) for t in found)
    for names, waits, count in ((held, True, 4), (passing, False, 1)):
        terms = [t for t in found if t.per_micro_batch == waits]
        sizes = {t.name: t.bytes_ / logits for t in terms}
        assert sizes == pytest.approx(names, rel=1e-12)
        assert all(sum(t.count) == count for t in terms)  # the head runs once, and for 3 more
        moments = ("forward", "loss") if waits else ("loss",)
        assert all(t.moments == moments for t in terms)
    freed = {t.name: t.freed_at_b for t in found if t.per_micro_batch}
    # the gradient that the weights need takes half of the softmax
    assert freed == {name: 0.5 if name == "loss softmax" else 0.0 for name in held}


@pytest.mark.parametrize(("element", "freed"), [(1, 0.75), (4, 0), (8, 0)])
def test_a_gradient_as_wide_as_the_softmax_takes_all_of_its_place(
    element: int, freed: float
) -> None:
    recipe = f"precision own extends bf16 {{ activation = {element} B }}"
    study = study_of(training="precision = own", extra=recipe)
    (found,) = [t for t in model_memory(study) if t.name == "loss softmax"]
    assert found.freed_at_b == freed


def test_tensors_of_the_ends() -> None:
    study = study_of(training="dropout = on", layout=f"{LAYOUT}, pp = 2", extra="schedule { stages = [3, 2] }")  # fmt: skip
    one = 2 * OWN * 96
    found = {t.name: (t.bytes_, tuple(t.count)) for t in model_memory(study) if t.tag == "ends"}
    assert found == {
        "token ids": (8 * T, (1, 0)),
        "embedding dropout mask": (one / 2, (1, 0)),
        "embedding norm input": (one, (1, 0)),
        "final norm input": (one, (0, 1)),
        "head input": (one, (0, 4)),
        "loss softmax": (4 * 105 * T, (0, 4)),
        "prediction inputs": (5 * one, (0, 3)),
    }


# --- Figures of the shape -----------------------------------------------------------------------


def figures(study: Study) -> dict[str, Any]:
    return {figure.name: figure.value for figure in details.details(study, None, brief=False)}  # type: ignore[arg-type]


def test_figures_of_a_model_s_shape() -> None:
    # Per layer: projections, MLP and two norms; the ends: 210 rows of 96, and a norm.
    layer = 96 * 10 * (6 + 4) + 60 * 96 + 3 * 96 * 140 + 2 * 96
    model = """model odd {
      layers = 5, hidden = 96, heads = 6, kv_heads = 2, head_dim = 10, ffn = 140, vocabulary = 210
    }"""
    study = study_of(model, layout="pp = 2", training="recompute = full",
                     extra="schedule { stages = [2, 3] }\nrecompute { layers = 1 }")  # fmt: skip
    assert figures(study) == {
        "parameters_per_stage": 3 * layer + 210 * 96 + 96,
        "layer_parameters": layer,
        "matmul_flops_per_token": 2 * (5 * (layer - 2 * 96) + 210 * 96),
        "attention_flops_per_token": 2 * 5 * 6 * 20 * 16.5,
        "attended_tokens": 16.5,
        "recomputed_share": 2 / 5,
    }
    first = study_of(model, layout="pp = 2", extra="schedule { stages = [4, 1] }")
    assert figures(first)["parameters_per_stage"] == 4 * layer + 210 * 96


def test_a_window_in_some_layers_shortens_what_a_token_attends_to_on_average() -> None:
    model = DENSE.replace("layers = 5", "layers = 5, window = 11, full_every = 4")
    # 8 layers, of which two have no window: 16.5 tokens; 11 - 121 / 66 in the others
    assert figures(study_of(model))["attended_tokens"] == pytest.approx(
        (2 * 16.5 + 6 * (11 - 121 / 66)) / 8, rel=1e-12
    )


# --- A model of a stated size -------------------------------------------------------------------


@pytest.mark.parametrize(("hidden", "depth"), [(28, 28), (1, 1), (0, 14)])
def test_products_of_a_nominal_layer_are_as_deep_as_the_model_is_wide(
    hidden: int, depth: int
) -> None:
    # 5 layers of 4 x 14 x 14; without a width the products are square
    model = f"model odd {{ layers = 5, parameters = 3920, hidden = {hidden}, saved = 34 B }}"
    study = study_of(model, layout="tp = 2" if hidden else "tp = 1")
    width = 196 / depth / (2 if hidden else 1)
    shapes = {(op.name[-3:], op.m, op.n, op.k) for op in study.operators
              if isinstance(op, Gemm) and op.pass_ == "F"}  # fmt: skip
    assert shapes == {(" in", T, width, depth), ("out", T, depth, width)}
    (saved,) = model_memory(study)
    assert saved.bytes_ == 34 * T / (2 if hidden else 1)
    assert not model_memory(study_of(model.replace(", saved = 34 B", "")))


def test_a_nominal_model_needs_a_width_to_be_cut() -> None:
    for layout, hidden, expected in (
        ("tp = 2", "[0, 1, 96]", [False, True, True]),
        ("pp = 2", "[0, 1, 96]", [False, True, True]),
        ("tp = [1, 2, 4]", "0", [True, False, False]),
        ("pp = 1", "0", True),
        ("pp = 5", "0", False),
    ):
        model = f"model odd {{ layers = 5, parameters = 3920, hidden = {hidden} }}"
        checks = study_of(model, layout=layout).contributions("checks")
        (found,) = [check.holds for _, check in checks if check.id == "nominal-width"]
        assert np.array_equal(found, expected), (layout, hidden)
    model = "model odd { layers = 5, parameters = 3920, hidden = 96 }"
    checks = study_of(model, layout="tp = 2").contributions("checks")
    assert not [check for _, check in checks if check.id == "nominal-width"]
