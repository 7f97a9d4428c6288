"""Fit of a link's latency and bandwidth to the timings of a collective.

An algorithm turns a link into a time; a fit is the inverse. The algorithm is estimated on two
special links, which count its rounds or the bytes of its busiest port. So every algorithm of a
plugin can be fitted.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite
from typing import Any

from attrs import frozen

from parcost import Collective, Group, Link
from parcost_measured.calibration.least_squares import FittedLine, fit


@frozen(kw_only=True, eq=False)
class _CountingLink(Link):
    """A link on which each round, or each byte, takes one second, so that the time is their
    number.
    """

    name: str
    latency: float
    bandwidth: float

    def seconds(self, rounds: Any, bytes_: Any) -> Any:
        """Return the number of rounds, or of bytes, as a time in seconds."""
        return rounds * self.latency + bytes_ / self.bandwidth


_ENDLESS = 1e300


def counts(
    algorithm: Collective, operation: str, n: float, shape: Sequence[int]
) -> tuple[float, float]:
    """Return the rounds of one call, and the bytes over the busiest port."""
    ranks = 1
    for members in shape:
        ranks *= members

    def evaluate(latency: float, bandwidth: float) -> float:
        link = _CountingLink(name="counting", latency=latency, bandwidth=bandwidth)
        group = Group(
            name="fitted",
            ranks=float(ranks),
            shape=tuple(float(members) for members in shape),
            links=(link,) * len(shape),
        )
        return float(algorithm.seconds(operation, n, group))

    return evaluate(1.0, _ENDLESS), evaluate(0.0, 1.0)


def fit_link(
    algorithm: Collective,
    operation: str,
    ranks: int,
    sizes: Sequence[float],
    seconds: Sequence[float],
) -> FittedLine:
    """Return the link that best fits the timings (seconds by size in bytes).

    Raises:
        ValueError: The timings do not determine it, or the algorithm cannot run on a plain link.
    """
    counted = [counts(algorithm, operation, n, (ranks,)) for n in sizes]
    if not all(isfinite(r) and isfinite(b) for r, b in counted):
        raise ValueError(_inability(algorithm, operation, ranks))
    return fit(sizes, seconds, [r for r, _ in counted], [b for _, b in counted])


def _inability(algorithm: Collective, operation: str, ranks: int) -> str:
    """Return the reason why the rounds and bytes of *algorithm* cannot be counted."""
    why = f"`{algorithm.name}` does not support {operation} over {ranks} ranks of a single link"
    if needs := algorithm.needs(operation):
        why += f": it needs {needs}, which no log has"
    return f"{why}; fit the link by an algorithm of messages, such as --algorithm ring"


def messages(
    algorithm: Collective,
    operation: str,
    ranks: int,
    sizes: Sequence[float],
    seconds: Sequence[float],
    *,
    ports: int = 1,
) -> list[tuple[float, float]]:
    """Return (bytes, seconds) of one message for each size, from the algorithm's round count.

    A rank uses *ports* ports, each of which carries an equal part of the message.
    """
    found: dict[float, float] = {}
    for n, time in sorted(zip(sizes, seconds, strict=True)):
        rounds, bytes_ = counts(algorithm, operation, n, (ranks,))
        found[bytes_ / rounds / ports] = time / rounds
    return sorted(found.items())
