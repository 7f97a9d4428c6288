"""Names of the streams in a trace: kernels share one, and transfers have one for each link."""

from __future__ import annotations

from typing import Any

from parcost.contract.terms import KERNELS
from parcost.contract.traces import COMPUTE_STREAM

ROUNDING = 1e-9  # of a pass or a step: less is not a time
ONCE = "once per step"


def stream_of(
    term: Any, *, beside: bool = False, rest: bool = False, lane: int = 1, once: bool = False
) -> str:
    """Return the stream of a term: kernels share one, and transfers have one for each link."""
    name = COMPUTE_STREAM if term.resource in KERNELS else term.resource or "unnamed"
    words = [name]
    if beside and name == COMPUTE_STREAM:
        words.append("beside")
    if rest:
        words.append("rest")
    if once:
        words.append(ONCE)
    return ", ".join(words) + (f" ({lane})" if lane > 1 else "")
