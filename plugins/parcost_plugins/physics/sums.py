"""The algorithm of small all-reduces in a group, for gradient norm, loss and amax."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from parcost import Study


def reduction_algorithm(study: Study, algorithm: str) -> str:
    """Return the algorithm of small all-reduces in a group that communicates by *algorithm*.

    It is *algorithm*, or ``auto`` if *algorithm* has no all-reduce.
    """
    able = bool(study.candidates("all_reduce", algorithm))
    return algorithm if able else "auto"
