"""The algorithm of small sums within a group: norms, losses, amax."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from parcost import Study


def reduction_algorithm(study: Study, algorithm: str) -> str:
    """Return the algorithm for small sums in a group that communicates by *algorithm*.

    It is the same one, or ``auto`` if that one has no all-reduce: an algorithm named for
    reduce-scatter does not prevent the gradient norm.
    """
    able = algorithm in [known.name for known in study.algorithms("all_reduce")]
    return algorithm if able else "auto"
