"""How a pipelined chain cuts its message. Shared by algorithms; no plugin of its own.

A chain of P ranks hands c pieces on in P - 2 + c rounds. More pieces fill the chain
sooner and pay more latencies; ``c = sqrt((P - 2) n / (alpha B))`` balances the two. The
number of pieces is left real, which keeps the time smooth and increasing; a piece has
at least one byte, which bounds it where there is no latency.
"""

from __future__ import annotations

from parcost import Link, Real
from parcost.numeric import maximum, minimum, sqrt


def pieces(P: Real, n: Real, link: Link, cut: Real | None = None) -> tuple[Real, Real]:
    """Return the rounds and the bytes by which a chain passes *n* on.

    That is in *cut* pieces, or at the best cut. One rank has nothing to pass on.
    """
    if cut is None:
        inner = sqrt(maximum(P - 2, 0.0))  # ranks that forward: none where there are two
        grain = maximum(sqrt(n * link.latency * link.bandwidth), maximum(inner, 1.0))
        cut = maximum(n * inner / grain, 1.0)
    rounds = (P - 2 + cut) * minimum(P - 1, 1.0)
    return rounds, rounds * (n / cut)
