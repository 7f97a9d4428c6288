"""Patterns for the names of devices, schedules and kernels in sources; the first match counts."""

import re
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

_TABLES: Mapping[str, Any] = tomllib.loads(
    Path(__file__).with_name("names.toml").read_text(encoding="utf-8")
)
DEVICES: Mapping[str, str] = _TABLES["devices"]
SCHEDULES: Mapping[str, str] = _TABLES["schedules"]
ATTENTION_KERNELS: Mapping[str, str] = _TABLES["attention"]
#: Fields of `extra` of a row.
EXTRAS: Mapping[str, Sequence[str]] = _TABLES["extras"]


def find_schedule(text: str | None) -> str | None:
    """Return the schedule that *text* names: "" for 1F1B or none, None for an unknown one.

    >>> find_schedule("Interleaved 1F1B"), find_schedule("none (data parallel)")
    ('interleaved', '')
    """
    said = (text or "").lower()
    for pattern, kind in SCHEDULES.items():
        if re.search(pattern, said):
            return kind
    return "" if not said or re.search(r"1f1b|none|unknown", said) else None
