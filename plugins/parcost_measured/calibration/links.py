"""The link of a collective, from its timings.

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
    """A link on which a round or a byte takes a second."""

    name: str
    latency: float
    bandwidth: float

    def seconds(self, rounds: Any, bytes_: Any) -> Any:
        """Return the rounds, or the bytes."""
        return rounds * self.latency + bytes_ / self.bandwidth


_ENDLESS = 1e300


def counts(
    algorithm: Collective, operation: str, n: float, shape: Sequence[int]
) -> tuple[float, float]:
    """Return the rounds of one call, and the bytes over the busiest port."""
    ranks = 1
    for members in shape:
        ranks *= members

    def price(latency: float, bandwidth: float) -> float:
        link = _CountingLink(name="counting", latency=latency, bandwidth=bandwidth)
        group = Group(
            name="fitted",
            ranks=float(ranks),
            shape=tuple(float(members) for members in shape),
            links=(link,) * len(shape),
        )
        return float(algorithm.seconds(operation, n, group))

    return price(1.0, _ENDLESS), price(0.0, 1.0)


def line(
    algorithm: Collective,
    operation: str,
    ranks: int,
    sizes: Sequence[float],
    seconds: Sequence[float],
) -> FittedLine:
    """Return the link that explains the timings best.

    Raises:
        ValueError: The timings do not say one, or the algorithm cannot run on a plain link.
    """
    counted = [counts(algorithm, operation, n, (ranks,)) for n in sizes]
    if not all(isfinite(r) and isfinite(b) for r, b in counted):
        raise ValueError(_inability(algorithm, operation, ranks))
    return fit(sizes, seconds, [r for r, _ in counted], [b for _, b in counted])


def _inability(algorithm: Collective, operation: str, ranks: int) -> str:
    """Return why *algorithm* has no rounds and bytes, and what it needs."""
    why = f"`{algorithm.name}` cannot do {operation} over {ranks} ranks of a plain link"
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
    """Return the time of one message by its size, as the algorithm's rounds imply it.

    A rank stripes over *ports*, each of which carries its part of the message.
    """
    found: dict[float, float] = {}
    for n, time in sorted(zip(sizes, seconds, strict=True)):
        rounds, bytes_ = counts(algorithm, operation, n, (ranks,))
        found[bytes_ / rounds / ports] = time / rounds
    return sorted(found.items())
