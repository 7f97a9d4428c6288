"""Bytes that Megatron-Core's optimizer moves per parameter: megatron/core/optimizer."""

from __future__ import annotations

#: Reads and writes of a cast of gradients from 2 to 4 bytes and of the norm of those in fp32.
NORM_OF_CAST = "12 B"
#: Why a traffic that a file does not state is assumed.
COUNTED = "counted from the reads and writes of the optimizer update"


def count_update_traffic(
    gradients: float, states: float, weights: float, *, master: bool = True, cast: bool = False
) -> float:
    """Return the bytes per parameter that an update reads and writes.

    It reads *gradients* and *states*, and writes states and *weights*. With a *master* copy,
    weights are copied from it, which reads its 4 bytes. A *cast* of gradients of 2 bytes to fp32
    moves 6 bytes, and Adam reads 2 more.

    >>> count_update_traffic(4, 12, 2), count_update_traffic(2, 12, 2, cast=True)
    (34, 40)
    """
    copied, widened = 4 if master else 0, 8 if cast else 0
    return gradients + 2 * states + weights + copied + widened
