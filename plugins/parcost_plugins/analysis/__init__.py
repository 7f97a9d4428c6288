"""What a report says of a step: figures, advice, strategies, and how far numbers may be off."""

from __future__ import annotations

from pathlib import Path

from parcost import Rulebook, hookimpl

PARTS = ("advice", "anchors", "figures", "strategy", "uncertainty")


@hookimpl
def rulebooks() -> list[Rulebook]:
    """Offer the pages of the rules."""
    return [Rulebook(name="analysis", file=Path(__file__).with_name("rules.toml"))]
