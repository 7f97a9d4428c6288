"""Kernel time: models of the time of operators, and their use."""

from __future__ import annotations

from pathlib import Path

from parcost import Rulebook, hookimpl

PARTS = (
    "constant",
    "picture",
    "pricing",
    "roofline",
    "tiled",
)


@hookimpl
def rulebooks() -> list[Rulebook]:
    """Offer the pages of the rules."""
    return [Rulebook(name="kernels", file=Path(__file__).with_name("rules.toml"))]
