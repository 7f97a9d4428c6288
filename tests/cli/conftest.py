"""Fixtures of the tests of this folder."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from parcost_apps.cli import main

from .command_specs import Run


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run a command in a directory of its own; files are written there first."""
    monkeypatch.chdir(tmp_path)
    for name in ("FORCE_COLOR", "NO_COLOR", "COLUMNS", "PARCOST_DEBUG"):
        monkeypatch.delenv(name, raising=False)

    def do(*arguments: str, **files: str) -> Any:
        for name, text in files.items():
            path = tmp_path / (name.replace("__", "/") + ".par")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        code = main(list(arguments))
        out, err = capsys.readouterr()
        assert "Traceback" not in out + err
        return SimpleNamespace(code=code, out=out, err=err)

    return do
