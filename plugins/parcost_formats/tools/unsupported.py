"""Keys that request unsupported features: adapters, RL rollouts, vision towers, optimizers.

The rules are in the table ``[rejected]`` of a tool. A rule maps a key, or a pattern of keys, to
the name of a missing feature. It may also map it to a table from patterns of values to such
names. The messages are in ``unsupported.toml``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from typing import Any

from parcost import ImportProblem
from parcost_formats.tools.json_text import JsonEntry
from parcost_formats.tools.tables import table

PROGRAM = "program"  # the key of the program that a script launches
_OFF = ("", "none", "null", "false", "no", "0", "0.0")


def find_unsupported_features(
    entries: Mapping[str, JsonEntry], rules: Mapping[str, Any], *, whole: bool = True
) -> Iterator[ImportProblem]:
    """Yield one error for each unsupported feature, at the first key that requests it.

    *rules* is the table of a tool. Its ``[rejecting_defaults]`` are default values of keys missing
    in a *whole* job.
    """
    title = rules["version"]
    seen: set[str] = set()
    for pattern, rule in rules.get("rejected", {}).items():
        for key, entry in _match(pattern, entries):
            part = _part_of(entry.value, rule)
            if part and part not in seen:
                seen.add(part)
                what = entry.value if key == PROGRAM else key
                shown = "" if key == PROGRAM else _render_value(entry.value)
                yield _problem(f"`{what}`{shown}", part, entry)
    first = min((one.start for one in entries.values()), default=0)
    for key, value in rules.get("rejecting_defaults", {}).items() if whole else ():
        names = key.split("|")
        part = _part_of(value, rules["rejected"][names[0]])
        if part and part not in seen and entries.keys().isdisjoint(names):
            place = JsonEntry(value, first, first + 1)
            yield _problem(
                f"`{names[0]}` is not set; the default of {title} is {value}", part, place
            )


def find_strange_models(entries: Mapping[str, JsonEntry]) -> Iterator[ImportProblem]:
    """Yield one error for each part of a model in *entries*, which are keys in no table."""
    rules = {"version": "", "rejected": table("unsupported")["strange_keys"]}
    return find_unsupported_features(entries, rules)


def is_deciding(key: str, rules: Mapping[str, Any]) -> bool:
    """Return whether a job may be rejected because of the value of a key."""
    return any(fnmatchcase(key, pattern) for pattern in rules.get("rejected", {}))


def unsupported_message(part: str) -> str:
    """Return the message that a feature is not supported, by the language or by the importer.

    >>> unsupported_message("adapters")
    'adapters other than LoRA and QLoRA are not modeled yet'
    >>> unsupported_message("lora")
    'LoRA of this kind of job is not read yet'
    """
    rules = table("unsupported")
    if part in rules["unread"]:
        return f"{rules['unread'][part]} not read yet"
    return f"{rules['parts'][part]} not modeled yet"


def unsupported_help(part: str) -> str:
    """Return the help for an unsupported feature, "" if none exists."""
    return str(table("unsupported")["help"].get(part, ""))


def _problem(what: str, part: str, entry: JsonEntry) -> ImportProblem:
    return ImportProblem(
        message=f"{what}: {unsupported_message(part)}",
        start=entry.start,
        end=entry.end,
        help=unsupported_help(part),
    )


def _match(pattern: str, entries: Mapping[str, JsonEntry]) -> Iterator[tuple[str, JsonEntry]]:
    if "*" not in pattern:
        if pattern in entries:
            yield pattern, entries[pattern]
        return
    for key, entry in entries.items():
        if fnmatchcase(key, pattern):
            yield key, entry


def _part_of(value: Any, rule: Any) -> str:
    """Return the unsupported feature that a value requests, "" for none."""
    text = " ".join(map(str, value)) if isinstance(value, list) else str(value)
    plain = text.strip().lower()
    if value is None or value in ({}, []):
        return ""
    if isinstance(rule, str):
        return "" if plain in _OFF else rule
    return next((part for form, part in rule.items() if fnmatchcase(plain, form)), "")


def _render_value(value: Any) -> str:
    """Return " is VALUE" for use after a key; empty for a switch or a long value."""
    text = " ".join(map(str, value)) if isinstance(value, list) else str(value)
    return f" is {text}" if value is not True and 0 < len(text) <= 60 else ""
