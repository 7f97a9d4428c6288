"""What the kernel, the sizes of heads and the keys that a query meets do to the fused core."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import parcost
from parcost import Study
from parcost.engine.rules import diagnose
from parcost_plugins.vocabulary import Cluster

from ..rows import try_each

H100 = 989e12  # bf16, dense
# A kernel of round numbers: e (head of 64, head of 128) forward and backward, and its fills.
ROUND = """
attention_table round {
  auto = flash_2
  attention_kernel flash_2 {
    kernel = flash_2, forward_fill = 100, backward_fill = 300
    head_rate d64 { size = 64, forward = 30 %, backward = 20 % }
    head_rate d128 { size = 128, forward = 50 %, backward = 40 % }
  }
  attention_kernel flash_1 {
    kernel = flash_1
    head_rate d128 { size = 128, forward = 25 %, backward = 20 % }
  }
}
"""


def study_of(
    model: str = "",
    kernels: str = "",
    sequence: float | str = 4096,
    *,
    table: str = ROUND,
    device: str = "attention = round",
    more: str = "",
    training: str = "",
) -> Study:
    """Return Llama 3 8B on one device, with something added to its model and kernels."""
    (scenario,) = parcost.load_text(
        f"""
        use catalog.devices.h100_sxm
        use catalog.fabrics.hgx_h100
        use catalog.precisions.bf16
        use catalog.models.llama3_8b
        {table}
        device card extends h100_sxm {{ {device} }}
        model own extends llama3_8b {{ {model} }}
        cluster {{ device = card, devices = 1 }}
        training {{
          model = own, sequence = {sequence}, global_batch = 8 sequences, micro_batch = 1
          {training}
        }}
        kernels {{ {kernels} }}
        {more}
        """
    )
    (study,) = scenario.studies()
    return study


def core_seconds(study: Study, pass_: str = "F", name: str = "attention core") -> float:
    """Return the seconds of the fused core of a layer in one pass."""
    (term,) = [
        term
        for plugin, term in study.contributions("terms")
        if plugin.name == "kernels.operator_times" and term.name == name and term.pass_ == pass_
    ]
    return term.seconds


def core_flops(heads: int, size: float, sequence: float) -> float:
    """Return 2 products of 2 s^2 / 2 FLOPs for each element of a head, forward."""
    return 2 * heads * sequence * sequence / 2 * 2 * size


def problems(study: Study, id_: str) -> list[str]:
    """Return the messages of the rules called *id_* that are broken."""
    return [
        diagnose(check, study).message
        for _, check in study.contributions("checks")
        if check.id == id_ and not check.holds
    ]


# --- The keys that a query meets ----------------------------------------------------------------


@try_each("sequence", [256, 1024, 4096, 32768])
def test_the_rate_rises_with_the_keys_that_a_query_meets(sequence: int) -> None:
    # Half of a causal sequence: e k / (k + fill) at k = s / 2, forward and backward
    study, keys = study_of(sequence=sequence), sequence / 2
    flops = core_flops(32, 128, sequence)
    forward, backward = 0.5 * keys / (keys + 100), 0.4 * keys / (keys + 300)
    assert core_seconds(study) == pytest.approx(flops / (H100 * forward), rel=1e-12)
    assert core_seconds(study, "B") == pytest.approx(2.5 * flops / (H100 * backward), rel=1e-12)


@pytest.mark.slow
def test_a_window_and_documents_leave_few_keys() -> None:
    # Documents of 512 tokens: 256 keys on average
    packed = study_of(training="document = 512")
    flops = 2 * 32 * 4096 * 256 * 2 * 128
    assert core_seconds(packed) == pytest.approx(flops / (H100 * 0.5) * (1 + 100 / 256), rel=1e-12)
    # a window of 128: 128 keys, but for the first tokens 128 - 128^2 / (2 x 4096) = 126
    windowed = study_of("window = 128")
    flops = 2 * 32 * 4096 * 126 * 2 * 128
    found = core_seconds(windowed, name="attention core in a window")
    assert found == pytest.approx(flops / (H100 * 0.5) * (1 + 100 / 126), rel=1e-12)


def test_models_of_transformers_run_flash_attention_2_under_deepspeed() -> None:
    """Their layers import flash_attn, though other frameworks take cuDNN on an H100."""
    use = "use catalog.frameworks.deepspeed\n"
    study = study_of(table=use, device="", training="framework = deepspeed")
    # 137.44 GFLOP at 989 TFLOPS x 36 % x 2048 / 2211; 343.6 GFLOP x 31.8 % x 2048 / 2448
    assert core_seconds(study) == pytest.approx(416.7e-6, rel=1e-3)
    assert core_seconds(study, "B") == pytest.approx(1306e-6, rel=1e-3)


def test_attention_in_both_directions_meets_all_keys() -> None:
    study = study_of("causal = off")
    flops = 2 * core_flops(32, 128, 4096)
    assert core_seconds(study) == pytest.approx(flops / (H100 * 0.5) * (1 + 100 / 4096), rel=1e-12)


@pytest.mark.parametrize(("algorithm", "blocks"), [("ring", 4), ("all_gather", 1), ("ulysses", 1)])
def test_a_ring_gives_a_kernel_one_block_of_keys(algorithm: str, blocks: int) -> None:
    text = f"layout {{ cp = 4 }}\ncontext {{ algorithm = {algorithm} }}"
    more = f"cluster {{ device = card, devices = 4 }}\n{text}"
    study = study_of(sequence=8192, more=more.partition("\n")[2])
    flops = core_flops(32, 128, 8192) / 4
    expected = flops / (H100 * 0.5) * (1 + 100 / (4096 / blocks))
    assert core_seconds(study) == pytest.approx(expected, rel=1e-12)


# --- The size of heads --------------------------------------------------------------------------


def test_a_head_between_two_that_were_measured_is_between_them() -> None:
    # 72 and 80 are padded to 96, half way between 64 and 128: 40 % of the peak
    fill = 1 + 100 / 2048
    of_96 = core_flops(32, 96, 4096) / (H100 * 0.4) * fill
    for size in (72, 80, 96):
        assert core_seconds(study_of(f"head_dim = {size}")) == pytest.approx(of_96, rel=1e-12)
    # beyond those that were measured nothing changes: 32 as 64, 192 as 128
    for size, kernel, share in ((32, 32, 0.3), (64, 64, 0.3), (160, 192, 0.5), (320, 320, 0.5)):
        expected = core_flops(32, kernel, 4096) / (H100 * share) * fill
        assert core_seconds(study_of(f"head_dim = {size}")) == pytest.approx(expected, rel=1e-12)


def test_heads_without_a_width_are_not_padded() -> None:
    (scenario,) = parcost.load_text(
        """
        use catalog.devices.h100_sxm
        use catalog.fabrics.hgx_h100
        use catalog.precisions.bf16
        model nominal { layers = 4, parameters = 1 G, heads = 8 }
        cluster { devices = 1 }
        training { sequence = 4096, global_batch = 8 sequences }
        """
    )
    (study,) = scenario.studies()
    assert core_seconds(study) == core_seconds(study, "B") == 0


def test_padding_counts_in_backward_by_its_five_products() -> None:
    model = "head_dim = 128, kv_lora = 512, nope_dim = 72, rope_dim = 64, v_dim = 72"
    # 136 is padded to 192 and 72 to 96, on average 144: three products of the first, two of
    # the second
    study = study_of(model)
    pairs = 2 * 32 * 4096 * 4096 / 2
    assert core_seconds(study, "F") == pytest.approx(
        pairs * (192 + 96) / (H100 * 0.5) * (1 + 100 / 2048), rel=1e-12
    )
    assert core_seconds(study, "B") == pytest.approx(
        pairs * (3 * 192 + 2 * 96) / (H100 * 0.4) * (1 + 300 / 2048), rel=1e-12
    )


def test_latent_attention_has_the_rate_of_its_own_heads() -> None:
    # DeepSeek-V3: heads of 192 and 128, on average 160, and not 7168 / 128 = 56. cuDNN reaches
    # 67.5 % of an H100 with them, and 249 keys beside.
    (scenario,) = parcost.load_text(
        """
        use catalog.devices.h100_sxm
        use catalog.fabrics.hgx_h100
        use catalog.precisions.bf16
        use catalog.models.deepseek_v3
        cluster { devices = 1 }
        training { sequence = 4096, global_batch = 8 sequences, micro_batch = 1 }
        """
    )
    (study,) = scenario.studies()
    flops = 2 * 128 * 4096 * 4096 / 2 * (192 + 128)
    expected = flops / (H100 * 0.675) * (1 + 249 / 2048)
    assert core_seconds(study) == pytest.approx(expected, rel=1e-12)


# --- Kernels by name ----------------------------------------------------------------------------


def test_a_study_names_its_kernel() -> None:
    usual, older = study_of(), study_of(kernels="attention = flash_1")
    assert core_seconds(study_of(kernels="attention = flash_2")) == core_seconds(usual)
    assert core_seconds(older) == pytest.approx(core_flops(32, 128, 4096) / (H100 * 0.25))


@try_each(
    "framework, device, name",
    [
        ("megatron_core", "a100_sxm_80g", "flash_2"),  # Transformer Engine's choice
        ("megatron_core", "h100_sxm", "cudnn"),
        ("torchtitan", "h100_sxm", "cudnn"),
        ("torchtitan_0_1", "h100_sxm", "flash_2"),
        ("fsdp_composer", "h100_sxm", "flash_2"),
        ("fsdp_composer", "mi300x", "aiter"),  # which has no FlashAttention 2 in the catalogue
    ],
)
def test_a_framework_has_a_kernel_of_its_own(framework: str, device: str, name: str) -> None:
    steps = []
    for chosen in (f"framework = {framework}", ""):
        (scenario,) = parcost.load_text(
            f"""
            use catalog.devices.{device}
            use catalog.fabrics.hgx_h100
            use catalog.precisions.bf16
            use catalog.models.llama3_8b
            use catalog.frameworks.{framework}
            cluster {{ devices = 1 }}
            training {{ sequence = 4096, global_batch = 8 sequences, {chosen} }}
            kernels {{ {"" if chosen else f"attention = {name}"} }}
            """
        )
        steps.append(core_seconds(scenario.studies()[0]))
    assert steps[0] == steps[1]


def test_a_framework_that_writes_its_scores_does_so_unless_a_study_says_otherwise() -> None:
    text = "use catalog.frameworks.megatron_lm_2021"
    framework = "framework = megatron_lm_2021"
    unfused = study_of(table=f"{text}\n{ROUND}", training=framework)
    fused = study_of(table=f"{text}\n{ROUND}", training=framework, kernels="attention = flash_1")
    names = [{operator.name for operator in study.operators} for study in (unfused, fused)]
    assert "attention scores" in names[0]
    assert "attention core" not in names[0]
    assert "attention scores" not in names[1]
    assert "attention core" in names[1]


def test_a_device_with_less_power_has_a_share_of_the_rate() -> None:
    full = study_of()
    less = study_of(device="attention = round, attention_efficiency = 80 %")
    assert core_seconds(less) == pytest.approx(core_seconds(full) / 0.8, rel=1e-12)


def test_an_efficiency_of_the_study_holds_at_any_size_and_length() -> None:
    given = "attention_forward_efficiency = 42 %, attention_backward_efficiency = 37 %"
    for model, size, sequence in (("head_dim = 64", 64, 512), ("", 128, 8192)):
        study, flops = study_of(model, given, sequence), core_flops(32, size, sequence)
        assert core_seconds(study) == pytest.approx(flops / (H100 * 0.42), rel=1e-12)
        assert core_seconds(study, "B") == pytest.approx(2.5 * flops / (H100 * 0.37), rel=1e-12)


def test_unfused_attention_is_products_and_passes_over_the_scores() -> None:
    off, named = study_of(training="flash_attention = off"), study_of(kernels="attention = unfused")
    ledgers = [
        {
            (term.name, term.pass_): term.seconds
            for plugin, term in study.contributions("terms")
            if plugin.name == "kernels.operator_times"
        }
        for study in (off, named)
    ]
    assert ledgers[0] == ledgers[1]
    assert ("attention scores", "F") in ledgers[0]
    assert off.evaluate().step_seconds == named.evaluate().step_seconds
    held = [
        sum(memory.bytes_ for _, memory in study.contributions("memory") if "prob" in memory.name)
        for study in (off, named, study_of())
    ]
    assert held[0] == held[1] > held[2] == 0


@pytest.mark.parametrize(
    ("kernels", "training", "id_", "message"),
    [
        (
            "attention = cudnn",
            "",
            "no-attention-kernel",
            "device `card` has no measured rate of the attention kernel `cudnn`",
        ),
        (
            "attention = flash_1",
            "flash_attention = off",
            "contradictory-attention",
            (
                "`flash_1` does not write scores to memory, but `flash_attention = off` means that attention writes them"
            ),
        ),
    ],
)
def test_a_kernel_that_does_not_fit_is_refused(
    kernels: str, training: str, id_: str, message: str
) -> None:
    study = study_of(kernels=kernels, training=training)
    assert problems(study, id_) == [message]


def test_a_kernel_without_an_fp8_rate_is_refused_only_where_attention_runs_in_it() -> None:
    recipe = "precision recipe extends bf16 { narrow = fp8, narrow_attention = %s }"
    found = [
        problems(study_of(training="precision = recipe", more=recipe % word), "no-attention-kernel")
        for word in ("on", "off")
    ]
    assert found == [
        ["device `card` has no measured rate of the attention kernel `flash_2` in fp8"],
        [],
    ]


BARE = """
device bare {
  memory = 80 GiB, memory_bandwidth = 1 TB/s, bf16 = 100 TFLOPS dense, multiprocessors = 100
  matmul_efficiency = 1, memory_efficiency = 1
}
use catalog.fabrics.hgx_h100
use catalog.precisions.bf16
use catalog.models.llama3_8b
cluster { device = bare, devices = 1 }
training { sequence = 4096, global_batch = 8 sequences }
"""


def test_a_device_without_a_table_needs_what_a_study_says() -> None:
    (report,) = parcost.load_text(BARE)
    (found,) = [d for d in report.evaluate().result.diagnostics if d.id == "no-attention-kernel"]
    assert found.message == "device `bare` has no measured rate of an attention kernel"
    assert "attention_forward_efficiency" in (found.help or "")
    given = "kernels { attention_forward_efficiency = 50 %, attention_backward_efficiency = 40 % }"
    for kernels in (given, "kernels { attention = unfused }"):
        (report,) = parcost.load_text(f"{BARE}\n{kernels}")
        assert "no-attention-kernel" not in [d.id for d in report.evaluate().result.diagnostics]


@pytest.mark.parametrize(
    ("heads", "id_", "message"),
    [
        (
            (
                "head_rate d128 { size = 128, forward = 50 %, backward = 40 % }\n"
                "head_rate d64 { size = 64, forward = 30 %, backward = 30 % }"
            ),
            "head-sizes-ascend",
            "head sizes must ascend: 64 follows 128",
        ),
        (
            (
                "head_rate d64 { size = 64, forward = 20 %, backward = 30 % }\n"
                "head_rate d128 { size = 128, forward = 50 %, backward = 40 % }"
            ),
            "head-efficiency",
            "at 0.2 of the peak, head size 64 takes longer than head size 128",
        ),
        ("", "no-head-rate", "`flash_2` needs a rate for at least one head size"),
    ],
)
def test_rates_that_contradict_themselves_are_refused(heads: str, id_: str, message: str) -> None:
    table = (
        "attention_table round { auto = flash_2\nattention_kernel flash_2 { kernel = flash_2\n"
        f"{heads}\n}} }}"
    )
    assert problems(study_of(table=table), id_) == [message]


@pytest.mark.parametrize(
    ("size", "efficiency", "broken"),
    [
        # half the rate for half the size takes as long as padding does
        (64, 25, {}),
        (64, 24, {"head-efficiency": 1}),
        # of equal heads neither is padded to the other
        (128, 25, {"head-sizes-ascend": 1}),
    ],
)
def test_a_small_head_takes_as_long_as_one_padded_to_the_larger(
    size: int, efficiency: int, broken: dict[str, int]
) -> None:
    table = (
        "attention_table round { auto = flash_2\nattention_kernel flash_2 { kernel = flash_2\n"
        f"head_rate small {{ size = {size}, forward = {efficiency} %, backward = 40 % }}\n"
        "head_rate large { size = 128, forward = 50 %, backward = 40 % } } }"
    )
    study = study_of(table=table)
    found = {id_: len(problems(study, id_)) for id_ in ("head-efficiency", "head-sizes-ascend")}
    assert {id_: count for id_, count in found.items() if count} == broken


def test_a_kernel_that_a_device_lacks_is_refused_with_those_that_it_has() -> None:
    study = study_of(kernels="attention = flash_3")
    (check,) = [c for _, c in study.contributions("checks") if c.id == "no-attention-kernel"]
    assert not check.holds
    assert diagnose(check, study).help == "choose a kernel that it has: flash_2, flash_1"


@try_each(
    "flash, kernel, holds",
    [
        ("on", "flash_2", True),
        ("on", "unfused", True),
        ("off", "flash_2", False),
        ("off", "unfused", True),
        ("off", "auto", True),
    ],
)
def test_a_fused_kernel_contradicts_stored_scores(flash: str, kernel: str, holds: bool) -> None:
    study = study_of(kernels=f"attention = {kernel}", training=f"flash_attention = {flash}")
    (check,) = [c for _, c in study.contributions("checks") if c.id == "contradictory-attention"]
    assert check.holds is holds


# --- Laws ---------------------------------------------------------------------------------------


sizes = st.integers(min_value=1, max_value=400)


@pytest.mark.slow
@settings(max_examples=min(25, settings().max_examples), deadline=None)
@given(
    lengths=st.lists(st.integers(min_value=1, max_value=500), min_size=2, max_size=12, unique=True),
    kernel=st.sampled_from(["flash_1", "flash_2"]),
)
def test_no_token_is_worth_less_in_a_longer_sequence(lengths: list[int], kernel: str) -> None:
    # Even the time for each token rises: attention meets more, and gains less from its length.
    swept = ", ".join(f"{8 * n}" for n in sorted(lengths))
    study = study_of(kernels=f"attention = {kernel}", sequence=f"[{swept}]")
    seconds = core_seconds(study)
    each = [s / (8 * n) for s, n in zip(seconds, sorted(lengths), strict=True)]  # type: ignore[call-overload]
    assert all(a <= b * (1 + 1e-12) for a, b in pairwise(each))


@pytest.mark.slow
@settings(max_examples=min(25, settings().max_examples), deadline=None)
@given(heads=st.lists(sizes, min_size=2, max_size=12, unique=True))
def test_no_larger_head_is_faster(heads: list[int]) -> None:
    swept = ", ".join(map(str, sorted(heads)))
    study = study_of(f"head_dim = [{swept}]")
    seconds = list(core_seconds(study))  # type: ignore[call-overload]
    assert all(a <= b * (1 + 1e-12) for a, b in pairwise(seconds))


@pytest.mark.parametrize("least", [1e-30, 1e-17, 0.4])
def test_a_rate_of_the_table_holds_to_the_last_digit_however_far_the_next_is(least: float) -> None:
    """A backward pass at 1e-30 of the peak is slow; it is not one that never ends."""
    table = ROUND.replace("backward = 40 %", f"backward = {least}")
    study = study_of("head_dim = 128", table=table)
    table_ = study[Cluster].device.attention
    assert table_ is not None
    kernel = table_.find("flash_2", "wide")
    assert kernel is not None
    assert kernel.efficiency(128, backward=True) == least


@pytest.mark.parametrize(("pass_", "share", "work"), [("F", 0.426, 1.0), ("B", 0.255, 2.5)])
def test_triton_without_code_for_hopper_gains_by_multiprocessors_and_clock(
    pass_: str, share: float, work: float
) -> None:
    """Triton of 2023: an A100's 133 TFLOP/s forward, on 132 in place of 108 and at 1,980 MHz."""
    study = study_of("", "attention = triton_1", 65536, device="")
    a100 = share * 312e12
    seconds = work * core_flops(32, 128, 65536) / (a100 * 132 / 108 * 1980 / 1410)
    assert core_seconds(study, pass_) == pytest.approx(seconds, rel=0.015)
