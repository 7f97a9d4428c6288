"""The rates that kernel models divide by, and the data types of operators.

A study may override the efficiency of the device, which was measured with the fastest GEMM. Real
shapes reach a fraction of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from parcost import Formula, Real, Study, attribute, formula
from parcost.numeric import log, maximum, minimum, ratio, where
from parcost_plugins.physics.attention_mask import attended_tokens
from parcost_plugins.physics.clocks import clock, explain_held_share, held_share
from parcost_plugins.physics.context import blocks_of_keys
from parcost_plugins.physics.run_choices import fuses_accumulation
from parcost_plugins.vocabulary import (
    AttentionKernel,
    Cluster,
    Device,
    FusedAttention,
    Gemm,
    KernelChoice,
    Precision,
    Stream,
    Streaming,
    Training,
)
from parcost_plugins.vocabulary.operators import CORE_PRODUCTS


class Rate(NamedTuple):
    """The peak rate in work per second, and the achieved fraction of the peak."""

    peak: Real
    efficiency: Real


class CoreRate(NamedTuple):
    """The FLOP/s of the attention core, and its losses.

    A kernel with *keys* keys per query takes as long as *keys* + *fill* keys at full rate.
    """

    peak: Real
    efficiency: Real
    fill: Real = 0.0
    keys: Real = 1.0

    @property
    def work(self) -> Real:
        """The executed work over the counted FLOPs."""
        # A nominal model has no sequence to attend to, and then no FLOPs either.
        return 1.0 + self.fill / maximum(self.keys, 1.0)


class KernelMachine(NamedTuple):
    """The inputs of kernel time besides the operator."""

    device: Device
    choice: KernelChoice
    precision: Precision
    fused_accumulation: bool

    @classmethod
    def from_study(cls, study: Study) -> KernelMachine:
        """Return the machine of *study*."""
        device, precision = study[Cluster].device, study[Training].precision
        return cls(device, study[KernelChoice], precision, fuses_accumulation(study))


class Sizes(NamedTuple):
    """Bytes per element of operands and of results of a GEMM, and of the type itself.

    Operands include their share of a scaling factor; *width* does not.
    """

    operand: Real
    result: Real
    width: Real


def runs_narrow(operator: Gemm | FusedAttention, precision: Precision) -> bool:
    """Return whether *operator* runs in low precision in this recipe."""
    if precision.narrow == "none" or operator.wide:
        return False
    if isinstance(operator, FusedAttention):
        return precision.narrow_attention
    return precision.is_narrow(operator.role, operator.pass_)


def sizes(gemm: Gemm, precision: Precision) -> Sizes:
    """Return the element sizes of a GEMM; results have the type of activations."""
    wide = precision.activation
    if runs_narrow(gemm, precision):
        return Sizes(precision.narrow_element, wide, precision.narrow_width)
    return Sizes(wide, wide, wide)


def result_traffic(gemm: Gemm, machine: KernelMachine) -> Real:
    """Return the memory traffic per element of a GEMM's result, in bytes.

    A fused weight gradient reads the accumulated gradient, and writes it back.
    """
    if sums_gradients(gemm, machine):
        return 2.0 * machine.precision.gradients
    return sizes(gemm, machine.precision).result


def explain_result_traffic(gemm: Gemm, machine: KernelMachine) -> Real | Formula:
    """Return :func:`result_traffic` with its formula."""
    if not sums_gradients(gemm, machine):
        return result_traffic(gemm, machine)
    return formula(
        "2 w, a sum of gradients that is read and written",
        w=attribute(machine.precision, "gradients"),
    )


def sums_gradients(gemm: Gemm, machine: KernelMachine) -> bool:
    """Return whether *gemm* adds its result to the gradients of earlier micro-batches."""
    return gemm.pass_ == "W" and gemm.role != "attention" and machine.fused_accumulation


def matmul(gemm: Gemm, machine: KernelMachine) -> Rate:
    """Return the rate of a GEMM in its data type."""
    device, choice, precision, _ = machine
    chosen = choice.gemm_efficiency
    held = device.matmul_efficiency * choice.shape_efficiency
    held = held * held_share(device, choice, precision.compute)
    held = held * clock(device, choice)
    wide = held if chosen is None else chosen
    if not runs_narrow(gemm, precision):
        return Rate(getattr(device, precision.compute), wide)
    own = choice.narrow_gemm_efficiency
    share = wide * _narrow_ratio(machine) if own is None else own
    return Rate(getattr(device, precision.narrow), share)


def explain_matmul(gemm: Gemm, machine: KernelMachine) -> tuple[Formula, Formula]:
    """Return the peak and the efficiency of :func:`matmul` with their formulas."""
    device, choice, precision, _ = machine
    if choice.gemm_efficiency is not None:
        wide = attribute(choice, "gemm_efficiency")
    else:
        wide = formula(
            "e s p c, c of the clock without a power cap",
            e=attribute(device, "matmul_efficiency"),
            s=explain_held_share(device, choice, precision.compute),
            p=attribute(choice, "shape_efficiency"),
            c=clock(device, choice),
        )
    if not runs_narrow(gemm, precision):
        return attribute(device, precision.compute), wide
    share = attribute(choice, "narrow_gemm_efficiency")
    if share.value is None:
        share = formula("w r, r of narrow over wide", w=wide, r=_narrow_ratio(machine))
    return attribute(device, precision.narrow), share


def explain_streaming(operator: Stream, machine: KernelMachine) -> tuple[Formula, Formula]:
    """Return the bandwidth and the efficiency of :func:`streaming` with their formulas."""
    peak, share = explain_memory(operator.bytes_ / maximum(operator.kernels, 1.0), machine)
    if operator.kind != "plain":
        share = formula("m k", m=share, k=attribute(machine.choice, f"{operator.kind}_efficiency"))
    return peak, share


def explain_memory(bytes_: Real, machine: KernelMachine) -> tuple[Formula, Formula]:
    """Return the bandwidth and the efficiency of :func:`memory` with their formulas."""
    device, choice, _, _ = machine
    if choice.streaming:
        share = Formula(
            "between the streaming points of the size",
            {"size": (bytes_, "B")},
            value=_rate_at_size(choice.streaming, bytes_),
        )
    elif choice.memory_efficiency is None:
        share = attribute(device, "memory_efficiency")
    else:
        share = attribute(choice, "memory_efficiency")
    return attribute(device, "memory_bandwidth"), share


def explain_attention(
    operator: FusedAttention, machine: KernelMachine, rate: CoreRate
) -> tuple[Formula, Real | Formula]:
    """Return peak and efficiency of a *rate* of :func:`attention` with their formulas."""
    device, choice, precision, _ = machine
    name = "backward" if operator.pass_ not in ("F", "R") else "forward"
    chosen = attribute(choice, f"attention_{name}_efficiency")
    low = runs_narrow(operator, precision)
    if chosen.value is not None:
        peak = attribute(device, precision.narrow if low else precision.compute)
        return peak, rate.efficiency if low else chosen
    own = attribute(device, "attention_efficiency")
    efficiency = formula(
        "k a c, k of the kernel for its heads, c of the clock without a power cap",
        k=ratio(rate.efficiency, own.value * clock(device, choice)),
        a=own,
        c=clock(device, choice),
    )
    return attribute(device, "fp8" if low else precision.compute), efficiency


def attention(operator: FusedAttention, study: Study) -> CoreRate:
    """Return the rate of fused attention, from its kernel or from the study's efficiency.

    An efficiency given for 16 bits is scaled to low precision like that of GEMMs.
    """
    device, choice, precision, _ = KernelMachine.from_study(study)
    backward = operator.pass_ not in ("F", "R")
    low = runs_narrow(operator, precision)
    chosen = (
        choice.attention_backward_efficiency if backward else choice.attention_forward_efficiency
    )
    if chosen is not None:
        if not low:
            return CoreRate(getattr(device, precision.compute), chosen)
        less = _narrow_ratio(KernelMachine.from_study(study))
        return CoreRate(getattr(device, precision.narrow), chosen * less)
    kernel = attention_kernel(study, "fp8" if low else "wide")
    if kernel is None:
        message = f"no rate of the attention kernel of `{operator.name}`"
        raise LookupError(message)
    size = sum(_head_sizes(study)) / 2
    return CoreRate(
        getattr(device, "fp8" if low else precision.compute),
        kernel.efficiency(size, backward=backward)
        * device.attention_efficiency
        * clock(device, choice),
        kernel.fill(backward=backward),
        attended_tokens(study[Training], windowed=operator.windowed)
        / blocks_of_keys(study, windowed=operator.windowed),
    )


def attention_kernel(study: Study, type_: str) -> AttentionKernel | None:
    """Return the attention kernel of *study* in a data type; None if the device lacks it."""
    table = study[Cluster].device.attention
    return None if table is None else table.find(kernel_name(study), type_)


def kernel_name(study: Study) -> str:
    """Return the name of the attention kernel; the chosen name if the device has none."""
    table, chosen = study[Cluster].device.attention, study[KernelChoice].attention
    if chosen is None:
        usual = study[Training].framework.attention
        chosen = usual if table is not None and table.find(usual, "wide") else "auto"
    return table.auto if table is not None and chosen == "auto" else chosen


def padding(operator: FusedAttention, study: Study) -> Real:
    """Return the FLOPs of fused attention with padded heads over those without padding."""
    model = study[Training].model
    of_queries, of_values = CORE_PRODUCTS[operator.pass_]
    padded_query, padded_value = _head_sizes(study)
    needed = of_queries * model.qk_dim + of_values * model.value_dim
    # A nominal model without a width has heads of no size, and then no FLOPs either.
    return ratio(of_queries * padded_query + of_values * padded_value, needed)


def _head_sizes(study: Study) -> tuple[Real, Real]:
    """Return the head sizes of queries and of values in fused attention."""
    model, sizes = study[Training].model, study[KernelChoice].head_sizes
    query, value = (_pad_size(size, sizes) for size in (model.qk_dim, model.value_dim))
    return query, value


def _pad_size(size: Real, sizes: Sequence[int]) -> Real:
    """Return the smallest of *sizes* that holds *size*; a larger size is not padded."""
    padded = size
    for larger in sorted((0, *sizes), reverse=True):
        padded = where(size <= larger, float(larger), padded)
    return padded


def memory(bytes_: Real, machine: KernelMachine) -> Rate:
    """Return the rate of streaming *bytes_* through device memory."""
    device, choice, _, _ = machine
    if choice.streaming:
        return Rate(device.memory_bandwidth, _rate_at_size(choice.streaming, bytes_))
    chosen = choice.memory_efficiency
    return Rate(device.memory_bandwidth, device.memory_efficiency if chosen is None else chosen)


def streaming(operator: Stream, machine: KernelMachine) -> Rate:
    """Return the rate of a streaming operator; each of its kernels moves a part."""
    peak, share = memory(operator.bytes_ / maximum(operator.kernels, 1.0), machine)
    if operator.kind == "plain":
        return Rate(peak, share)
    return Rate(peak, share * getattr(machine.choice, f"{operator.kind}_efficiency"))


def _narrow_ratio(machine: KernelMachine) -> Real:
    """Return the fraction of peak of low-precision GEMMs, over that of 16-bit GEMMs."""
    device, choice, precision, _ = machine
    by_block = precision.scale_block > 1
    best = where(by_block, device.block_matmul_efficiency, device.fp8_matmul_efficiency)
    if precision.narrow == "fp4":
        best = device.fp4_matmul_efficiency
    held = best * precision.narrow_rate * held_share(device, choice, precision.narrow)
    return held / (device.matmul_efficiency * held_share(device, choice, precision.compute))


def _rate_at_size(points: Sequence[Streaming], bytes_: Real) -> Real:
    """Interpolate over the logarithm of the size; outside the points, use the nearest one."""
    at = log(maximum(bytes_, 1.0))
    found = points[0].efficiency
    for below, above in pairwise(points):
        low, high = log(below.size), log(above.size)
        part = minimum(maximum((at - low) / (high - low), 0.0), 1.0)
        found = (1.0 - part) * found + part * above.efficiency  # exact at both ends
    return found
