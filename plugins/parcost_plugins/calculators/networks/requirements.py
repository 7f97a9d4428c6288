"""Rules for required attributes of a block."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from parcost import Check, block_name
from parcost_plugins.calculators.rulebook import RULES


def missing_attributes(block: Any, *names: str) -> Iterator[Check]:
    """Yield an error for each required attribute in *names* that *block* leaves out."""
    for name in names:
        value = getattr(block, name)
        if value is None or (isinstance(value, tuple) and not value):
            yield RULES.check(
                "network-lacks",
                False,
                f"{block_name(block)}.{name}",
                label=block_name(block),
                kind=block.kind,
                name=name,
            )
