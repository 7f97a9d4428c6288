"""The rules of this package: their pages, severities and messages."""

from pathlib import Path

from parcost import Rulebook

RULES = Rulebook(name="context", file=Path(__file__).with_name("rules.toml"))
