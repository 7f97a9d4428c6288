"""Entries as plain data, in a cache or a shard."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from parcost.contract.entries import Entry, Problem


def read_entry(head: Mapping[str, Any], text: str) -> Entry:
    """Return the entry of a *head* and a text, read from a cache or a shard.

    Raises:
        KeyError, TypeError, ValueError: The line is not the head of an entry.
    """
    name = head["name"]
    return Entry(
        path=str(head["path"]),
        name=None if name is None else str(name),
        exit_code=int(head["exit_code"]),
        reasons=tuple(map(str, head["reasons"])),
        problems=tuple(
            Problem(text=str(full), line=str(one), shown=bool(shown))
            for full, one, shown in head["problems"]
        ),
        faults=tuple(map(str, head["faults"])),
        missing=tuple((str(figure), str(hint)) for figure, hint in head["missing"]),
        part=head["part"],
        text=text,
        remembered=True,
    )


def entry_head(entry: Entry) -> dict[str, Any]:
    """Return all fields except the text, as plain data."""
    return {
        "path": entry.path,
        "name": entry.name,
        "exit_code": entry.exit_code,
        "reasons": list(entry.reasons),
        "problems": [[p.text, p.line, p.shown] for p in entry.problems],
        "faults": list(entry.faults),
        "missing": [list(pair) for pair in entry.missing],
        "part": entry.part,
    }
