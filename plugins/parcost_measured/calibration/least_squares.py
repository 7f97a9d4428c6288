"""Fit of a latency and a bandwidth to timings, with standard errors.

A call of *rounds* messages that moves *bytes_* over the busiest port takes ``rounds * alpha +
bytes_ / B``. Timings span nine decades, so the fit minimises the relative error. A microsecond at 8
bytes weighs as much as a millisecond at 8 GB. Neither parameter may be negative: a negative one
becomes zero, and the other is fitted again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from attrs import frozen

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


@frozen(kw_only=True, eq=False)
class FittedLine:
    """The fitted link, and its relative errors against the timings."""

    latency: float  # alpha, seconds of a message
    bandwidth: float  # B, bytes/s of a port in one direction
    mean_error: float
    largest_error: float
    worst_size: float  # bytes of n, where the error is largest
    sizes: int  # that it was fitted to; any two lie on a line
    latency_within: tuple[float, float] = (0.0, float("inf"))  # in nine cases of ten
    bandwidth_within: tuple[float, float] = (0.0, float("inf"))

    def seconds(self, rounds: float, bytes_: float) -> float:
        """Return the predicted seconds of a call."""
        return rounds * self.latency + bytes_ / self.bandwidth


def fit(
    sizes: Sequence[float],
    seconds: Sequence[float],
    rounds: Sequence[float],
    bytes_: Sequence[float],
) -> FittedLine:
    """Return the link that minimises the squared relative error.

    Raises:
        ValueError: There are fewer than two sizes, or time does not grow with them.
    """
    import numpy as np

    if len(set(sizes)) < 2:
        raise ValueError("a start-up time and a bandwidth need timings of two sizes at least")
    t = np.asarray(seconds)
    if t.min() < 1e-15 or t.max() > 1e6 or max(bytes_) > 1e18:
        raise ValueError(
            "a time must be above 1e-15 s and at most 1e6 s, and a size at most 1e18 bytes"
        )
    columns = np.column_stack([np.asarray(rounds) / t, np.asarray(bytes_) / t])
    ones = np.ones(len(t))
    (alpha, beta), *_ = np.linalg.lstsq(columns, ones, rcond=None)
    if alpha < 0:
        alpha, beta = 0.0, _single_parameter(columns[:, 1])
    elif beta <= 0:
        raise ValueError("time does not grow with size, so no bandwidth can be fitted")
    errors = columns @ np.array([alpha, beta]) - 1.0
    worst = int(np.argmax(np.abs(errors)))
    a, b = _half_widths(columns, errors) if len(t) > 2 else (float("inf"), float("inf"))
    return FittedLine(
        latency=float(alpha),
        bandwidth=float(1.0 / beta),
        mean_error=float(np.mean(np.abs(errors))),
        largest_error=float(abs(errors[worst])),
        worst_size=float(sizes[worst]),
        sizes=len(set(sizes)),
        latency_within=(max(float(alpha) - a, 0.0), float(alpha) + a),
        bandwidth_within=(1.0 / (float(beta) + b), 1.0 / max(float(beta) - b, 1e-300)),
    )


def _half_widths(columns: NDArray[np.float64], errors: NDArray[np.float64]) -> tuple[float, float]:
    """Return half of the 90 % confidence interval of each parameter."""
    import numpy as np

    variance = float(errors @ errors) / (len(errors) - 2)
    spread = np.sqrt(np.diag(np.linalg.pinv(columns.T @ columns)) * variance)
    return 1.645 * float(spread[0]), 1.645 * float(spread[1])


def _single_parameter(column: NDArray[np.float64]) -> float:
    """Return the least-squares factor that scales *column* to ones."""
    return float(column.sum() / (column @ column))
