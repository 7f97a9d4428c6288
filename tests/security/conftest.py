"""A command in a project of its own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from parcost_apps.cli import main

Run = Callable[..., Any]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run a command in a project of its own, with a cache of its own."""
    place = tmp_path / "project"
    (place / ".git").mkdir(parents=True)
    monkeypatch.chdir(place)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "caches"))
    monkeypatch.delenv("PARCOST_NO_CACHE", raising=False)

    def do(*arguments: str) -> Any:
        code = main(list(arguments))
        out, err = capsys.readouterr()
        return SimpleNamespace(code=code, out=out, err=err, text=out + err)

    return do
