"""The host time of a framework, and the features that it supports."""

from __future__ import annotations

from pathlib import Path

from parcost import Rulebook, hookimpl

PARTS = ("features", "host")


@hookimpl
def rulebooks() -> list[Rulebook]:
    """Offer the pages of the rules."""
    return [Rulebook(name="frameworks", file=Path(__file__).with_name("rules.toml"))]
