"""Commands in a directory of their own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from parcost.cli import main


@pytest.fixture
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work in an empty directory, on paper of the usual width without colours."""
    monkeypatch.chdir(tmp_path)
    for name in ("FORCE_COLOR", "NO_COLOR", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


@pytest.fixture
def run_command(
    capsys: pytest.CaptureFixture[str], own_folder: Path
) -> Callable[..., SimpleNamespace]:
    """Run a command; files are written first, by their names without `.par`."""

    def do(*arguments: str, **files: str) -> SimpleNamespace:
        for name, text in files.items():
            (own_folder / f"{name}.par").write_text(text, encoding="utf-8")
        code = main(list(arguments))
        out, err = capsys.readouterr()
        assert "Traceback" not in out + err
        return SimpleNamespace(code=code, out=out, err=err)

    return do
