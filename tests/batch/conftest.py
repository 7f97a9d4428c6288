"""Fixtures of the tests of this folder."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from parcost_apps.cli import main

from .batch_specs import Run


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run a command in a directory of its own, with a cache of its own."""
    place = tmp_path / "work"
    place.mkdir()
    monkeypatch.chdir(place)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "caches"))
    for name in ("FORCE_COLOR", "NO_COLOR", "COLUMNS", "PARCOST_DEBUG", "PARCOST_NO_CACHE"):
        monkeypatch.delenv(name, raising=False)

    def do(*arguments: str) -> Any:
        code = main(list(arguments))
        out, err = capsys.readouterr()
        assert "Traceback" not in out + err
        return SimpleNamespace(code=code, out=out, err=err)

    return do


@pytest.fixture
def evaluations(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return a list to which the path of every evaluation in this process is added."""
    from parcost.engine.scenario import Scenario

    paths: list[str] = []
    real = Scenario.evaluate

    def spy(scenario: Scenario, *progress: Any) -> Any:
        paths.append(scenario.path)
        return real(scenario, *progress)

    monkeypatch.setattr(Scenario, "evaluate", spy)
    return paths
