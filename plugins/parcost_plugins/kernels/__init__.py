"""Kernel time: models of the time of operators, and their use."""

from __future__ import annotations

from parcost import Rulebook, hookimpl
from parcost_plugins.kernels.rulebook import RULES

PARTS = (
    "constant",
    "picture",
    "operator_times",
    "roofline",
    "tiled",
)


@hookimpl
def rulebooks() -> list[Rulebook]:
    """Return the rulebook of this package, with a page for each rule."""
    return [RULES]
