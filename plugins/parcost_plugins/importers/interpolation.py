"""Values of OmegaConf that refer to others: ``${model.hidden_size}``, ``${.seq_length}``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from parcost_plugins.importers.json_text import JsonEntry

MANDATORY = "???"  # a value that the command line has to give
_REFERENCE = re.compile(r"\$\{(\.*)([\w.]+)\}")
_MOST_STEPS = 20


def resolve(entries: Mapping[str, JsonEntry]) -> dict[str, JsonEntry]:
    """Return entries whose references are replaced by what they refer to.

    Resolvers, such as ``${multiply:...}`` and those of the environment, are left as they are.

    >>> entries = {"a.b": JsonEntry(8, 0, 1), "a.c": JsonEntry("${.b}", 2, 3)}
    >>> resolve(entries)["a.c"].value
    8
    """
    return {
        key: JsonEntry(_value(key, entry.value, entries), entry.start, entry.end)
        for key, entry in entries.items()
    }


def _value(key: str, value: Any, entries: Mapping[str, JsonEntry]) -> Any:
    """Return the value that a chain of references ends at; of a circle, any of its own."""
    for _ in range(_MOST_STEPS):
        match = _REFERENCE.fullmatch(value) if isinstance(value, str) else None
        if match is None:
            break
        dots, path = match.groups()
        parts = key.split(".")
        target = ".".join([*parts[: max(len(parts) - len(dots), 0)], path]) if dots else path
        if target not in entries:
            break
        key, value = target, entries[target].value
    return value
