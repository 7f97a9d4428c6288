"""Splitting of messages in pipelined chains. Shared by algorithms; no plugin of its own.

A chain of P ranks passes c pieces on in P - 2 + c rounds. More pieces fill the chain sooner and pay
more latencies; ``c = sqrt((P - 2) n / (alpha B))`` balances the two. The number of pieces is not
rounded, which keeps the time smooth and increasing; a piece has at least one byte, which limits c
without latency.
"""

from __future__ import annotations

from parcost import Link, Real
from parcost.numeric import maximum, minimum, sqrt


def pieces(P: Real, n: Real, link: Link, cut: Real | None = None) -> tuple[Real, Real]:
    """Return the rounds, and the bytes, of a pipelined chain over *n* bytes.

    The message is split into *cut* pieces, or the best number of pieces. A single rank sends
    nothing.
    """
    if cut is None:
        inner = sqrt(maximum(P - 2, 0.0))  # ranks that forward: none where there are two
        grain = maximum(sqrt(n * link.latency * link.bandwidth), maximum(inner, 1.0))
        cut = maximum(n * inner / grain, 1.0)
    rounds = (P - 2 + cut) * minimum(P - 1, 1.0)
    return rounds, rounds * (n / cut)
