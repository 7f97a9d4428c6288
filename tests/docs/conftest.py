"""What pages of documentation share: a command of a page is run, and its output compared."""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from parcost_apps.cli import main

_SPEED = re.compile(r"\(\d+\.\d s, [\d,]+ layouts/s\)|in \d+\.\d s, [\d,.]+ a second")
_REST = "...\n"


@pytest.fixture
def print_output(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[[str, Path, str], str]:
    """Return what a command of a page prints in a copy of a folder, stderr first, without speeds.

    Where the page shows the beginning alone, with a line of dots, so does the text.
    """

    def run(command: str, folder: Path, shown: str) -> str:
        shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
        monkeypatch.chdir(tmp_path)
        for name in ("FORCE_COLOR", "COLUMNS"):
            monkeypatch.delenv(name, raising=False)
        code = main(shlex.split(command)[1:])
        out, err = capsys.readouterr()
        assert code in (0, 1), err
        printed = _SPEED.sub("(...)", "\n".join(part.rstrip() for part in (err, out) if part))
        printed += "\n" if printed else ""
        if not shown.endswith(_REST):
            return printed
        lines = printed.splitlines(keepends=True)
        return "".join(lines[: shown.count("\n") - 1]) + _REST

    return run
