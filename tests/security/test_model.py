"""What `docs/security.md` states, a test holds."""

from __future__ import annotations

import re
from pathlib import Path

from parcost.system.files import KINDS

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")
ADVICE = "Tasks and answers travel"  # what a library does, and what that means


def test_every_statement_has_a_test() -> None:
    files = [
        f
        for folder in ("security", "editor", "server")
        for f in (ROOT / "tests" / folder).glob("test_*.py")
    ]
    known = {n for f in files for n in re.findall(r"^def (test_\w+)", f.read_text(), re.MULTILINE)}
    statements = re.findall(r"^- (.+(?:\n  .+)*)", TEXT, re.MULTILINE)
    assert len(statements) > 20
    for statement in statements:
        named = re.findall(r"`(test_\w+)`", statement)
        assert named or statement.startswith(ADVICE), statement
        assert set(named) <= known


def test_the_limits_are_those_of_the_code() -> None:
    rows = re.findall(r"^\| ([a-z ]+) \| ([\d,]+) \|$", TEXT, re.MULTILINE)
    assert rows == [(kind.name, f"{kind.limit:,}") for kind in KINDS]
