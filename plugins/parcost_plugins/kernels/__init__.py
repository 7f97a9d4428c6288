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
    """Return the rulebook of this package, with a page for each rule."""
    return [Rulebook(name="kernels", file=Path(__file__).with_name("rules.toml"))]
