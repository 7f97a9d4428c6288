"""Calculators that need no step: each block has its own figures."""

from __future__ import annotations

from pathlib import Path

from parcost import Rulebook, hookimpl

PARTS = ("data", "networks", "roofline", "sheets", "transfers")


@hookimpl
def rulebooks() -> list[Rulebook]:
    """Return the rulebooks of the package."""
    return [Rulebook(name="calculators", file=Path(__file__).with_name("rules.toml"))]
