"""Kernel time by tile, wave and roofline.

A GEMM is split into tiles, one per SM and wave, of the fastest tile size in ``kernels``. Partial
tiles and a partial last wave take the full time. Libraries that split GEMMs along K shorten the
last wave, by ``kernels.wave_weight``. Each tile also loads its first operands and writes its
result, which takes as long as ``kernels.tile_fill`` elements of K. The kernel takes at least the
time to read its operands and write its result. Experts with separate kernels do not share tiles or
waves.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial
from typing import Any

from parcost import (
    Formula,
    Operator,
    Real,
    Study,
    attribute,
    formula,
    hookimpl,
    pure_function,
)
from parcost.numeric import any_of, minimum, where
from parcost_plugins.kernels.rates import (
    KernelMachine,
    explain_matmul,
    explain_memory,
    explain_result_traffic,
    matmul,
    memory,
    result_traffic,
    sizes,
)
from parcost_plugins.kernels.roofline import RooflineKernels
from parcost_plugins.physics.run_choices import heads_on_vectors, runs_experts_apart
from parcost_plugins.vocabulary import Device, Gemm, KernelChoice, Precision, Tile

SOURCE = "NVIDIA, Matrix Multiplication Background User's Guide: tile and wave quantization"


class TiledKernels(RooflineKernels):
    """GEMMs by tile and wave, other operators by memory traffic."""

    name = "tiled"

    def price(self, operator: Operator, study: Study) -> Formula | None:
        """Return the seconds of one occurrence with its formula."""
        if not isinstance(operator, Gemm):
            return super().price(operator, study)
        again = "F" if operator.pass_ == "R" else operator.pass_
        size = (operator.m, operator.n, operator.k, operator.batch)
        what = (again, operator.role, operator.wide)
        kernels: Real = 1.0
        if operator.role == "expert":
            kernels = where(runs_experts_apart(study) > 0, operator.batch, 1.0)
        vectors = operator.role == "attention" and heads_on_vectors(study)
        machine = KernelMachine.from_study(study)
        return study.query(_product, *machine, *size, *what, kernels, vectors)


@hookimpl
def kernels() -> list[TiledKernels]:
    """Return the kernel model of this module."""
    return [TiledKernels()]


def tile_flops(
    m: Real,
    n: Real,
    k: Real,
    batch: Real,
    multiprocessors: Real,
    wave_weight: Real,
    tiles: Sequence[Tile],
    *,
    depth: Real,
    fill: Real = 0.0,
    origins: Callable[[], Mapping[str, Any]] | None = None,
) -> Formula:
    """Return the effective FLOPs of the best tile, padding included, at the best tile's rate.

    A tile processes *depth* elements of K at a time; filling its pipeline takes as long as *fill*
    elements. *origins* returns formulas of some symbols.
    """
    count = "g ceil(M / m) ceil(N / n) / S"
    return formula(
        f"2 (ceil(K / d) d + f) S min(({count} + y (ceil({count}) - {count})) m n / r), tiles of "
        "m x n at a rate r in waves over S multiprocessors",
        M=m,
        N=n,
        K=k,
        g=batch,
        S=multiprocessors,
        y=wave_weight,
        d=depth,
        f=fill,
        m=[tile.m for tile in tiles],
        n=[tile.n for tile in tiles],
        r=[tile.rate for tile in tiles],
        origins=origins,
    )


@pure_function
def _product(
    device: Device,
    choice: KernelChoice,
    precision: Precision,
    fused: bool,
    m: Real,
    n: Real,
    k: Real,
    batch: Real,
    pass_: Any,
    role: Any,
    wide: bool,
    kernels: Real,
    vectors: bool,
) -> Formula:
    machine = KernelMachine(device, choice, precision, fused)
    gemm = Gemm(name="", m=m, n=n, k=k, batch=batch, pass_=pass_, role=role, wide=wide, count=())
    operand, result, width = sizes(gemm, precision)
    traffic, each = result_traffic(gemm, machine), batch / kernels
    sms = device.multiprocessors
    peak, efficiency = matmul(gemm, machine)
    efficiency = efficiency * _alignment(gemm, width, result, machine, vectors=vectors)
    paid = tile_flops(
        m,
        n,
        k,
        each,
        sms,
        choice.wave_weight,
        choice.tiles,
        depth=choice.tile_depth,
        fill=choice.tile_fill,
        origins=partial(_tile_origins, device, choice),
    )
    bytes_ = each * (operand * (m * k + k * n) + traffic * m * n)
    bandwidth, share = memory(bytes_, machine)
    one = "max(Q / (peak eta), g (e (M K + K N) + r M N) / (B eta_m))"
    symbols = {"q": kernels, "start": (choice.start, "s")} if role == "expert" else {}
    return formula(
        f"q {one} + (q - 1) start, q kernels, Q FLOPs of each in whole tiles and waves"
        if symbols
        else f"{one}, Q FLOPs in whole tiles and waves, 2 g M N K in the product",
        symbols,
        M=m,
        N=n,
        K=k,
        g=each,
        e=(operand, "B"),
        r=(traffic, "B"),
        Q=(paid, "FLOP"),
        peak=(peak, "FLOP/s"),
        eta=efficiency,
        B=(bandwidth, "B/s"),
        eta_m=share,
        source=SOURCE,
        origins=partial(_origins, gemm, bytes_, machine, vectors=vectors),
    )


@lru_cache(maxsize=8)  # every product of a study has the same
def _tile_origins(device: Device, choice: KernelChoice) -> dict[str, Any]:
    return {
        "S": attribute(device, "multiprocessors"),
        "y": attribute(choice, "wave_weight"),
        "d": attribute(choice, "tile_depth"),
        "f": attribute(choice, "tile_fill"),
        "m": [attribute(tile, "m") for tile in choice.tiles],
        "n": [attribute(tile, "n") for tile in choice.tiles],
        "r": [attribute(tile, "rate") for tile in choice.tiles],
    }


def _origins(gemm: Gemm, bytes_: Real, machine: KernelMachine, *, vectors: bool) -> dict[str, Any]:
    peak, efficiency = explain_matmul(gemm, machine)
    _, result, width = sizes(gemm, machine.precision)
    aligned = _alignment(gemm, width, result, machine, vectors=vectors)
    if any_of(aligned != 1):
        efficiency = formula("e a, a of rows that start anywhere", e=efficiency, a=aligned)
    bandwidth, share = explain_memory(bytes_, machine)
    found = {
        "peak": (peak, "FLOP/s"),
        "eta": efficiency,
        "B": (bandwidth, "B/s"),
        "eta_m": share,
        "r": (explain_result_traffic(gemm, machine), "B"),
    }
    if gemm.role == "expert":
        found["start"] = attribute(machine.choice, "start")
    return found


def _alignment(
    gemm: Gemm, width: Real, result: Real, machine: KernelMachine, *, vectors: bool
) -> Real:
    """Return the fraction of its rate that a GEMM reaches with unaligned rows.

    On *vectors* the GEMM has the peak of fp32 instead of the peak of its own type.

    Operands are contiguous along K and results along N. Experts pad their own tokens, which are the
    K of a weight gradient. A thread copies at least four bytes at a time.
    """
    rows = [gemm.n * result]
    if gemm.role != "expert" or gemm.pass_ != "W":
        rows.append(gemm.k * width)
    share: Real = 1.0
    choice, fp32 = machine.choice, machine.device.fp32
    for bytes_ in rows:
        odd = where(bytes_ % 4 == 0, choice.misaligned_efficiency, choice.odd_efficiency)
        if vectors and fp32 is not None:
            odd = fp32 / matmul(gemm, machine).peak
        share = where(bytes_ % choice.alignment == 0, share, minimum(share, odd))
    return share
