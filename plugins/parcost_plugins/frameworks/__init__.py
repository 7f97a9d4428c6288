"""The host time of a framework, and the features that it supports."""

from __future__ import annotations

from pathlib import Path

from parcost import Rulebook, hookimpl

PARTS = ("features", "host")


@hookimpl
def rulebooks() -> list[Rulebook]:
    """Return the rulebook of this package, with a page for each rule."""
    return [Rulebook(name="frameworks", file=Path(__file__).with_name("rules.toml"))]
