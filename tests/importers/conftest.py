"""Commands in a folder of their own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from parcost.cli import main


@pytest.fixture
def run_command(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Any]:
    """Run a command in a folder of its own; texts by the name of their file are written first."""
    monkeypatch.chdir(tmp_path)
    for name in ("FORCE_COLOR", "NO_COLOR", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)

    def do(*arguments: str, files: dict[str, str] | None = None) -> Any:
        for name, text in (files or {}).items():
            (tmp_path / name).write_text(text, encoding="utf-8")
        code = main(list(arguments))
        out, err = capsys.readouterr()
        assert "Traceback" not in out + err
        return SimpleNamespace(code=code, out=out, err=err)

    return do
