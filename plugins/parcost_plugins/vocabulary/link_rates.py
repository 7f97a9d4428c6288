"""Rates of links, which vendors print for one direction or for both together."""

from __future__ import annotations

from typing import Any

from parcost import RATE, quantity

DIRECTIONS = {"per_direction": 1.0, "bidirectional": 0.5}


def link_rate(*, doc: str, **options: Any) -> Any:
    """Declare a rate of a link, behind which a spec names the direction that it counts."""
    options = {"qualifiers": DIRECTIONS, **options}
    return quantity(RATE, positive=True, must_qualify=True, doc=doc, **options)
