"""Kernel time at a constant rate: FLOPs over peak times efficiency, and nothing else.

Shapes do not count. It is the model to compare published formulas with,
and to work an example by hand.
"""

from __future__ import annotations

from parcost import Formula, KernelModel, Operator, Real, Study, formula, hookimpl
from parcost_plugins.kernels.rates import KernelMachine, Rate, attention, matmul, streaming
from parcost_plugins.vocabulary import FusedAttention, Gemm, Stream


class ConstantKernels(KernelModel):
    """FLOPs over the peak at one efficiency, and memory traffic likewise."""

    name = "constant"

    def price(self, operator: Operator, study: Study) -> Formula | None:
        """Return the seconds of one occurrence and how they come about."""
        if isinstance(operator, Gemm):
            return _rate_formula(operator.flops, matmul(operator, KernelMachine.of(study)), "FLOP")
        if isinstance(operator, FusedAttention):
            rate = attention(operator, study)
            share = Rate(rate.peak, rate.efficiency / rate.work)
            return _rate_formula(operator.flops, share, "FLOP")
        if isinstance(operator, Stream):
            return _rate_formula(operator.bytes_, streaming(operator, KernelMachine.of(study)), "B")
        return None


@hookimpl
def kernels() -> list[ConstantKernels]:
    """Offer the model."""
    return [ConstantKernels()]


def _rate_formula(work: Real, rate: Rate, unit: str) -> Formula:
    peak, efficiency = rate
    return formula(
        "W / (peak eta)",
        W=(work, unit),
        peak=(peak, f"{unit}/s"),
        eta=efficiency,
        source="a constant share of the peak",
    )
