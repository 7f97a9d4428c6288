"""Splitting of messages in pipelined chains; this module is not a plugin.

A chain of P ranks sends c pieces in P - 2 + c rounds. With more pieces the chain fills sooner, but
there are more latencies; ``c = sqrt((P - 2) n / (alpha B))`` is the optimum. The number of pieces
is not rounded, so that the time is smooth and increasing. A piece has at least one byte, which
limits c if the latency is zero.
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
