"""Analysis of a step in a report: figures, advice, strategies, and uncertainty."""

from __future__ import annotations

from pathlib import Path

from parcost import Rulebook, hookimpl

PARTS = ("advice", "anchors", "figures", "strategy", "uncertainty")


@hookimpl
def rulebooks() -> list[Rulebook]:
    """Return the rulebooks of the package."""
    return [Rulebook(name="analysis", file=Path(__file__).with_name("rules.toml"))]
