"""Values of OmegaConf with references: ``${model.ffn}``, ``${multiply:4, ${.hidden}}``."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from typing import Any

from parcost_formats.tools.json_text import JsonEntry

MANDATORY = "???"  # a value that the command line has to give
_REFERENCE = re.compile(r"\$\{([^${}]*)\}")
_PATH = re.compile(r"(\.*)([\w.]+)")
_MOST_STEPS = 20
_LONGEST = 2_000  # characters of a value with references
#: Resolvers of NeMo and NeMo RL that compute a number of two others.
_RESOLVERS: Mapping[str, Callable[[float, float], float]] = {
    "multiply": lambda one, other: one * other,
    "mul": lambda one, other: one * other,
    "max": max,
    "min": min,
    "add": lambda one, other: one + other,
    "subtract": lambda one, other: one - other,
    "divide": lambda one, other: one / other,
    "div": lambda one, other: one / other,
    "divide_floor": lambda one, other: one // other,
    "divide_ceil": lambda one, other: math.ceil(one / other),
}


def resolve(entries: Mapping[str, JsonEntry]) -> dict[str, JsonEntry]:
    """Return the entries with references replaced by their values.

    Arithmetic resolvers are evaluated. Resolvers of the environment, and all others, are left
    unchanged.

    >>> entries = {"a.b": JsonEntry(8, 0, 1), "a.c": JsonEntry("${multiply:4, ${.b}}", 2, 3)}
    >>> resolve(entries)["a.c"].value
    32
    """
    return {
        key: JsonEntry(_value(key, entry.value, entries, 0), entry.start, entry.end)
        for key, entry in entries.items()
    }


def _value(key: str, value: Any, entries: Mapping[str, JsonEntry], depth: int) -> Any:
    """Return a value with its references resolved; a cycle ends at an arbitrary value."""
    if not isinstance(value, str) or len(value) > _LONGEST or "${" not in value:
        return value
    for _ in range(_MOST_STEPS):
        match = _REFERENCE.search(value)
        if match is None:
            break
        found = _resolve_reference(key, match[1], entries, depth)
        if found is None:
            break
        if match[0] == value:
            return found
        value = f"{value[: match.start()]}{found}{value[match.end() :]}"
        if len(value) > _LONGEST:
            break
    return value


def _resolve_reference(key: str, text: str, entries: Mapping[str, JsonEntry], depth: int) -> Any:
    """Return the value of a reference or a resolver, None if it is unknown."""
    name, colon, rest = text.partition(":")
    if colon:
        return _compute(name.strip(), rest)
    match = _PATH.fullmatch(text.strip())
    if match is None or depth > _MOST_STEPS:
        return None
    dots, path = match.groups()
    parts = key.split(".")
    target = ".".join([*parts[: max(len(parts) - len(dots), 0)], path]) if dots else path
    if target not in entries:
        return None
    return _value(target, entries[target].value, entries, depth + 1)


def _compute(name: str, rest: str) -> float | None:
    """Return the result of an arithmetic resolver on two numbers, None for other resolvers."""
    operation, parts = _RESOLVERS.get(name), rest.split(",")
    if operation is None or len(parts) != 2:
        return None
    try:
        found = operation(float(parts[0]), float(parts[1]))
    except (ValueError, ArithmeticError):
        return None
    return int(found) if abs(found) < 1e15 and found == int(found) else found
