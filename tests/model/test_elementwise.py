"""Element-wise operators by how frameworks fuse them: bytes from the kernels that they run.

Each list names the kernels of one pass in their order, with the bytes that they read and write
for an element in bf16: 2 B for an activation, 4 B in fp32, 1 B for a mask.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from parcost import Memory, Study, block_type
from parcost_plugins.physics import elementwise
from parcost_plugins.physics.elementwise import Passes
from parcost_plugins.vocabulary import (
    Framework,
    FusedAttention,
    Gemm,
    KernelChoice,
    Stream,
    Training,
)
from parcost_plugins.vocabulary.operators import STEP_KINDS, STREAM_KINDS

from ..rows import try_each

StudyOf = Callable[..., Study]

TOKENS = 2048
H, F, A, K, D, V = 4096, 14_336, 32, 8, 128, 128_256  # Llama 3 8B


def study_with(study_of: StudyOf, framework: str, model: str = "llama3_8b", **more: str) -> Study:
    training = f"framework = own, {more.pop('training', '')}"
    extra = f"""
    use catalog.frameworks.generic
    framework own extends generic {{ {framework} }}
    """
    return study_of(model, training=training, extra=extra)


def stream_bytes(study: Study) -> dict[tuple[str, str], float]:
    """Return the bytes per token of streaming operators, one occurrence each."""
    found = (op for op in study.operators if isinstance(op, Stream))
    return {(op.name, op.pass_): op.bytes_ / TOKENS for op in found}  # type: ignore[misc]


def memory_terms(study: Study) -> Mapping[str, Memory]:
    return {term.name: term for _, term in study.contributions("memory")}


@pytest.mark.parametrize(
    ("norm", "forward", "backward"),
    [
        # x in, y out; x and dy in, dx out, with the sums for the gain on the way
        ("fused", [4], [6]),
        # the same, and x and dy in once more for the sums
        ("compiled", [4], [6, 4]),
        ("eager", [4], [6, 4]),
        # to fp32, square, mean, product with the root, back to bf16, times the gain;
        # gain: dy in, out, and dy and what it multiplied in, product out, and in to be summed;
        # to fp32; product with the root, product for the root, its sum, mean spread; x to the
        # power of 1, twice that, product, sum of both; to bf16
        (
            "composite",
            [2 + 4, 8, 4, 8, 4 + 2, 4],
            [4, 6, 2, 2 + 4, 8, 12, 4, 4, 8, 8, 12, 12, 4 + 2],
        ),
    ],
)
def test_norms(study_of: StudyOf, norm: str, forward: list[int], backward: list[int]) -> None:
    found = stream_bytes(study_with(study_of, f"norm = {norm}"))
    for name in ("layer norms", "final norm"):
        assert found[name, "F"] == sum(forward) * H
        assert found[name, "B"] == sum(backward) * H


@try_each(
    "activation, forward, backward",
    [
        ("fused", [6], [10]),
        ("compiled", [6], [10]),
        # activation of the gate, product; both factors of the product, the activation
        ("eager", [4, 6], [6, 6, 6]),
        # and both gradients in, the joined one out
        ("halves", [4, 6], [6, 6, 6, 8]),
    ],
)
def test_gated_activations(
    study_of: StudyOf, activation: str, forward: list[int], backward: list[int]
) -> None:
    study = study_with(study_of, f"activation = {activation}")
    found = stream_bytes(study)
    assert found["MLP activation", "F"] == sum(forward) * F
    assert found["MLP activation", "B"] == sum(backward) * F
    # Where the product is a kernel of its own, it reads the activated gate, which is kept.
    apart = activation in ("eager", "halves")
    assert ("activated gate" in memory_terms(study)) == apart
    if apart:
        assert memory_terms(study)["activated gate"].bytes_ == 2 * F * TOKENS


def test_an_activation_without_gate_is_one_kernel_in_any_case(study_of: StudyOf) -> None:
    for activation in ("fused", "eager", "halves"):
        study = study_with(study_of, f"activation = {activation}", model="gpt3_6_7b")
        assert stream_bytes(study)["MLP activation", "F"] == 4 * 4 * 4096
        assert stream_bytes(study)["MLP activation", "B"] == 6 * 4 * 4096
        assert "activated gate" not in memory_terms(study)


def test_a_squared_relu_in_eager_code_is_a_kernel_for_each_operator(study_of: StudyOf) -> None:
    """A ReLU and a square; backward a copy, a product by 2, one by the gradient, and a mask."""
    by_ffn = 2 * 4 * 4096  # bytes of a token in the width of the MLP
    for mode, squares, forward, backward in (
        ("eager", "on", 2 + 2, 2 + 2 + 3 + 3),
        ("fused", "on", 2, 3),
        ("eager", "off", 2, 3),
    ):
        study = study_of(
            "gpt3_6_7b",
            training="framework = own, model = squared",
            extra=f"""
            use catalog.frameworks.generic
            framework own extends generic {{ squared_relu = {mode} }}
            model squared extends gpt3_6_7b {{ squared_relu = {squares} }}
            """,
        )
        assert stream_bytes(study)["MLP activation", "F"] == forward * by_ffn
        assert stream_bytes(study)["MLP activation", "B"] == backward * by_ffn


@pytest.mark.parametrize(
    ("rotary", "kernels"),
    [
        ("fused", [4]),
        # times cosine, a half negated, the halves joined, times sine, sum
        ("eager", [4, 2, 4, 4, 6]),
        # to fp32, product, back to bf16
        ("complex", [2 + 4, 8, 4 + 2]),
    ],
)
def test_rotary_embeddings(study_of: StudyOf, rotary: str, kernels: list[int]) -> None:
    found = stream_bytes(study_with(study_of, f"rotary = {rotary}"))
    both = (A + K) * D
    assert found["rotary embedding", "F"] == found["rotary embedding", "B"] == sum(kernels) * both


def test_slices_of_rotary_embeddings_have_padded_gradients(study_of: StudyOf) -> None:
    """As transformers has them; bytes of an element in bf16, counted in the operators of PyTorch."""
    found = stream_bytes(study_with(study_of, "rotary = sliced"))
    both = (A + K) * D
    assert found["rotary embedding", "F"] == (4 + 2 + 4 + 4 + 6) * both
    # times sine; negated half; twice zeros and a half copied into them; their sum; times cosine;
    # the sum of both; a copy in the order of the projection
    assert found["rotary embedding", "B"] == (4 + 2 + 2 * (2 + 2) + 6 + 4 + 6 + 4) * both


def test_dropout_and_additions(study_of: StudyOf) -> None:
    fused, eager = (
        stream_bytes(study_with(study_of, f"dropout = {word}", training="dropout = on"))
        for word in ("fused", "eager")
    )
    # branch and stream in, sum out; both gradients of the stream in, sum out
    for found in (fused, eager):
        assert found["residual additions", "F"] == found["residual additions", "B"] == 6 * H
        assert found["residual dropout", "B"] == (4 + 1) * H  # gradient and mask in, gradient out
    assert fused["residual dropout", "F"] == 1 * H
    assert eager["residual dropout", "F"] == (4 + 1) * H


@try_each(
    "loss, forward, backward",
    [
        # twice in, gradient out; scaled
        ("gradient", [2 + 2 + 2], [4]),
        # in for the maximum and for the sum; in, gradient out
        ("logits", [2 + 2], [4]),
        # cast; log-softmax in three times and out; zeros, both gradients in, output in, out; cast
        ("eager", [2 + 4, 4 * 4], [4, 4 * 4, 4 + 2]),
        # cast, maximum, difference, exponential, sum, quotient; product, cast
        ("softmax", [2 + 4, 4, 8, 8, 4, 8], [8, 4 + 2]),
    ],
)
def test_losses(study_of: StudyOf, loss: str, forward: list[int], backward: list[int]) -> None:
    study = study_with(study_of, f"loss = {loss}")
    assert stream_bytes(study)["cross entropy", "F"] == sum(forward) * V
    assert stream_bytes(study)["cross entropy", "B"] == sum(backward) * V


def test_metrics_of_the_trainer_read_the_logits_again(study_of: StudyOf) -> None:
    """Each: log-softmax in three times and out, a cast to fp32. A loss without them has none."""
    found = stream_bytes(study_with(study_of, "loss_metrics = 2"))
    assert found["cross entropy as metrics", "B"] == 2 * (3 * 2 + 2 + 2 + 4) * V
    plain = stream_bytes(study_with(study_of, "loss_metrics = 0"))
    assert set(found) - set(plain) == {("cross entropy as metrics", "B")}


def test_gradients_of_layers_of_their_own_are_added_up(study_of: StudyOf) -> None:
    together, apart = (
        stream_bytes(study_with(study_of, f"separate_projections = {word}"))
        for word in ("off", "on")
    )
    more = {name: found for name, found in apart.items() if name not in together}
    assert more == {
        # two gradients in, their sum out: two sums of three, and one of two
        ("sum of the gradients of queries, keys and values", "B"): 2 * 6 * H,
        ("sum of the gradients of gate and up", "B"): 6 * H,
    }
    # What is one layer has its gradient joined from three: each element in, and out.
    joined = ("concatenation of the gradients of queries, keys and values", "B")
    assert set(together) - set(apart) == {joined}
    assert together[joined] == 4 * (A + 2 * K) * D


def test_keys_and_values_are_copied_for_the_heads_of_their_group(study_of: StudyOf) -> None:
    """Eight heads of 128 become 32: each element is read once, and written four times."""
    once, copied = (study_with(study_of, f"repeats_keys = {word}") for word in ("off", "on"))
    more = stream_bytes(copied).items() - stream_bytes(once).items()
    name = "keys and values, repeated"
    assert dict(more) == {(name, way): 2 * 2 * (K + A) * D for way in ("F", "B")}
    kept = {name: memory_terms(copied)[name].bytes_ for name in ("keys", "values")}
    assert kept == dict.fromkeys(("keys", "values"), 2 * A * D * TOKENS)
    (core,) = (op for op in copied.operators if isinstance(op, FusedAttention) and op.pass_ == "F")
    assert core.operands == TOKENS * (A + 2 * A) * D
    same = study_with(study_of, "repeats_keys = on", model="gpt3_6_7b")
    assert (name, "F") not in stream_bytes(same)


def test_the_heads_of_stored_scores_are_put_side_by_side(study_of: StudyOf) -> None:
    found = stream_bytes(study_of("gpt3_6_7b", training="flash_attention = off"))
    name = "transpose of the attention output"
    assert found[name, "F"] == found[name, "B"] == 4 * H
    assert (name, "F") not in stream_bytes(study_of("gpt3_6_7b"))


def test_biases_have_gradients_of_their_own(study_of: StudyOf) -> None:
    found = stream_bytes(study_of("gpt3_6_7b"))
    assert found["attention bias gradients", "B"] == 2 * (3 * H + H)
    assert found["MLP bias gradients", "B"] == 2 * (4 * H + H)
    assert (
        stream_bytes(study_of("qwen25_7b"))["attention bias gradients", "B"]
        == 2 * (28 + 2 * 4) * 128
    )


def test_a_loss_in_chunks_starts_as_many_kernels_for_each(study_of: StudyOf) -> None:
    one, eight = (
        {
            op.pass_: op
            for op in study_with(study_of, "loss = eager", training=f"loss_chunks = {n}").operators
            if isinstance(op, Stream) and op.name == "cross entropy"
        }
        for n in (1, 8)
    )
    for pass_ in ("F", "B"):
        assert eight[pass_].bytes_ == one[pass_].bytes_  # type: ignore[index]
        assert eight[pass_].kernels == 8 * one[pass_].kernels  # type: ignore[index]


def test_kernels_of_an_eager_layer_are_as_many_as_its_code_calls(study_of: StudyOf) -> None:
    # torchtitan v0.2.2, counted in its code without products and core: norms 2, rotary 6,
    # activation and product, additions 2; backward norms 4, rotary 6, activation 3, additions 2
    # and sums of gradients 3.
    study = study_of(
        "llama3_8b",
        training="framework = torchtitan",
        extra="use catalog.frameworks.torchtitan",
    )
    issued = {"F": 0.0, "B": 0.0}
    for op in study.operators:
        if isinstance(op, Stream) and op.pass_ in issued and max(op.count) >= 32:
            issued[op.pass_] += op.kernels * max(op.count) / 32  # type: ignore[operator]
    assert issued == {"F": 2 + 6 + 2 + 2, "B": 4 + 6 + 3 + 2 + 3}


@pytest.mark.parametrize("name", ["transformers", "deepspeed"])
def test_a_layer_of_transformers_issues_the_kernels_of_its_streams(
    study_of: StudyOf, name: str
) -> None:
    """Norms 2 x 8, rotary 2 x 5, activation and product, additions 2; and their gradients."""
    study = study_of(
        "llama3_8b", training=f"framework = {name}", extra=f"use catalog.frameworks.{name}"
    )
    issued = {"F": 0.0, "B": 0.0}
    for op in study.operators:
        if isinstance(op, Stream) and op.pass_ in issued and max(op.count) >= 32:
            issued[op.pass_] += op.kernels * max(op.count) / 32  # type: ignore[operator]
    assert issued == {"F": 16 + 10 + 2 + 2, "B": 32 + 20 + 3 + 2 + 3}
    framework = study[Training].framework
    # with seven products and the core; twice as many products, and three kernels of the core
    assert framework.forward_kernels == issued["F"] + 7 + 1
    assert framework.backward_kernels == issued["B"] + 14 + 3


@try_each(
    "name",
    ["generic", "megatron_core", "torchtitan", "torchtitan_0_1", "transformers", "deepspeed"],
)
def test_the_host_issues_the_kernels_of_a_norm(study_of: StudyOf, name: str) -> None:
    extra = f"use catalog.frameworks.{name}"
    study = study_of("qwen3_8b", training=f"framework = {name}", extra=extra)
    framework = study[Training].framework
    norms = [op for op in study.operators if op.name == "query and key norms"]
    issued = {op.pass_: op.kernels for op in norms if isinstance(op, Stream)}
    assert issued["F"] == 2 * framework.norm_kernels
    assert issued["B"] == 2 * framework.norm_backward_kernels


@try_each(
    "attribute, table",
    [
        ("norm", elementwise.NORMS),
        ("activation", elementwise.GATED),
        ("rotary", elementwise.ROTARY),
        ("dropout", elementwise.DROPOUT),
        ("softmax", elementwise.SOFTMAX),
        ("loss", elementwise.LOSS),
        ("router", elementwise.ROUTER),
    ],
)
def test_every_word_of_a_framework_has_its_kernels(
    attribute: str, table: Mapping[str, Passes]
) -> None:
    assert set(block_type(Framework).fields[attribute].choices) == set(table)
    for passes in table.values():
        for traffic in passes:
            assert traffic.kind in STREAM_KINDS


def test_every_kind_of_kernel_has_an_efficiency() -> None:
    fields = block_type(KernelChoice).fields
    assert all(f"{kind}_efficiency" in fields for kind in STREAM_KINDS if kind != "plain")
    assert all(f"{kind}_time" in fields for kind in STEP_KINDS if kind)


@try_each(
    "name",
    [
        "deepspeed",
        "fsdp_composer",
        "maxtext",
        "nemo",
        "torchtitan",
        "torchtitan_0_1",
        "transformers",
    ],
)
def test_frameworks_change_streams_and_no_product(study_of: StudyOf, name: str) -> None:
    generic = study_of("llama3_8b")
    other = study_of(
        "llama3_8b", training=f"framework = {name}", extra=f"use catalog.frameworks.{name}"
    )
    shapes = [
        [
            (op.name, op.pass_, op.m, op.n, op.k)
            for op in study.operators
            if isinstance(op, Gemm) and op.role != "attention"  # stored scores are products
        ]
        for study in (generic, other)
    ]
    assert shapes[0] == shapes[1]
    assert stream_bytes(other) != stream_bytes(generic)


def test_sharded_parameters_are_copied_out_of_the_buffers_they_arrive_in(study_of: StudyOf) -> None:
    # Llama 3 8B has 8.03e9 parameters. A gather moves 4 B of each, forward and backward, and a
    # reduction 6 B.
    elements = 8_030_261_248
    ends = 128_256 * 4096 + 4096  # head and last norm stay gathered from forward to backward
    extra = "use catalog.frameworks.torchtitan"
    for sharding, passes in (("reshard = on", ["F", "B"]), ("reshard = off", ["F"])):
        study = study_of(
            "llama3_8b",
            training="framework = torchtitan",
            layout="zero = 3",
            extra=f"{extra}\nsharding {{ {sharding} }}",
        )
        found: dict[tuple[str, str], float] = {}
        copies = _copies(study)
        for copy in copies:
            key = (copy.name.partition(":")[0], copy.pass_)
            found[key] = found.get(key, 0.0) + copy.bytes_ * sum(copy.count)
        assert found == {
            **{
                ("copies of gathered parameters", pass_): 4 * (elements - ends * (pass_ == "B"))
                for pass_ in passes
            },
            ("copies of gradients into the reduction buffer", "B"): 6 * elements,
        }
        named = [(copy.name, copy.pass_) for copy in copies]
        assert len(set(named)) == len(named)
    plain = study_of("llama3_8b", training="framework = torchtitan", layout="zero = 1", extra=extra)
    assert not _copies(plain)


def _copies(study: Study) -> list[Any]:
    terms = [term for _, term in study.contributions("terms")]
    return [term for term in terms if term.name.startswith("copies of")]


def test_compiled_layers_have_one_kernel_of_each(study_of: StudyOf) -> None:
    study = study_of(
        "llama3_8b",
        training="framework = torchtitan",
        extra="use catalog.frameworks.torchtitan\nkernels { mode = compiled }",
    )
    found = stream_bytes(study)
    assert found["layer norms", "F"] == 4 * H
    assert found["layer norms", "B"] == 10 * H
    assert found["MLP activation", "F"] == 6 * F
    assert found["rotary embedding", "F"] == 4 * (A + K) * D
    # The loss is compiled as well, and keeps the logits as they are.
    assert found["cross entropy", "F"] == found["cross entropy", "B"] == 4 * V
    assert "activated gate" not in memory_terms(study)
    assert memory_terms(study)["loss logits"].bytes_ == 2 * V * TOKENS
