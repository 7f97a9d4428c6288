"""Kernel time by tile, wave and roofline.

A matrix product is cut into tiles, one per multiprocessor and wave. What does not fill
a tile, or the last wave, is paid for all the same; libraries that split work along the
inner dimension soften the last wave, by how much ``kernels.wave_weight`` says. The
kernel ends no sooner than its operands have come from memory.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from parcost import Formula, Real, Study, hookimpl
from parcost.numeric import INFINITY, maximum, minimum
from parcost_plugins.kernels.rates import attention, matmul, memory
from parcost_plugins.vocabulary import (
    Cluster,
    FusedAttention,
    Gemm,
    KernelChoice,
    Stream,
    Training,
)


class Tile(NamedTuple):
    """*m* x *n* outputs that one multiprocessor makes, and its rate beside the best tile's."""

    m: int
    n: int
    rate: float


# The tiles that cuBLAS chooses from, and their order of merit: NVIDIA, Matrix Multiplication
# Background User's Guide, section 2.3. A smaller tile reads its operands more often. The guide
# gives the order and no figures; how much slower each is, is assumed.
TILES = (
    Tile(256, 128, 1.0),
    Tile(128, 256, 1.0),
    Tile(128, 128, 0.95),
    Tile(256, 64, 0.9),
    Tile(64, 256, 0.9),
    Tile(64, 64, 0.7),
)
DEPTH = 64  # inner elements that a tile takes at a time

SOURCE = "NVIDIA, Matrix Multiplication Background User's Guide: tile and wave quantization"
ROOFLINE = "Williams et al. 2009, roofline"


class Tiled:
    """The model, offered as ``tiled``."""

    name = "tiled"

    def price(self, operator: Any, study: Study) -> tuple[Real, Formula] | None:
        """Return the seconds of one occurrence and how they come about."""
        if isinstance(operator, Gemm):
            return _gemm(operator, study)
        if isinstance(operator, FusedAttention):
            return _attention(operator, study)
        if isinstance(operator, Stream):
            return _stream(operator, study)
        return None


@hookimpl
def kernels() -> list[Tiled]:
    """Offer the model."""
    return [Tiled()]


def quantised(gemm: Gemm, multiprocessors: Real, wave_weight: Real, tiles: Any = TILES) -> Real:
    """Return the FLOPs that the best tile pays for, at the rate of the best tile of all."""
    m, n, batch = gemm.m, gemm.n, gemm.batch
    depth = -(-gemm.k // DEPTH) * DEPTH
    best: Real = INFINITY
    for tile_m, tile_n, rate in tiles:
        waves = batch * -(-m // tile_m) * -(-n // tile_n) / multiprocessors
        waves = waves + wave_weight * (-(-waves // 1) - waves)
        best = minimum(best, waves * (tile_m * tile_n / rate))
    return 2.0 * depth * multiprocessors * best


def _gemm(gemm: Gemm, study: Study) -> tuple[Real, Formula]:
    choice, device = study[KernelChoice], study[Cluster].device
    precision = study[Training].precision
    m, n, k, e, sms = gemm.m, gemm.n, gemm.k, precision.activation, device.multiprocessors
    peak, efficiency = matmul(choice, device, precision.compute)
    bandwidth, share = memory(choice, device)
    paid = quantised(gemm, sms, choice.wave_weight)
    bytes_ = gemm.batch * e * (m * k + k * n + m * n)
    seconds = maximum(paid / (peak * efficiency), bytes_ / (bandwidth * share)) + choice.launch
    formula = Formula(
        text="max(Q / (peak eta), g e (M K + K N + M N) / (B eta_m)) + launch, Q FLOPs in "
        "whole tiles and waves over S multiprocessors, 2 g M N K in the product",
        inputs={
            "M": (m, ""),
            "N": (n, ""),
            "K": (k, ""),
            "g": (gemm.batch, ""),
            "e": (e, "B"),
            "S": (sms, ""),
            "Q": (paid, "FLOP"),
            "peak": (peak, "FLOP/s"),
            "eta": (efficiency, ""),
            "B": (bandwidth, "B/s"),
            "eta_m": (share, ""),
            "launch": (choice.launch, "s"),
        },
        source=SOURCE,
    )
    return seconds, formula


def _attention(operator: FusedAttention, study: Study) -> tuple[Real, Formula]:
    choice, device = study[KernelChoice], study[Cluster].device
    peak, efficiency = attention(operator, choice, device, study[Training].precision.compute)
    formula = Formula(
        text="FLOPs / (peak eta) + launch",
        inputs={
            "FLOPs": (operator.flops, "FLOP"),
            "peak": (peak, "FLOP/s"),
            "eta": (efficiency, ""),
            "launch": (choice.launch, "s"),
        },
        source=operator.source,
    )
    return operator.flops / (peak * efficiency) + choice.launch, formula


def _stream(operator: Stream, study: Study) -> tuple[Real, Formula]:
    choice, device = study[KernelChoice], study[Cluster].device
    bandwidth, share = memory(choice, device)
    formula = Formula(
        text="bytes / (B eta_m) + launch",
        inputs={
            "bytes": (operator.bytes_, "B"),
            "B": (bandwidth, "B/s"),
            "eta_m": (share, ""),
            "launch": (choice.launch, "s"),
        },
        source=ROOFLINE,
    )
    return operator.bytes_ / (bandwidth * share) + choice.launch, formula
