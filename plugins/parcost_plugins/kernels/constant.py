"""Kernel time at a constant rate: FLOPs over peak times efficiency.

Shapes have no effect. It serves to compare with published formulas, and to check examples by hand.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from parcost import Formula, KernelModel, Operator, Real, Study, formula, hookimpl
from parcost_plugins.kernels.rates import (
    CoreRate,
    KernelMachine,
    Rate,
    attention,
    explain_attention,
    explain_matmul,
    explain_streaming,
    matmul,
    streaming,
)
from parcost_plugins.vocabulary import FusedAttention, Gemm, Stream


class ConstantKernels(KernelModel):
    """FLOPs over peak at one efficiency; memory traffic over bandwidth in the same way."""

    name = "constant"

    def price(self, operator: Operator, study: Study) -> Formula | None:
        """Return the seconds of one occurrence with its formula."""
        if isinstance(operator, Gemm):
            machine = KernelMachine.from_study(study)
            explain = partial(explain_matmul, operator, machine)
            return _rate_formula(operator.flops, matmul(operator, machine), "FLOP", explain)
        if isinstance(operator, FusedAttention):
            rate = attention(operator, study)
            share = Rate(rate.peak, rate.efficiency / rate.work)
            explain = partial(_explain_attention, operator, KernelMachine.from_study(study), rate)
            return _rate_formula(operator.flops, share, "FLOP", explain)
        if isinstance(operator, Stream):
            machine = KernelMachine.from_study(study)
            explain = partial(explain_streaming, operator, machine)
            return _rate_formula(operator.bytes_, streaming(operator, machine), "B", explain)
        return None


@hookimpl
def kernels() -> list[ConstantKernels]:
    """Return the kernel model of this module."""
    return [ConstantKernels()]


def _explain_attention(
    operator: FusedAttention, machine: KernelMachine, rate: CoreRate
) -> tuple[Formula, Formula]:
    peak, efficiency = explain_attention(operator, machine, rate)
    return peak, formula("e / w, w worked on over what counts", e=efficiency, w=rate.work)


def _rate_formula(
    work: Real, rate: Rate, unit: str, explain: Callable[[], tuple[Formula, Formula]]
) -> Formula:
    peak, efficiency = rate
    return formula(
        "W / (peak eta)",
        W=(work, unit),
        peak=(peak, f"{unit}/s"),
        eta=efficiency,
        source="a constant share of the peak",
        origins=partial(_origins, explain, unit),
    )


def _origins(explain: Callable[[], tuple[Formula, Formula]], unit: str) -> dict[str, Any]:
    peak, efficiency = explain()
    return {"peak": (peak, f"{unit}/s"), "eta": efficiency}
