"""Kernel time by roofline: compute or memory, whichever takes longer.

Partial tiles and waves are ignored; ``tiled`` includes them, so the difference between both models
is the effect of shapes.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from parcost import Formula, KernelModel, Operator, Real, Study, formula, hookimpl
from parcost_plugins.kernels import attention
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
from parcost_plugins.vocabulary import FusedAttention, Gemm, Stream


class RooflineKernels(KernelModel):
    """The roofline: a kernel takes its compute time or its memory time, whichever is longer."""

    name = "roofline"

    def price(self, operator: Operator, study: Study) -> Formula | None:
        """Return the seconds of one occurrence with its formula."""
        if isinstance(operator, Gemm):
            return _gemm(operator, study)
        if isinstance(operator, FusedAttention):
            return attention.core(operator, study)
        if isinstance(operator, Stream):
            return attention.stream(operator, study)
        return None


@hookimpl
def kernels() -> list[RooflineKernels]:
    """Return the kernel model of this module."""
    return [RooflineKernels()]


def _gemm(gemm: Gemm, study: Study) -> Formula:
    machine = KernelMachine.from_study(study)
    operand, traffic = sizes(gemm, machine.precision).operand, result_traffic(gemm, machine)
    m, n, k = gemm.m, gemm.n, gemm.k
    peak, efficiency = matmul(gemm, machine)
    bytes_ = gemm.batch * (operand * (m * k + k * n) + traffic * m * n)
    bandwidth, share = memory(bytes_, machine)
    return formula(
        "max(2 g M N K / (peak eta), g (e (M K + K N) + r M N) / (B eta_m))",
        M=m,
        N=n,
        K=k,
        g=gemm.batch,
        e=(operand, "B"),
        r=(traffic, "B"),
        peak=(peak, "FLOP/s"),
        eta=efficiency,
        B=(bandwidth, "B/s"),
        eta_m=share,
        source=attention.ROOFLINE,
        origins=partial(_origins, gemm, bytes_, machine),
    )


def _origins(gemm: Gemm, bytes_: Real, machine: KernelMachine) -> dict[str, Any]:
    peak, efficiency = explain_matmul(gemm, machine)
    bandwidth, share = explain_memory(bytes_, machine)
    return {
        "peak": (peak, "FLOP/s"),
        "eta": efficiency,
        "B": (bandwidth, "B/s"),
        "eta_m": share,
        "r": (explain_result_traffic(gemm, machine), "B"),
    }
