"""Memory of a device, and whether the step fits."""

from __future__ import annotations

from pathlib import Path

from parcost import Rulebook, hookimpl

PARTS = (
    "cures",
    "figures",
    "fit",
    "offload",
    "overheads",
    "state",
)


@hookimpl
def rulebooks() -> list[Rulebook]:
    """Return the rulebook of this package, with a page for each rule."""
    return [Rulebook(name="memory", file=Path(__file__).with_name("rules.toml"))]
