"""Memory of a device, and whether the step fits."""

from __future__ import annotations

from parcost import Rulebook, hookimpl
from parcost_plugins.memory.rulebook import RULES

PARTS = (
    "changes",
    "figures",
    "fit",
    "offload",
    "overheads",
    "state",
)


@hookimpl
def rulebooks() -> list[Rulebook]:
    """Return the rulebook of this package, with a page for each rule."""
    return [RULES]
