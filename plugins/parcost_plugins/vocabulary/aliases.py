"""Names of attributes in other tools, for messages that suggest the name in parcost."""

import tomllib
from collections.abc import Mapping
from pathlib import Path

#: The attribute, or what to write, by kind of block and name.
ALIASES: Mapping[str, Mapping[str, str]] = tomllib.loads(
    Path(__file__).with_name("aliases.toml").read_text(encoding="utf-8")
)
