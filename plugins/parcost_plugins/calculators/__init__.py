"""Questions that need no step: each block has figures of its own."""

from __future__ import annotations

from pathlib import Path

from parcost import Rulebook, hookimpl

PARTS = ("data", "networks", "roofline", "sheets", "transfers")


@hookimpl
def rulebooks() -> list[Rulebook]:
    """Offer the pages of the rules."""
    return [Rulebook(name="calculators", file=Path(__file__).with_name("rules.toml"))]
