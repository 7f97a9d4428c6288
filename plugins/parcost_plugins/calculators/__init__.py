"""Calculators that need no step: each block has its own figures."""

from __future__ import annotations

from parcost import Rulebook, hookimpl
from parcost_plugins.calculators.rulebook import RULES

PARTS = ("data", "networks", "roofline", "sheets", "transfers")


@hookimpl
def rulebooks() -> list[Rulebook]:
    """Return the rulebooks of the package."""
    return [RULES]
