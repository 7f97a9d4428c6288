"""Names that other tools have for attributes, for messages that suggest ours."""

import tomllib
from collections.abc import Mapping
from pathlib import Path

#: The attribute, or what to write, by kind of block and name.
ALIASES: Mapping[str, Mapping[str, str]] = tomllib.loads(
    Path(__file__).with_name("aliases.toml").read_text(encoding="utf-8")
)
