"""The host time of a framework, and the features that it supports."""

from __future__ import annotations

from parcost import Rulebook, hookimpl
from parcost_plugins.frameworks.rulebook import RULES

PARTS = ("features", "host")


@hookimpl
def rulebooks() -> list[Rulebook]:
    """Return the rulebook of this package, with a page for each rule."""
    return [RULES]
