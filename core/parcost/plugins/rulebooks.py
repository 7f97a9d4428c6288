"""The rulebooks of the core and of plugins, with all rules and their severities. The core reads the
tables only if a spec switches off a warning by its id. ``parcost rule`` makes pages of the same
tables.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from parcost.contract.calls import CallError, call
from parcost.contract.offers import Rulebook
from parcost.contract.plugin import Plugin
from parcost.plugins.discovery import Plugins
from parcost.plugins.registry import precedence

CORE_BOOKS = Path(__file__).parents[1] / "rulebooks"


def rulebooks(plugins: Plugins) -> Iterator[tuple[Plugin | None, Rulebook]]:
    """Yield the rulebooks of the core, then those of *plugins*; the first table of a rule is
    used.
    """
    for path in sorted(CORE_BOOKS.glob("*.toml")):
        yield None, Rulebook(name=path.stem, file=path)
    yield from sorted(plugins.offers("rulebooks").values(), key=lambda offer: precedence(offer[0]))


def rule_tables(plugins: Plugins) -> Mapping[str, Mapping[str, Any]]:
    """Return the table of each rule by its id, read once; ``parcost rule`` names invalid books."""
    if "rules" not in plugins.known:
        found: dict[str, Mapping[str, Any]] = {}
        for _, book in rulebooks(plugins):
            try:
                tables = call(book.tables)
            except CallError:
                continue
            found = {id: table for id, table in tables.items() if isinstance(table, dict)} | found
        found.pop("bases", None)
        plugins.known["rules"] = found
    rules: Mapping[str, Mapping[str, Any]] = plugins.known["rules"]
    return rules
