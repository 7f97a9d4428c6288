"""What products, attention and streams reach: types, alignment, sizes, small heads."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

import parcost
from parcost import Study
from parcost.engine.rules import diagnose
from parcost_plugins.kernels.constant import ConstantKernels
from parcost_plugins.kernels.rates import CoreRate
from parcost_plugins.kernels.roofline import RooflineKernels
from parcost_plugins.kernels.tiled import TiledKernels
from parcost_plugins.vocabulary import FusedAttention, Gemm, Stream

from ..rows import try_each

StudyWith = Callable[..., Study]

# of the fp8 peak: the best product of an H100, and the share of it that is sustained
# An H100 in a run: of the best product, what it sustains, in fp8 and in bf16.
NARROW, WIDE = 0.779 * 0.83, 0.803 * 0.86
FP8 = "narrow = fp8"
# cuDNN on H100 with heads of 128 and 2048 keys of 4096 tokens before a query, on average
CORE = 1e12 / (989e12 * 0.676) * (1 + 249 / 2048)
WHOLE = "tile_fill = 0, wave_weight = 1, shape_efficiency = 1"


def gemm(m: float, n: float, k: float, role: str = "linear", pass_: str = "F") -> Gemm:
    return Gemm(name="p", m=m, n=n, k=k, pass_=pass_, count=(1.0,), role=role)  # type: ignore[arg-type]


def core(pass_: str = "F") -> FusedAttention:
    return FusedAttention(name="core", flops=1e12, pass_=pass_, count=(1.0,))  # type: ignore[arg-type]


def seconds(operator: object, study: Study, model: object = None) -> float:
    priced = (model or TiledKernels()).price(operator, study)  # type: ignore[attr-defined]
    assert priced is not None
    return float(priced.value)


# --- Types --------------------------------------------------------------------------------------


def test_linear_layers_and_experts_run_in_the_narrow_type_and_nothing_else(
    study_with: StudyWith,
) -> None:
    study = study_with("model = constant, shape_efficiency = 1", recipe=FP8)
    wide, narrow = 989e12 * WIDE, 1979e12 * NARROW
    for role, rate in (
        ("linear", narrow),
        ("expert", narrow),
        ("head", wide),
        ("router", wide),
        ("attention", wide),
    ):
        for pass_ in ("F", "B", "W", "R"):
            found = seconds(gemm(4096, 4096, 4096, role, pass_), study, ConstantKernels())
            assert found == pytest.approx(2 * 4096**3 / rate, rel=1e-12)
    assert seconds(core(), study, ConstantKernels()) == pytest.approx(CORE, rel=1e-12)


@pytest.mark.slow
def test_an_h100_multiplies_1_87_times_as_fast_in_fp8(study_with: StudyWith) -> None:
    wide, narrow = study_with("model = constant"), study_with("model = constant", recipe=FP8)
    product = gemm(4096, 4096, 4096)
    ratio = seconds(product, wide, ConstantKernels()) / seconds(product, narrow, ConstantKernels())
    assert ratio == pytest.approx(1.87, abs=0.005)
    # of which a step sees less: with 0.7 of it in products, 1.873 gains 1.484
    assert 1 / (1 - 0.7 + 0.7 / ratio) == pytest.approx(1.484, abs=0.002)


@pytest.mark.slow
def test_weight_gradients_and_attention_may_have_rates_of_their_own(study_with: StudyWith) -> None:
    wide_w = study_with(WHOLE, recipe=f"{FP8}, wide_weight_gradients = on")
    product = {p: seconds(gemm(4096, 4096, 4096, pass_=p), wide_w) for p in ("F", "W")}
    assert product["W"] > 1.7 * product["F"]
    fast = study_with(WHOLE, recipe=f"{FP8}, narrow_attention = on")
    # cuDNN in fp8 on H100: 54.9 % of the fp8 peak, and 545 keys that each block costs beside
    expected = 1e12 / (1979e12 * 0.549) * (1 + 545 / 2048)
    assert seconds(core(), fast) == pytest.approx(expected, rel=1e-12)
    # what a study says of attention is of bf16, and carries over as it does for products
    said = study_with(
        f"{WHOLE}, attention_forward_efficiency = 60 %", recipe=f"{FP8}, narrow_attention = on"
    )
    expected = 1e12 / (1979e12 * 0.6 * NARROW / WIDE)
    assert seconds(core(), said) == pytest.approx(expected, rel=1e-12)


@pytest.mark.slow
def test_an_efficiency_that_a_study_gives_carries_over_to_the_narrow_type(
    study_with: StudyWith,
) -> None:
    product = gemm(4096, 4096, 4096)
    given = study_with("model = constant, gemm_efficiency = 60 %", recipe=FP8)
    both = study_with(
        "model = constant, gemm_efficiency = 60 %, narrow_gemm_efficiency = 50 %", recipe=FP8
    )
    flops = 2 * 4096**3
    assert seconds(product, given, ConstantKernels()) == pytest.approx(
        flops / (1979e12 * 0.6 * NARROW / WIDE), rel=1e-12
    )
    assert seconds(product, both, ConstantKernels()) == pytest.approx(
        flops / (1979e12 * 0.5), rel=1e-12
    )


def test_a_thin_product_reads_narrow_operands_and_writes_wide_sums(study_with: StudyWith) -> None:
    study = study_with(
        f"{WHOLE}, memory_efficiency = 85 %", recipe=f"{FP8}, scale = 4 B, scale_block = 128"
    )
    bytes_ = (1 + 4 / 128) * (16 * 8192 + 8192 * 8192) + 2 * 16 * 8192
    for model in (TiledKernels(), RooflineKernels()):
        found = seconds(gemm(16, 8192, 8192), study, model)
        assert found == pytest.approx(bytes_ / (3.35e12 * 0.85), rel=1e-12)


def test_the_outer_layers_may_stay_wide(study_with: StudyWith) -> None:
    # 32 layers: the first two and the last stay in bf16
    study = study_with("model = constant", recipe=f"{FP8}, wide_first = 2, wide_last = 1")
    found = {
        (t.name, t.pass_): t
        for p, t in study.contributions("terms")
        if p.name == "kernels.operator_times" and t.name.startswith("QKV")
    }
    assert found["QKV projection", "F"].count[0] == pytest.approx(29)
    assert found["QKV projection in bf16", "F"].count[0] == pytest.approx(3)
    ratio = found["QKV projection in bf16", "F"].seconds / found["QKV projection", "F"].seconds
    assert ratio == pytest.approx(1979 * NARROW / (989 * WIDE), rel=1e-9)


@pytest.mark.parametrize(("recipe", "wide"), [("", 0), ("wide_first = 2", 2), ("wide_last = 3", 3)])
def test_either_end_may_stay_wide_by_itself(study_with: StudyWith, recipe: str, wide: int) -> None:
    study = study_with("model = constant", recipe=f"{FP8}, {recipe}")
    counts = {
        t.name: t.count[0]
        for p, t in study.contributions("terms")
        if p.name == "kernels.operator_times" and t.name.startswith("QKV") and t.pass_ == "F"
    }
    assert counts.pop("QKV projection") == pytest.approx(32 - wide)
    assert counts == ({"QKV projection in bf16": pytest.approx(wide)} if wide else {})


def test_a_device_without_the_narrow_type_is_refused(study_with: StudyWith) -> None:
    study = study_with(device="a100_sxm_80g", recipe=FP8)
    (found,) = [
        diagnose(c, study)
        for _, c in study.contributions("checks")
        if c.id == "no-peak" and not c.holds
    ]
    assert found.message == "device `a100_sxm_80g` has no fp8 peak"
    assert found.help == "choose a type that it has: fp32, tf32, fp16, bf16"


def study_on(device: str, recipe: str = "") -> Study:
    """Return Llama 3 8B on a card of round numbers, in fp8 where a recipe says so."""
    (scenario,) = parcost.load_text(
        f"""
        use catalog.fabrics.hgx_h100
        use catalog.precisions.bf16
        use catalog.models.llama3_8b
        device card {{
          memory = 80 GiB, memory_bandwidth = 1 TB/s, multiprocessors = 100
          bf16 = 100 TFLOPS dense, fp8 = 200 TFLOPS dense, fp4 = 400 TFLOPS dense
          matmul_efficiency = 80 %, fp8_matmul_efficiency = 70 %, memory_efficiency = 1
          {device}
        }}
        precision recipe extends bf16 {{ {recipe} }}
        cluster {{ devices = 1 }}
        training {{ precision = recipe, sequence = 4096, global_batch = 8 sequences }}
        kernels {{
          model = constant, shape_efficiency = 50 %, attention = unfused
        }}
        """
    )
    return scenario.studies()[0]


@try_each(
    "device, recipe, share",
    [
        ("", "", 100 * 0.8),
        ("sustained = 90 %", "", 100 * 0.8 * 0.9),
        ("sustained = 90 %", FP8, 200 * 0.7 * 0.9),  # of narrow products as well
        ("sustained = 90 %, narrow_sustained = 75 %", FP8, 200 * 0.7 * 0.75),
        ("narrow_sustained = 75 %", "", 100 * 0.8),
        ("narrow_sustained = 75 %", "narrow = fp4", 400 * 0.7 * 0.75),
        # a factor for each row or tensor, and for each block of 32
        ("block_matmul_efficiency = 60 %", FP8, 200 * 0.7),
        ("", f"{FP8}, narrow_rate = 50 %", 200 * 0.7 * 0.5),
        ("block_matmul_efficiency = 60 %", f"{FP8}, scale = 1 B, scale_block = 32", 200 * 0.6),
        ("block_matmul_efficiency = 60 %", f"{FP8}, scale = 1 B, scale_block = 2", 200 * 0.6),
        ("", f"{FP8}, scale = 1 B, scale_block = 32", 200 * 0.7),
    ],
)
def test_products_reach_what_the_device_sustains_in_their_type(
    device: str, recipe: str, share: float
) -> None:
    found = seconds(gemm(4096, 4096, 4096), study_on(device, recipe), ConstantKernels())
    assert found == pytest.approx(2 * 4096**3 / (share * 1e12 * 0.5), rel=1e-12)


# --- Shapes -------------------------------------------------------------------------------------


@try_each(
    "n, k, recipe, slower",
    [
        (4096, 4096, "", False),
        (4104, 4104, "", False),  # multiples of 8 in bf16
        (4100, 4096, "", True),
        (4096, 4100, "", True),
        (4104, 4104, FP8, True),  # and of 16 in fp8
        (4096, 4112, FP8, False),
    ],
)
def test_rows_that_start_anywhere_halve_the_rate(
    study_with: StudyWith, n: float, k: float, recipe: str, slower: bool
) -> None:
    strict = study_with(f"{WHOLE}, alignment = 16 B, misaligned_efficiency = 50 %", recipe=recipe)
    free = study_with(f"{WHOLE}, misaligned_efficiency = 1", recipe=recipe)
    product = gemm(4096, n, k)
    ratio = seconds(product, strict) / seconds(product, free)
    assert ratio == pytest.approx(2.0 if slower else 1.0, rel=1e-9)


@try_each(
    "n, k, times",
    [
        (4096, 4096, 1),
        (4098, 4096, 2),  # 8196 bytes: a multiple of 4
        (4097, 4096, 5),  # 8194 bytes
        (4096, 4097, 5),
        (4098, 4097, 5),  # the worse of the two
    ],
)
def test_odd_rows_are_slower_than_rows_that_are_copied_by_words(
    study_with: StudyWith, n: float, k: float, times: float
) -> None:
    strict = "misaligned_efficiency = 50 %, odd_efficiency = 20 %"
    free = "misaligned_efficiency = 1, odd_efficiency = 1"
    found = [seconds(gemm(4096, n, k), study_with(f"{WHOLE}, {w}")) for w in (strict, free)]
    assert found[0] / found[1] == pytest.approx(times, rel=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize(("head", "on_vectors"), [(128, 0), (104, 0), (108, 1), (225, 1)])
def test_heads_that_start_anywhere_run_on_vector_units(
    study_with: StudyWith, head: int, on_vectors: bool
) -> None:
    """Heads of 216 and 450 bytes are not a multiple of 16; 256 and 208 bytes are.

    An A100 has 312 TFLOPS in fp16 on tensor cores, and 19.5 in fp32 beside them.
    """
    share = f"misaligned_efficiency = {19.5 / 312}, odd_efficiency = {19.5 / 312}"
    free = "misaligned_efficiency = 1, odd_efficiency = 1"
    on_a100 = partial(study_with, device="a100_sxm_80g", compute="fp16")
    for n, k in ((8192, head), (head, 8192)):
        product = Gemm(
            name="p", m=8192, n=n, k=k, batch=64, pass_="F", count=(1.0,), role="attention"
        )  # type: ignore[arg-type]
        found = seconds(product, on_a100(f"{WHOLE}, {free}, misaligned_heads = vector"))
        as_tensors = seconds(product, on_a100(f"{WHOLE}, {free}"))
        at_that_rate = seconds(product, on_a100(f"{WHOLE}, {share}"))
        assert found == pytest.approx(at_that_rate, rel=1e-12)
        assert (found > 4 * as_tensors) == on_vectors
        linear = gemm(8192, n, k)
        assert seconds(linear, on_a100(f"{WHOLE}, {free}, misaligned_heads = vector")) == seconds(
            linear, on_a100(f"{WHOLE}, {free}")
        )


@pytest.mark.slow
def test_experts_pad_their_tokens(study_with: StudyWith) -> None:
    strict = study_with(f"{WHOLE}, misaligned_efficiency = 50 %, odd_efficiency = 50 %")
    free = study_with(f"{WHOLE}, misaligned_efficiency = 1, odd_efficiency = 1")
    odd = gemm(4096, 4096, 341.3, "expert", "W")
    assert seconds(odd, strict) == seconds(odd, free)
    # of a weight gradient alone: forward, K is their width; and of nobody else
    # where FLOPs bound it: of few tokens, a weight gradient takes as long as its sum is written
    for role, pass_ in (("expert", "F"), ("expert", "B"), ("linear", "W")):
        odd = gemm(4096, 4096, 34133.3, role, pass_)
        assert seconds(odd, strict) == pytest.approx(2 * seconds(odd, free), rel=1e-12)


@pytest.mark.slow
def test_a_roofline_fills_every_tile(study_with: StudyWith) -> None:
    study = study_with("gemm_efficiency = 80 %, memory_efficiency = 85 %")
    flops, bytes_ = 2 * 1793**2 * 4096, 2 * (2 * 1793 * 4096 + 1793**2)
    found = seconds(gemm(1793, 1793, 4096), study, RooflineKernels())
    assert found == pytest.approx(max(flops / (989e12 * 0.8), bytes_ / (3.35e12 * 0.85)), rel=1e-12)
    assert RooflineKernels().price(object(), study) is None
    copy = Stream(name="copy", bytes_=1e9, pass_="F", count=(1.0,))
    for operator in (core(), copy):
        assert seconds(operator, study, RooflineKernels()) == seconds(
            operator, study, TiledKernels()
        )


@pytest.mark.parametrize("model", [RooflineKernels(), TiledKernels()])
def test_small_products_reach_less_of_the_bandwidth(study_with: StudyWith, model: object) -> None:
    study = study_with(f"start = 0 s, {WHOLE}\n{BY_SIZE}")
    # 5 products of 200 x 8 by 8 x 4800, to 200 x 4800: a million elements each, 10 MB
    product = Gemm(name="p", m=200, n=4800, k=8, batch=5, pass_="F", count=(1.0,))
    assert seconds(product, study, model) == pytest.approx(10e6 / (3.35e12 * 0.75), rel=1e-9)


def test_the_ridge_of_an_h100_is_295_flop_per_byte(study_with: StudyWith) -> None:
    # a square product of side N has 2 N^3 FLOPs for 6 N^2 bytes: N / 3
    study = study_with("gemm_efficiency = 1, memory_efficiency = 1")
    below, above = 3 * 294.0, 3 * 297.0
    for side, bound in ((below, 6 * below**2 / 3.35e12), (above, 2 * above**3 / 989e12)):
        assert seconds(gemm(side, side, side), study, RooflineKernels()) == pytest.approx(
            bound, rel=1e-9
        )


# --- Streams ------------------------------------------------------------------------------------

BY_SIZE = """
  streaming small { size = 100 kB, efficiency = 30 % }
  streaming one { size = 1 MB, efficiency = 60 % }
  streaming ten { size = 10 MB, efficiency = 75 % }
  streaming large { size = 100 MB, efficiency = 85 % }
"""


@try_each(
    "bytes_, efficiency",
    [(1e3, 0.3), (1e6, 0.6), (10**6.5, 0.675), (10e6, 0.75), (100e6, 0.85), (5e9, 0.85)],
)
def test_small_streams_reach_less_of_the_bandwidth(
    study_with: StudyWith, bytes_: float, efficiency: float
) -> None:
    study = study_with(f"start = 0 s\n{BY_SIZE}")
    copy = Stream(name="copy", bytes_=bytes_, pass_="F", count=(1.0,))
    for model in (TiledKernels(), ConstantKernels()):
        found = seconds(copy, study, model)
        assert found == pytest.approx(bytes_ / (3.35e12 * efficiency), rel=1e-9)


def test_every_kernel_of_a_stream_starts_and_has_its_part_of_the_size(
    study_with: StudyWith,
) -> None:
    study = study_with(f"start = 3 us\n{BY_SIZE}")
    ten = Stream(name="ten", bytes_=10e6, kernels=10, pass_="F", count=(1.0,))
    # Ten kernels of 1 MB at 60 % of 3.35e12 B/s, each 3 us late.
    assert seconds(ten, study) == pytest.approx(10e6 / (3.35e12 * 0.6) + 30e-6, rel=1e-12)
    none = Stream(name="none", bytes_=10e6, kernels=0, pass_="F", count=(1.0,))
    assert seconds(none, study) == pytest.approx(10e6 / (3.35e12 * 0.75), rel=1e-12)


def test_a_stream_of_one_byte_is_at_a_point_of_one_byte(study_with: StudyWith) -> None:
    points = "streaming a { size = 1 B, efficiency = 25 % }\nstreaming b { size = 1 kB, efficiency = 50 % }"
    study = study_with(f"start = 0 s\n{points}")
    for bytes_ in (1.0, 0.0):
        copy = Stream(name="copy", bytes_=bytes_, pass_="F", count=(1.0,))
        assert seconds(copy, study) == pytest.approx(bytes_ / (3.35e12 * 0.25), rel=1e-12, abs=0)


def test_a_block_of_keys_costs_as_much_beside_a_single_key() -> None:
    # 6 keys beside 1, 3 and none
    assert [CoreRate(1.0, 1.0, fill=6.0, keys=keys).work for keys in (1.0, 3.0, 0.0)] == [7, 3, 7]


def test_kinds_of_kernels_have_a_share_of_the_rate(study_with: StudyWith) -> None:
    study = study_with("start = 0 s, memory_efficiency = 80 %, eager_norm_efficiency = 50 %")
    norm = Stream(name="norm", bytes_=1e9, kind="eager_norm", pass_="F", count=(1.0,))
    for model in (TiledKernels(), ConstantKernels(), RooflineKernels()):
        assert seconds(norm, study, model) == pytest.approx(1e9 / (3.35e12 * 0.4), rel=1e-12)


def test_two_streams_of_one_size_are_refused(study_with: StudyWith) -> None:
    study = study_with(
        "streaming a { size = 1 kB, efficiency = 60 % }\n streaming b { size = 1 kB, efficiency = 30 % }"
    )
    (found,) = [c for _, c in study.contributions("checks") if c.id == "streaming-ascends"]
    assert not found.holds


@pytest.mark.slow
def test_sizes_of_streams_ascend(study_with: StudyWith) -> None:
    study = study_with(
        "streaming a { size = 1 MB, efficiency = 60 % }\n streaming b { size = 1 kB, efficiency = 30 % }"
    )
    (found,) = [
        diagnose(c, study)
        for _, c in study.contributions("checks")
        if c.id == "streaming-ascends" and not c.holds
    ]
    assert found.message == (
        "the sizes of `streaming` blocks descend: `b` of 1000 B follows `a` of 1000000 B"
    )
