"""The grammar of the .par language as data: its source, and the tables of the parser."""

from __future__ import annotations

import json
from pkgutil import get_data  # importlib.resources takes longer to import than to read
from typing import Any


def _read(name: str) -> str:
    data = get_data(__package__, name)
    if data is None:
        raise FileNotFoundError(name)
    return data.decode("utf-8")


def tables() -> dict[str, Any]:
    """Return the tables that `parcost_grammar.generate` made from the grammar."""
    data: dict[str, Any] = json.loads(_read("par.json"))
    return data
