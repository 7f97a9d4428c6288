"""Adapters beside frozen weights: counts, passes, memory and traffic, each by hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from parcost import Once, Result, Study, Work
from parcost_plugins.vocabulary import Gemm
from parcost_plugins.vocabulary.causes import DATA

from ..evaluation import result as evaluate
from ..rows import try_each

StudyOf = Callable[..., Study]

HEAD = """
use catalog.devices.h100_sxm
use catalog.fabrics.hgx_h100
use catalog.quantizations.nf4
use catalog.quantizations.nf4_double
"""
ALL = "adapters { rank = 16 }"
ATTENTION = "gate = off, up = off, down = off"
TWO = f"adapters {{ rank = 16, key = off, output = off, {ATTENTION} }}"


def result(
    adapters: str = "",
    *,
    model: str = "llama3_8b",
    precision: str = "bf16",
    layout: str = "",
    devices: int = 8,
    training: str = "",
) -> Result:
    return evaluate(
        f"""{HEAD}
        use catalog.models.{model}
        use catalog.precisions.{precision}
        cluster  {{ devices = {devices} }}
        layout   {{ {layout} }}
        training {{ sequence = 2048, global_batch = {devices} sequences, {training} }}
        {adapters}
        """
    )


def figure(name: str, *args: Any, **named: Any) -> float:
    return float(result(*args, **named).figure(name))


def terms(study: Study, hook: str, name: str) -> list[Any]:
    return [term for _, term in study.contributions(hook) if term.name == name]


# --- counts -----------------------------------------------------------------------------------


@try_each(
    "model, rank, count",
    [
        ("llama3_70b", 8, 103_546_880),
        ("llama3_70b", 16, 207_093_760),
        ("llama3_70b", 64, 828_375_040),
        ("llama3_8b", 16, 41_943_040),
        ("qwen25_7b", 16, 40_370_176),
        ("qwen25_32b", 16, 134_217_728),
    ],
)
def test_all_linear_layers_have_known_numbers_of_adapter_parameters(
    study_of: StudyOf, model: str, rank: int, count: int
) -> None:
    study = study_of(model, extra=f"adapters {{ rank = {rank} }}")
    found = [p for p in study.parameters if p.adapter]
    assert sum(p.total * sum(p.count) for p in found) == count
    assert sum(p.elements * sum(p.count) for p in found) == count


def test_targets_and_fused_projections_choose_the_matrices(study_of: StudyOf) -> None:
    h, kv, f, layers, r = 4096, 1024, 14_336, 32, 16
    for adapters, each in (
        (TWO, (h + h) + (h + kv)),
        (f"adapters {{ rank = 16, {ATTENTION} }}", 2 * (h + h) + 2 * (h + kv)),
        ("adapters { rank = 16, fused = on }", (h + h + 2 * kv) + (h + h) + (h + 2 * f) + (f + h)),
    ):
        found = [p for p in study_of("llama3_8b", extra=adapters).parameters if p.adapter]
        assert sum(p.total * sum(p.count) for p in found) == layers * r * each
    head = "adapters { rank = 16, head = on }"
    (found,) = terms(study_of("llama3_8b", extra=head), "parameters", "adapter of head")
    assert found.total == r * (h + 128_256)


def test_the_model_and_what_is_trained_are_counted_apart() -> None:
    assert figure("trained_parameters", ALL) == 41_943_040
    assert figure("parameters", ALL) == figure("parameters")


# --- work -------------------------------------------------------------------------------------


def test_frozen_matrices_have_no_weight_gradient_and_adapters_have_both(study_of: StudyOf) -> None:
    full, study = study_of("llama3_8b"), study_of("llama3_8b", extra=ALL)

    def products(of: Study, pass_: str, adapter: bool) -> float:
        return sum(
            o.flops * sum(o.count)
            for o in of.operators
            if isinstance(o, Gemm) and o.pass_ == pass_ and (o.role == "adapter") == adapter
        )

    frozen = products(full, "F", False)
    assert [products(study, p, False) for p in "FBW"] == [frozen, products(full, "B", False), 0]
    thin = 2 * 2048 * 41_943_040
    assert [products(study, p, True) for p in "FBW"] == [thin, thin, thin]
    terms = [term for _, term in study.contributions("terms")]
    names = {term.name for term in terms if isinstance(term, Work) and term.pass_ == "W"}
    assert not [name for name in names if "embedding" in name]


def test_model_flops_are_four_per_frozen_and_six_per_adapter_parameter() -> None:
    matrices = 32 * (4096 * (2 * 4096 + 2 * 1024) + 3 * 4096 * 14_336) + 4096 * 128_256
    attention = 3 * 32 * 4 * 4096 * 2048 / 2  # half of the keys are masked
    assert figure("flops_per_token", ALL) == pytest.approx(
        4 * matrices + 6 * 41_943_040 + attention, rel=1e-6
    )
    # Llama-3 70B with LoRA runs at 2,643 tokens/s and 735 TFLOP/s per GPU: 278.09 GFLOP a token
    layer = 8192 * (2 * 8192 + 2 * 1024) + 3 * 8192 * 28_672
    assert 4 * (80 * layer + 8192 * 128_256) == pytest.approx(735e12 / 2643, rel=0.003)


def test_thin_adapters_leave_two_thirds_of_the_work_and_three_quarters_of_it_with_recompute() -> (
    None
):
    # Without the causal core, which has no weights, forward is 1 of 3 parts and dgrad another.
    for recompute, share in (("none", 2 / 3), ("full", 3 / 4)):

        def flops(adapters: str, recompute: str = recompute) -> float:
            study = result(adapters, training=f"recompute = {recompute}").study
            return sum(
                o.flops * sum(o.count)
                for o in study.operators
                if isinstance(o, Gemm) and o.role == "linear"
            )

        assert flops("adapters { rank = 1 }") / flops("") == pytest.approx(share, rel=0.02)


@pytest.mark.slow
def test_a_lower_rank_is_never_slower_and_full_training_never_faster() -> None:
    steps = [
        figure("step_time", f"adapters {{ rank = {rank}, {ATTENTION} }}") for rank in (8, 64, 512)
    ]
    assert steps == sorted(steps)
    assert steps[0] < figure("step_time", "") * 0.8


def test_a_quantized_base_is_dequantized_in_every_pass(study_of: StudyOf) -> None:
    study = study_of(
        "llama3_8b",
        training="recompute = full",
        extra="use catalog.quantizations.nf4_double\nadapters { rank = 16, base = nf4_double }",
    )
    found = terms(study, "operators", "matrices of the MLP, dequantized")
    assert [o.pass_ for o in found] == ["F", "B", "R"]
    bits = 4 + 8 / 64 + 32 / (64 * 256)
    assert found[0].bytes_ == pytest.approx(3 * 4096 * 14_336 * (bits / 8 + 2))
    (whole,) = terms(study, "memory", "dequantized matrix")
    assert whole.bytes_ == 2 * 4096 * 14_336


# --- memory -----------------------------------------------------------------------------------

FROZEN = 8_030_261_248
LINEAR = 32 * (4096 * (2 * 4096 + 2 * 1024) + 3 * 4096 * 14_336)
THIN = 41_943_040


@pytest.mark.slow
@try_each(
    "adapters, layout, weights, gradients, optimizer",
    [
        (ALL, "", 2 * FROZEN + 2 * THIN, 4 * THIN, 12 * THIN),
        (ALL, "zero = 1", 2 * FROZEN + 2 * THIN, 4 * THIN, 12 * THIN / 8),
        (ALL, "zero = 2", 2 * FROZEN + 2 * THIN, 4 * THIN / 8, 12 * THIN / 8),
        (ALL, "zero = 3", (2 * FROZEN + 2 * THIN) / 8, 4 * THIN / 8, 12 * THIN / 8),
        (
            "adapters { rank = 16, base = nf4 }",
            "",
            LINEAR * 4.5 / 8 + 2 * (FROZEN - LINEAR) + 2 * THIN,
            4 * THIN,
            12 * THIN,
        ),
        # Scales of bitsandbytes are whole on every rank: 1 B for 64 elements, 4 B for 64 x 256
        (
            "use catalog.quantizations.nf4_double\nadapters { rank = 16, base = nf4_double }",
            "zero = 3",
            LINEAR * (0.5 / 8 + 1 / 64 + 4 / 16_384) + (2 * (FROZEN - LINEAR) + 2 * THIN) / 8,
            4 * THIN / 8,
            12 * THIN / 8,
        ),
        (
            "use catalog.quantizations.nf4_torchao\nadapters { rank = 16, base = nf4_torchao }",
            "zero = 3",
            (LINEAR * (0.5 + 1 / 64 + 4 / 16_384) + 2 * (FROZEN - LINEAR) + 2 * THIN) / 8,
            4 * THIN / 8,
            12 * THIN / 8,
        ),
        (
            "adapters { rank = 16, weights = 4 B }",
            "",
            4 * FROZEN + 2 * THIN,
            4 * THIN,
            12 * THIN,
        ),
    ],
)
def test_only_adapters_have_gradients_and_optimizer_state(
    adapters: str, layout: str, weights: float, gradients: float, optimizer: float
) -> None:
    found = result(adapters, layout=layout)
    for name, bytes_ in (
        ("weights_memory", weights),
        ("gradients_memory", gradients),
        ("optimizer_memory", optimizer),
    ):
        assert float(found.figure(name)) == pytest.approx(bytes_, rel=1e-9), name


def kept_per_layer(study: Study) -> float:
    """Bytes that a layer keeps for backward, of one micro-batch."""
    return (
        sum(
            term.bytes_ * sum(term.count)
            for plugin, term in study.contributions("memory")
            if term.per_micro_batch
            and plugin.name.startswith("model.")
            and term.tag != "ends"
            and term.count[0] == 32
        )
        / 32
    )


def test_a_frozen_matrix_keeps_no_input(study_of: StudyOf) -> None:
    s, h, kv, f, r = 2048, 4096, 1024, 14_336, 16
    full = kept_per_layer(study_of("llama3_8b"))
    # The fused core reads its own output again: the output projection adds nothing to it.
    everything = kept_per_layer(study_of("llama3_8b", extra=ALL))
    assert everything == full + 7 * s * r * 2
    two = kept_per_layer(study_of("llama3_8b", extra=TWO))
    assert two == full - s * 2 * (h + f) + 2 * s * r * 2
    # A dropout keeps a copy of each input, of 2 B, and a mask, in place of the shared input.
    dropped = kept_per_layer(study_of("llama3_8b", extra="adapters { rank = 16, dropout = on }"))
    shared = s * 2 * (h + h + f)
    assert dropped == everything - shared + s * 3 * (6 * h + f)
    assert kv < h


def test_recomputed_layers_hold_what_adapters_keep_once(study_of: StudyOf) -> None:
    adapters = "adapters { rank = 16, dropout = on }"
    study = study_of("llama3_8b", training="recompute = full", extra=adapters)
    found = terms(study, "memory", "adapter of down, input after dropout, recomputed")
    assert [sum(term.count) for term in found] == [1]
    assert not terms(study, "memory", "adapter of down, input after dropout")


QLORA = """
precision qlora { compute = bf16, weights = 2 B, gradients = 2 B, optimizer = 8 B, activation = 2 B, update_traffic = 22 B }
"""


def test_qlora_of_65_billion_parameters_fits_on_a_device_of_48_gb() -> None:
    found = evaluate(
        f"""
        use catalog.devices.a40
        use catalog.fabrics.pcie4_roce_200g
        use catalog.models.llama1_65b
        use catalog.quantizations.nf4_double
        {QLORA}
        cluster  {{ devices = 1 }}
        layout   {{ tp = 1 }}
        training {{ sequence = 528, global_batch = 16 sequences, recompute = full }}
        adapters {{ rank = 64, base = nf4_double, dropout = on }}
        """
    )
    assert found.figure("memory") < 48e9
    weights = float(found.figure("weights_memory"))
    state = sum(float(found.figure(f"{of}_memory")) for of in ("gradients", "optimizer"))
    assert weights + state == pytest.approx(34.5e9 + 9.6e9, rel=0.01)


# --- communication ----------------------------------------------------------------------------


def test_gradients_of_adapters_alone_are_reduced() -> None:
    full, thin = figure("gradient_bytes"), figure("gradient_bytes", ALL)
    assert (full, thin) == (4 * FROZEN, 4 * THIN)
    assert figure("dp_volume", ALL) == pytest.approx(2 * 7 / 8 * 4 * THIN)
    assert figure("dp_volume", ALL, layout="zero = 1") == pytest.approx(7 / 8 * (4 + 2) * THIN)


@try_each(
    "base, bytes_",
    [("", 2 * FROZEN), (", base = nf4", LINEAR * 0.5 + 2 * (FROZEN - LINEAR))],
)
def test_full_sharding_gathers_frozen_weights_as_they_are_stored(base: str, bytes_: float) -> None:
    adapters = f"adapters {{ rank = 16{base} }}"
    once = bytes_ + 2 * THIN
    found = figure("dp_volume", adapters, layout="zero = 3")
    head = 2 * 4096 * 128_256 + 2 * 4096  # kept from forward to backward
    assert found == pytest.approx(7 / 8 * (2 * once - head + 4 * THIN), rel=1e-6)


def test_a_checkpoint_has_adapters_only() -> None:
    found = result(ALL + "\ncheckpoint { interval = 1800 s, storage = 10 GB/s }")
    assert float(found.figure("checkpoint.size")) == 14 * THIN


def test_the_interval_says_that_no_measured_run_had_adapters() -> None:
    for adapters, said in ((ALL, True), ("", False)):
        interval = result(adapters).interval("step_time")
        assert interval is not None
        assert ("none of them had adapters" in interval.basis) == said


@try_each("zero", [0, 1, 2])
def test_a_stage_without_adapters_sends_no_gradients(zero: int) -> None:
    """Six layers on eight stages: the first has the embedding alone, and the last the head."""
    found = result(
        f"""{ALL}
        model small extends llama3_8b {{ layers = 6 }}
        schedule {{ kind = interleaved, chunks = 4, count_embedding = on, count_head = on }}
        """,
        layout=f"pp = 2, zero = {zero}",
        training="model = small",
    )
    every = [term for _, term in found.study.contributions("terms")]
    sent = [term for term in every if isinstance(term, (Once, Work)) and term.cause is DATA]
    assert sent
    for term in sent:
        assert tuple(term.count) == (0.0, *[1.0] * 6, 0.0)
