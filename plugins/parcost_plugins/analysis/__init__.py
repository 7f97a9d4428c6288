"""Analysis of a step in a report: figures, advice, strategies, and intervals."""

from __future__ import annotations

from parcost import Rulebook, hookimpl
from parcost_plugins.analysis.rulebook import RULES

PARTS = ("advice", "anchors", "figures", "intervals", "strategy")


@hookimpl
def rulebooks() -> list[Rulebook]:
    """Return the rulebooks of the package."""
    return [RULES]
