"""How what stands beside the exchange of a group is added up: norms, losses, greatest values."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from parcost import Study


def reduction_algorithm(study: Study, algorithm: str) -> str:
    """Return the algorithm of such a sum in a group whose exchange is by *algorithm*.

    It is the same one, or ``auto`` where that one is for other operations than all-reduce: who
    names an algorithm for shards does not forbid the norm of the gradients.
    """
    able = algorithm in [known.name for known in study.algorithms("all_reduce")]
    return algorithm if able else "auto"
