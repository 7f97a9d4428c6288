"""Extras: those that texts name can be installed, and ``parcost[all]`` has each that a user needs."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
DEVELOPERS = {"all", "dev", "docs", "measure", "test"}
NAMED = re.compile(r"parcost\[([a-z,]+)\]|MissingExtraError\([^)]*?\"(\w+)\"(?:, \w+)?\)")


def texts() -> list[Path]:
    """Return the files that may tell a user to install an extra."""
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "docs").rglob("*.ipynb")]
    code = [p for folder in ("core", "plugins") for p in (ROOT / folder).rglob("*.py")]
    return [*pages, *code, *(ROOT / "core").rglob("*.toml")]


@pytest.mark.parametrize("extra", ["all", "calibrate", "lsp", "pictures", "serve", "yaml"])
def test_extras_are_named_where_they_are_needed(extra: str) -> None:
    named = {
        name
        for path in texts()
        for found in NAMED.findall(path.read_text(encoding="utf-8"))
        for name in ",".join(found).split(",")
        if name
    }
    assert extra in named
    assert named <= set(EXTRAS)


def test_all_has_every_extra_of_a_user() -> None:
    assert set(EXTRAS["all"]) == {f"parcost[{name}]" for name in set(EXTRAS) - DEVELOPERS}
