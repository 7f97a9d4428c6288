"""Kernel time by tile, wave and roofline."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from parcost import Study
from parcost_plugins.kernels import tiled
from parcost_plugins.kernels.roofline import RooflineKernels
from parcost_plugins.kernels.tiled import TiledKernels
from parcost_plugins.vocabulary import FusedAttention, Gemm, KernelChoice, Stream, Tile

StudyWith = Callable[..., Study]

TILES = tuple(
    Tile(m=float(m), n=float(n), rate=rate)
    for m, n, rate in [
        (256, 128, 1.0),
        (128, 256, 1.0),
        (128, 128, 0.95),
        (256, 64, 0.9),
        (64, 256, 0.9),
        (64, 64, 0.7),
    ]
)
ONLY_256_BY_128 = TILES[:1]
PLAIN = "tile_fill = 0, wave_weight = 1, shape_efficiency = 1, gemm_efficiency = 80 %"


def gemm(m: float, n: float, k: float, *, batch: float = 1.0) -> Gemm:
    return Gemm(name="product", m=m, n=n, k=k, pass_="F", count=(1.0,), batch=batch)


def quantised_flops(
    product: Gemm,
    multiprocessors: float,
    wave_weight: float,
    tiles: Sequence[Tile] = TILES,
    fill: float = 0.0,
) -> float:
    m, n, k, batch = product.m, product.n, product.k, product.batch
    paid: float = tiled.tile_flops(
        m, n, k, batch, multiprocessors, wave_weight, tiles, depth=64.0, fill=fill
    ).value
    return paid


def seconds(operator: object, study: Study) -> float:
    priced = TiledKernels().price(operator, study)
    assert priced is not None
    return priced.value


def seconds_of(operator: Gemm, study: Study, model: str) -> float:
    priced = {"tiled": TiledKernels, "roofline": RooflineKernels}[model]().price(operator, study)
    assert priced is not None
    return float(priced.value)


@pytest.mark.parametrize(
    ("side", "tiles", "waves", "efficiency"), [(1792, 98, 1, 0.907), (1793, 120, 2, 0.454)]
)
def test_one_row_too_many_costs_a100_a_wave(
    side: float, tiles: int, waves: int, efficiency: float
) -> None:
    product = gemm(side, side, 4096)
    paid = quantised_flops(product, 108.0, 1.0, ONLY_256_BY_128)
    assert paid == waves * 108 * 256 * 128 * 2 * 4096
    assert product.flops / paid == pytest.approx(efficiency, abs=5e-4)
    whole_tiles = quantised_flops(product, 108.0, 0.0, ONLY_256_BY_128)
    assert whole_tiles == pytest.approx(tiles * 256 * 128 * 2 * 4096, rel=1e-12)


def test_eight_waves_on_an_h100(study_with: StudyWith) -> None:
    product = gemm(4096, 8192, 8192)
    found = seconds(product, study_with(PLAIN))
    assert found == pytest.approx(716.5517e-6, rel=1e-7)
    assert product.flops / (989e12 * 0.8) / found == pytest.approx(0.970, abs=5e-4)


def test_the_weight_of_the_last_wave_is_linear() -> None:
    product = gemm(1793, 1793, 4096)
    none, half, full = (
        quantised_flops(product, 108.0, w, ONLY_256_BY_128) for w in (0.0, 0.5, 1.0)
    )
    assert half == pytest.approx((none + full) / 2, rel=1e-12)


def test_the_inner_dimension_is_rounded_up_too() -> None:
    assert quantised_flops(gemm(256, 128, 65), 1.0, 1.0) == quantised_flops(
        gemm(256, 128, 128), 1.0, 1.0
    )


@pytest.mark.slow
def test_a_tile_waits_for_its_operands(study_with: StudyWith) -> None:
    product = gemm(256, 128, 512)
    waiting = quantised_flops(product, 1.0, 1.0, fill=128.0)
    assert waiting == 640 / 512 * quantised_flops(product, 1.0, 1.0)
    study = study_with(f"{PLAIN.replace('tile_fill = 0', 'tile_fill = 2048')}")
    whole = seconds(gemm(4096, 8192, 8192), study_with(PLAIN))
    assert seconds(gemm(4096, 8192, 8192), study) == pytest.approx(1.25 * whole, rel=1e-12)


def test_the_best_tile_is_taken() -> None:
    for m, n in [(64, 64), (64, 4096), (1793, 1793), (8192, 1280), (300, 5000)]:
        product = gemm(m, n, 1024)
        alone = [quantised_flops(product, 132.0, 0.5, (tile,)) for tile in TILES]
        assert quantised_flops(product, 132.0, 0.5) == min(alone)
    # nothing that fits in a small tile waits for a large one
    assert quantised_flops(gemm(64, 64, 64), 1.0, 1.0) == 2 * 64**3 / 0.7


@pytest.mark.slow
def test_the_tiles_of_every_study_are_those_of_cublas_and_a_study_may_have_others(
    study_with: StudyWith,
) -> None:
    tiles = study_with().blocks[KernelChoice][0].tiles
    assert [(t.m, t.n, t.rate) for t in tiles] == [(t.m, t.n, t.rate) for t in TILES]
    product = gemm(64, 64, 64 * 1024)
    slow = seconds(product, study_with(PLAIN))
    # one tile on one of 132 multiprocessors: its rate is all that matters
    fast = seconds(product, study_with(f"{PLAIN}, tile m64_n64 {{ rate = 100 % }}"))
    assert slow / fast == pytest.approx(1 / 0.7, rel=1e-12)
    deep = seconds(gemm(64, 64, 65), study_with(f"{PLAIN}, tile_depth = 128"))
    assert deep == seconds(gemm(64, 64, 65), study_with(PLAIN))
    deeper = seconds(gemm(64, 64, 65), study_with(f"{PLAIN}, tile_depth = 256"))
    assert deeper == pytest.approx(2 * deep, rel=1e-12)


def test_no_product_pays_for_less_than_it_multiplies() -> None:
    rng = np.random.default_rng(1)
    m, n, k = rng.integers(1, 20_000, (3, 1000)).astype(float)
    product = gemm(m, n, k)
    for weight in (0.0, 0.5, 1.0):
        assert np.all(quantised_flops(product, 132.0, weight) >= product.flops)


def test_a_batch_fills_waves_together() -> None:
    # 66 products of two 128 x 128 tiles fill the 132 multiprocessors once
    together = quantised_flops(gemm(256, 128, 64, batch=66), 132.0, 1.0)
    assert together == pytest.approx(132 * 128 * 128 / 0.95 * 2 * 64, rel=1e-12)
    assert together < 66 * quantised_flops(gemm(256, 128, 64), 132.0, 1.0)


def test_a_thin_product_waits_for_its_operands(study_with: StudyWith) -> None:
    study = study_with(f"{PLAIN}, memory_efficiency = 85 %")
    bytes_ = 2 * (16 * 8192 + 8192 * 8192 + 16 * 8192)
    assert seconds(gemm(16, 8192, 8192), study) == pytest.approx(
        bytes_ / (3.35e12 * 0.85), rel=1e-12
    )


def weight_gradient(m: float, n: float, k: float) -> Gemm:
    return Gemm(name="product", m=m, n=n, k=k, pass_="W", count=(1.0,))


@pytest.mark.parametrize("model", ["tiled", "roofline"])
def test_a_fused_weight_gradient_reads_and_writes_the_sum(
    study_with: StudyWith, model: str
) -> None:
    # An expert that has 128 tokens. Gradients of 4 bytes are read and written: 8 of an element.
    # Without fusion the product writes 2 bytes of an element; a kernel of its own adds them.
    small = f"{PLAIN}, model = {model}, memory_efficiency = 85 %"
    operands, result = 2 * (4096 * 128 + 128 * 7168), 4096 * 7168
    fused, apart = (
        seconds_of(weight_gradient(4096, 7168, 128), study_with(f"{small}, {choice}"), model)
        for choice in ("fused_accumulation = on", "fused_accumulation = off")
    )
    assert fused == pytest.approx((operands + 8 * result) / (3.35e12 * 0.85), rel=1e-12)
    assert apart == pytest.approx((operands + 2 * result) / (3.35e12 * 0.85), rel=1e-12)


def test_products_of_experts_in_kernels_of_their_own_fill_no_wave_together(
    study_with: StudyWith,
) -> None:
    # 66 products of two 128 x 128 tiles: one kernel fills the 132 multiprocessors once. A kernel of
    # one product is best cut into eight 64 x 64 tiles; partly filled waves count in full here.
    product = Gemm(
        name="product",
        m=256.0,
        n=128.0,
        k=65536.0,
        batch=66.0,
        role="expert",
        pass_="F",
        count=(1.0,),
    )
    tile = "tile m256_n128 { rate = 1 % }, tile m128_n256 { rate = 1 % }"
    made = f"{PLAIN.replace('80 %', '10 %')}, start = 2 us, {tile}"
    one = seconds(product, study_with(f"{made}, grouped_experts = on"))
    many = seconds(product, study_with(f"{made}, grouped_experts = off"))
    wave = 132 * 128 * 128 / 0.95 * 2 * 65536 / (989e12 * 0.1)
    assert one == pytest.approx(wave, rel=1e-12)
    alone = 132 * 64 * 64 / 0.7 * 2 * 65536 / (989e12 * 0.1)
    assert many == pytest.approx(66 * alone + 65 * 2e-6, rel=1e-12)


def test_the_device_s_own_efficiencies_are_the_default(study_with: StudyWith) -> None:
    # an H100: 80.3 % of 989e12 at best, of which a run holds 89 %; 89.6 % of 3.35e12 B/s; cuDNN, at 2048 keys on average
    study = study_with("start = 0 s, tile_fill = 0, wave_weight = 1, shape_efficiency = 92 %")
    waves = 8 * 132 * 256 * 128 * 2 * 8192
    expected = waves / (989e12 * 0.803 * 0.86 * 0.92)
    assert seconds(gemm(4096, 8192, 8192), study) == pytest.approx(expected, rel=1e-12)
    core = {
        pass_: seconds(FusedAttention(name="core", flops=1e12, pass_=pass_, count=(1.0,)), study)
        for pass_ in ("F", "B", "R")
    }
    forward, backward = 0.676 * 2048 / (2048 + 249), 0.604 * 2048 / (2048 + 518)
    assert core["F"] == core["R"] == pytest.approx(1e12 / (989e12 * forward), rel=1e-12)
    assert core["B"] == pytest.approx(1e12 / (989e12 * backward), rel=1e-12)
    copy = Stream(name="copy", bytes_=1e9, pass_="F", count=(1.0,))
    assert seconds(copy, study) == pytest.approx(1e9 / (3.35e12 * 0.896), rel=1e-12)


def test_a_study_s_efficiencies_stand_in_their_place(study_with: StudyWith) -> None:
    study = study_with(
        "start = 0 s, attention_forward_efficiency = 35 %,"
        "attention_backward_efficiency = 30 %, memory_efficiency = 50 %"
    )
    forward = FusedAttention(name="core", flops=1e12, pass_="F", count=(1.0,))
    backward = FusedAttention(name="core", flops=1e12, pass_="B", count=(1.0,))
    copy = Stream(name="copy", bytes_=1e9, pass_="F", count=(1.0,))
    assert seconds(forward, study) == pytest.approx(1e12 / (989e12 * 0.35), rel=1e-12)
    assert seconds(backward, study) == pytest.approx(1e12 / (989e12 * 0.30), rel=1e-12)
    assert seconds(copy, study) == pytest.approx(1e9 / (3.35e12 * 0.5), rel=1e-12)


@pytest.mark.slow
def test_a_non_operator_is_not_priced(study_with: StudyWith) -> None:
    assert TiledKernels().price(object(), study_with()) is None


@pytest.mark.slow
def test_arrays_cost_what_their_elements_cost(study_with: StudyWith) -> None:
    swept = study_with(micro_batch="[1, 2, 4, 8]")
    for i, micro_batch in enumerate((1, 2, 4, 8)):
        alone = study_with(micro_batch=str(micro_batch))
        for one, many in zip(alone.operators, swept.operators, strict=True):
            found = np.broadcast_to(seconds(many, swept), 4)[i]
            assert found == pytest.approx(seconds(one, alone), rel=1e-12)
