"""What the sizes of heads and the length of sequences do to the rate of the fused core."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import parcost
from parcost import Study
from parcost.evaluation.judge import diagnose

H100 = 989e12  # bf16, dense


def study_of(model: str = "", kernels: str = "", sequence: float | str = 4096) -> Study:
    """Return Llama 3 8B on one device, with something added to its model and kernels."""
    (scenario,) = parcost.load_text(
        f"""
        use catalog.devices.h100_sxm
        use catalog.fabrics.hgx_h100
        use catalog.precisions.bf16
        use catalog.models.llama3_8b
        model own extends llama3_8b {{ {model} }}
        cluster {{ devices = 1 }}
        training {{ model = own, sequence = {sequence}, global_batch = 8 sequences, micro_batch = 1 }}
        kernels {{ {kernels} }}
        """
    )
    (study,) = scenario.studies()
    return study


def core_seconds(study: Study, pass_: str = "F") -> float:
    """Return the seconds of the fused core of a layer in one pass."""
    (term,) = [
        term
        for plugin, term in study.contributions("terms")
        if plugin.name == "kernel_pricing" and term.name == "attention core" and term.pass_ == pass_
    ]
    return term.seconds


def core_flops(heads: int, size: float, sequence: float) -> float:
    """Return 2 products of 2 s^2 / 2 FLOPs for each element of a head, forward."""
    return 2 * heads * sequence * sequence / 2 * 2 * size


def test_a_small_head_is_slower_and_a_large_one_is_not() -> None:
    large, small = study_of("head_dim = 128"), study_of("head_dim = 64")
    assert core_seconds(large) == pytest.approx(
        core_flops(32, 128, 4096) / (H100 * 0.65), rel=1e-12
    )
    assert core_seconds(small) == pytest.approx(
        core_flops(32, 64, 4096) / (H100 * 0.65 * 0.78), rel=1e-12
    )


def test_a_head_between_two_kernels_is_padded_to_the_larger() -> None:
    # FlashAttention 2 runs a head of 72 or 80 as one of 96, half way between 64 and 128.
    of_96 = core_flops(32, 96, 4096) / (H100 * 0.65 * (0.78 + 1) / 2)
    for size in (72, 80, 96):
        found = core_seconds(study_of(f"head_dim = {size}"))
        assert found == pytest.approx(of_96, rel=1e-12)
    assert core_seconds(study_of("head_dim = 160")) == pytest.approx(
        core_flops(32, 192, 4096) / (H100 * 0.65), rel=1e-12
    )
    # beyond the largest kernel nothing is known, and nothing is padded
    assert core_seconds(study_of("head_dim = 320")) == pytest.approx(
        core_flops(32, 320, 4096) / (H100 * 0.65), rel=1e-12
    )


def test_padding_counts_in_backward_by_its_five_products() -> None:
    model = "head_dim = 128, kv_lora = 512, nope_dim = 72, rope_dim = 64, v_dim = 72"
    # 136 is padded to 192 and 72 to 96: three products of the first, two of the second.
    study = study_of(model)
    pairs = 2 * 32 * 4096 * 4096 / 2
    assert core_seconds(study, "F") == pytest.approx(pairs * (192 + 96) / (H100 * 0.65), rel=1e-12)
    assert core_seconds(study, "B") == pytest.approx(
        pairs * (3 * 192 + 2 * 96) / (H100 * 0.55), rel=1e-12
    )


def test_latent_attention_has_the_rate_of_its_own_heads() -> None:
    # DeepSeek-V3: heads of 192 and 128, and not 7168 / 128 = 56.
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
    assert core_seconds(study) == pytest.approx(flops / (H100 * 0.65), rel=1e-12)


@pytest.mark.parametrize(
    ("sequence", "share"), [(256, 0.625), (512, 0.625), (1024, 0.75), (1280, 0.8125), (2048, 1)]
)
def test_the_rate_rises_from_short_to_long_sequences(sequence: int, share: float) -> None:
    expected = core_flops(32, 128, sequence) / (H100 * 0.65 * share)
    assert core_seconds(study_of(sequence=sequence)) == pytest.approx(expected, rel=1e-12)


def test_2048_tokens_are_not_faster_than_2040() -> None:
    short, long = study_of(sequence=2040), study_of(sequence=2048)
    assert core_seconds(short) < core_seconds(long)
    assert short.evaluate().step_seconds < long.evaluate().step_seconds


sizes = st.integers(min_value=1, max_value=400)


@settings(max_examples=min(25, settings().max_examples), deadline=None)
@given(
    lengths=st.lists(st.integers(min_value=1, max_value=500), min_size=2, max_size=12, unique=True),
    share=st.integers(min_value=25, max_value=100),
)
def test_no_token_is_worth_less_in_a_longer_sequence(lengths: list[int], share: int) -> None:
    # Even the time for each token rises: attention meets more, and gains less from its length.
    swept = ", ".join(f"{8 * n}" for n in sorted(lengths))
    study = study_of(kernels=f"short_sequence_efficiency = {share} %", sequence=f"[{swept}]")
    seconds = core_seconds(study)
    each = [s / (8 * n) for s, n in zip(seconds, sorted(lengths), strict=True)]  # type: ignore[call-overload]
    assert all(a <= b * (1 + 1e-12) for a, b in pairwise(each))


@settings(max_examples=min(25, settings().max_examples), deadline=None)
@given(
    heads=st.lists(sizes, min_size=2, max_size=12, unique=True),
    share=st.integers(min_value=50, max_value=100),
)
def test_no_larger_head_is_faster(heads: list[int], share: int) -> None:
    swept = ", ".join(map(str, sorted(heads)))
    study = study_of(f"head_dim = [{swept}]", f"small_head_efficiency = {share} %")
    seconds = list(core_seconds(study))  # type: ignore[call-overload]
    assert all(a <= b * (1 + 1e-12) for a, b in pairwise(seconds))


@pytest.mark.parametrize(
    ("kernels", "id_", "message"),
    [
        ("small_head = 128", "head-sizes-ascend", "a small head has 128, and a large one 128"),
        (
            "long_sequence = 100",
            "sequence-sizes-ascend",
            "a short sequence has 512, and a long one 100",
        ),
        (
            "small_head_efficiency = 40 %",
            "head-efficiency",
            "at 0.4 of the rate a head of 64 takes longer than one of 128",
        ),
        (
            "short_sequence_efficiency = 20 %",
            "sequence-efficiency",
            "at 0.2 of the rate a sequence of 512 takes longer than one of 2048",
        ),
    ],
)
def test_what_contradicts_itself_is_refused(kernels: str, id_: str, message: str) -> None:
    study = study_of(kernels=kernels)
    found = [
        diagnose(check, study)
        for _, check in study.contributions("checks")
        if check.id == id_ and not check.holds
    ]
    assert [one.message for one in found] == [message]
