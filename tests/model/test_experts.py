"""What routed experts run beside their products, by how frameworks implement it.

Mixtral 8x7B on one device: each of 2048 tokens visits 2 experts of 14,336, so that 4096 rows of
14,336 are activated and 4096 rows of 4096 come out. Bytes are those of tensors in bf16.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from parcost import Study
from parcost_plugins.vocabulary import Stream

StudyOf = Callable[..., Study]

ROWS, INNER, HIDDEN = 4096, 14_336, 4096
ACTIVATION = "activation of routed experts"


def streams(study: Study) -> dict[tuple[str, str], Stream]:
    return {(op.name, op.pass_): op for op in study.operators if isinstance(op, Stream)}


def mixtral(
    study_of: StudyOf,
    framework: str = "",
    *,
    model: str = "",
    extra: str = "",
    recompute: str = "",
    routing: str = "",
) -> dict[tuple[str, str], Stream]:
    study = study_of(
        f"use catalog.models.mixtral_8x7b\nmodel run extends mixtral_8x7b {{ {model} }}",
        training="framework = own, model = run",
        extra=f"""
        use catalog.frameworks.generic
        framework own extends generic {{ {framework} }}
        routing {{ distribution = balanced, {routing} }}
        recompute {{ {recompute} }}
        {extra}
        """,
    )
    return streams(study)


def test_an_activation_for_any_number_of_tokens_makes_its_elements_one_by_one(
    study_of: StudyOf,
) -> None:
    found = mixtral(study_of, "expert_activation = traced")
    forward, backward = found[ACTIVATION, "F"], found[ACTIVATION, "B"]
    # gate and up in, product out; gradient, gate and up in, two gradients out
    assert forward.bytes_ == 3 * 2 * ROWS * INNER
    assert backward.bytes_ == 5 * 2 * ROWS * INNER
    assert (forward.step_kind, forward.steps) == ("traced", ROWS * INNER)
    assert (backward.step_kind, backward.steps) == ("traced_gradient", 2 * ROWS * INNER)
    weights = found["gradients of routing weights", "B"]
    assert weights.bytes_ == 3 * 2 * ROWS * INNER


@pytest.mark.parametrize(
    "more", [{"routing": "capacity_factor = 1"}, {"extra": "kernels { cuda_graphs = iteration }"}]
)
def test_a_fixed_number_of_tokens_is_compiled_like_a_dense_activation(
    more: dict[str, str], study_of: StudyOf
) -> None:
    found = mixtral(study_of, "expert_activation = traced", **more)
    assert found[ACTIVATION, "F"].step_kind == ""
    assert ("gradients of routing weights", "B") not in found


def test_an_activation_in_the_product_is_no_kernel(study_of: StudyOf) -> None:
    found = mixtral(study_of, "expert_activation = in_product", model="clamped = on")
    assert not [name for name, _ in found if "activation" in name or "clamps" in name]


def test_clamps_of_gate_and_up(study_of: StudyOf) -> None:
    found = mixtral(study_of, model="clamped = on")
    forward, backward = (found["clamps of routed experts", pass_] for pass_ in "FB")
    # Two halves in and out. Backward: a half in and a mask out three times, two masks joined
    # into a third, and twice a gradient and a mask in and a gradient out.
    assert forward.bytes_ == 4 * 2 * ROWS * INNER
    assert backward.bytes_ == (3 * (2 + 1) + 3 + 2 * (2 + 1 + 2)) * ROWS * INNER
    assert (forward.steps, backward.steps) == (2 * ROWS * INNER, 5 * ROWS * INNER)
    for pass_ in "FB":
        assert found["clamps of routed experts, joined", pass_].bytes_ == 4 * 2 * ROWS * INNER


def test_clamps_are_made_again_with_the_activation(study_of: StudyOf) -> None:
    found = mixtral(study_of, model="clamped = on", recompute="activation = on")
    assert found["clamps of routed experts", "R"].bytes_ == 4 * 2 * ROWS * INNER


def test_biases_of_experts_expert_by_expert(study_of: StudyOf) -> None:
    found = mixtral(study_of, "expert_biases = eager", model="biases = on")
    name, one = "biases of routed experts", 2 * ROWS * HIDDEN
    product, total, joined = (
        [found[f"{name}, {part}", pass_] for pass_ in "FB"]
        for part in ("times routing weights", "added", "joined")
    )
    assert [op.bytes_ for op in product] == [one, 4 * one]
    assert [op.bytes_ for op in total] == [3 * one, 2 * one]
    assert [op.bytes_ for op in joined] == [2 * one, 2 * one]
    # Eight experts: a product and a sum each, two of both backward; one kernel joins them.
    assert [op.kernels for op in product] == [8, 16]
    assert [op.kernels for op in total] == [8, 16]
    assert [op.kernels for op in joined] == [1, 1]
    fused = mixtral(study_of, model="biases = on")
    assert not [key for key in fused if key[0].startswith(name)]
    # Transformer Engine's fused MLP has a kernel that reads the gradient of its output.
    name = "gradients of biases and routing weights", "B"
    in_product = mixtral(study_of, "expert_activation = in_product", model="biases = on")
    assert in_product[name].bytes_ == one
    assert name not in fused
    assert name not in mixtral(study_of, "expert_activation = in_product")


def test_eager_sums_of_copies_are_made_one_by_one(study_of: StudyOf) -> None:
    found = mixtral(study_of, "permutation = eager")
    there, back = found["token permutation", "B"], found["token unpermutation", "F"]
    assert (there.step_kind, there.steps) == ("indexed", ROWS * HIDDEN)
    assert (back.step_kind, back.steps) == ("scattered", ROWS * HIDDEN)
    fused = mixtral(study_of, "permutation = fused")
    assert fused["token permutation", "B"].kind == "permuted"
    # A token in for each two copies out.
    assert fused["token permutation", "F"].bytes_ == 1.5 * 2 * ROWS * HIDDEN
