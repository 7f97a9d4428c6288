"""Rates of links, per direction or for both directions together."""

from __future__ import annotations

from typing import Any

from parcost import RATE, quantity

DIRECTIONS = {"per_direction": 1.0, "bidirectional": 0.5}


def link_rate(*, doc: str, **options: Any) -> Any:
    """Declare a rate of a link; a spec must name its direction after the value."""
    options = {"qualifiers": DIRECTIONS, **options}
    return quantity(RATE, positive=True, must_qualify=True, doc=doc, **options)
