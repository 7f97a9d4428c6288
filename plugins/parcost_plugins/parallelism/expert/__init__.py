"""Expert parallelism: tokens travel to the ranks that hold their experts, and back.

- ``exchange`` estimates the two all-to-alls of each pass, and what cutting experts adds.
- ``buffers`` is the room that arriving tokens take.
- ``rules`` are what a router, its experts and the layout must agree on.
- ``details`` says how even the load is, what is dropped, and how far tokens travel.
- ``dispatch`` and ``placement`` answer the same questions without a training step.
"""

from __future__ import annotations

from pathlib import Path

from parcost import Rulebook, hookimpl

PARTS = (
    "buffers",
    "details",
    "dispatch",
    "exchange",
    "placement",
    "rules",
)


@hookimpl
def rulebooks() -> list[Rulebook]:
    """Offer the pages of the rules."""
    return [Rulebook(name="experts", file=Path(__file__).with_name("rules.toml"))]
