"""The rates that both kernel models divide by.

A study may put its own efficiency in place of the device's. The device's is that of
the best matrix product that somebody measured; real shapes reach a share of it.
"""

from __future__ import annotations

from typing import NamedTuple

from parcost import Real
from parcost_plugins.vocabulary import Device, FusedAttention, KernelChoice


class Rate(NamedTuple):
    """Work per second at best, and the share of it that is reached."""

    peak: Real
    efficiency: Real


def matmul(choice: KernelChoice, device: Device, compute: str) -> Rate:
    """Return the rate of matrix products in the type *compute*."""
    peak: Real = getattr(device, compute)
    if choice.gemm_efficiency is not None:
        return Rate(peak, choice.gemm_efficiency)
    best = device.fp8_matmul_efficiency if compute == "fp8" else device.matmul_efficiency
    return Rate(peak, best * choice.shape_efficiency)


def attention(operator: FusedAttention, choice: KernelChoice, device: Device, compute: str) -> Rate:
    """Return the rate of the fused core, which backward runs slower."""
    if operator.pass_ in ("F", "R"):
        own, chosen = device.attention_forward_efficiency, choice.attention_forward_efficiency
    else:
        own, chosen = device.attention_backward_efficiency, choice.attention_backward_efficiency
    return Rate(getattr(device, compute), own if chosen is None else chosen)


def memory(choice: KernelChoice, device: Device) -> Rate:
    """Return the rate of streaming through the device's memory."""
    chosen = choice.memory_efficiency
    return Rate(device.memory_bandwidth, device.memory_efficiency if chosen is None else chosen)
