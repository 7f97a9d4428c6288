"""Patterns for the names of devices, schedules and kernels in sources; the first match counts."""

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
