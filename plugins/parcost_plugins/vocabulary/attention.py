"""Attention kernels by name, with the achieved fraction of peak FLOP/s.

A kernel multiplies a block of queries by its keys, block by block. A block of queries has a fixed
cost: its loads, the masked part of the last block of keys, and its result. This cost is expressed
as a number of additional keys, the *fill*. The fraction of peak is then ``e k / (k + fill)`` at k
keys. The value of e depends on the head size and the pass.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from parcost import ONE, Real, block, children, fraction, quantity, word
from parcost.numeric import maximum, minimum

if TYPE_CHECKING:
    from collections.abc import Sequence

#: Kernels that never write their scores to memory.
FUSED_KERNELS = (
    "flash_1",
    "flash_2",
    "flash_3",
    "flash_4",
    "cudnn",
    "triton_1",
    "triton",
    "xformers",
    "aiter",
    "vendor",
)


@block("head_rate", inside="attention_kernel", label="required")
class HeadRate:
    """The achieved fraction of peak of a kernel for one head size and many keys."""

    size: Real = quantity(
        ONE, positive=True, doc="size of a head; the mean, if queries and values differ"
    )
    forward: Real = fraction(positive=True, doc="share of the peak, forward")
    backward: Real = fraction(positive=True, doc="share of the peak, backward")


@block("attention_kernel", inside="attention_table", label="required")
class AttentionKernel:
    """One attention kernel in one data type."""

    kernel: str = word(*FUSED_KERNELS, doc="name of the kernel")
    type: str = word(
        "wide", "fp8", default="wide", doc="type of its matrix products, whose peak is used"
    )
    forward_fill: Real = quantity(
        ONE, default=0.0, doc="fixed cost of a block of queries, in keys that take the same time"
    )
    backward_fill: Real = quantity(ONE, default=0.0, doc="the same for the backward pass")
    heads: tuple[HeadRate, ...] = children(
        "head_rate", doc="rates by head size, in ascending order, interpolated linearly"
    )

    def efficiency(self, size: Real, *, backward: bool) -> Real:
        """Return the fraction of peak for heads of *size* with many keys."""
        points = [(head.size, head.backward if backward else head.forward) for head in self.heads]
        return _interpolate(points, size)

    def fill(self, *, backward: bool) -> Real:
        """Return the fixed cost of a block of queries as a number of keys."""
        return self.backward_fill if backward else self.forward_fill


@block("attention_table", label="required")
class AttentionTable:
    """The attention kernels of a device, with their achieved fractions of peak."""

    auto: str = word(*FUSED_KERNELS, doc="the default kernel of frameworks on the device")
    kernels: tuple[AttentionKernel, ...] = children(
        "attention_kernel", doc="kernels by name and type"
    )

    def find(self, kernel: str, type_: str) -> AttentionKernel | None:
        """Return the kernel of that name and type, or None."""
        for known in self.kernels:
            if (known.kernel, known.type) == (kernel, type_):
                return known
        return None


def _interpolate(points: Sequence[tuple[Real, Real]], at: Real) -> Real:
    """Return the linear interpolation of *points* at *at*, constant beyond the ends."""
    (low, found), *others = points
    for high, value in others:
        part = minimum(maximum((at - low) / (high - low), 0.0), 1.0)
        found = (1.0 - part) * found + part * value  # exact at both ends
        low = high
    return found
