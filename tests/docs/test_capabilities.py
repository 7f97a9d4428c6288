"""Every capability is there once, and every command that shows one does what it says."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest

from parcost.cli import main

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "capabilities.md").read_text(encoding="utf-8")
COUNTS = {"000": 24, "001": 13, "002": 55, "003": 21, "004": 13}
_ROW = re.compile(
    r"^\| \[(?P<done>[x ])\] \| (?P<id>\d{3}\.\d+) \| (?P<what>[^|]+) \| (?P<by>.+) \|$"
)
_COMMAND = re.compile(r"`parcost (?P<words>[^`]+)`(?: \(exits (?P<code>\d))?")
_TITLE = re.compile(r'`parcost eval (?P<file>[^` ]+ --full)`: (?P<titles>"[^|]+")')
ROWS = [match for line in TEXT.splitlines() if (match := _ROW.match(line))]


def commands() -> dict[str, int]:
    """Return each command once, with the exit code that it is to have."""
    return {
        match["words"]: int(match["code"] or 0)
        for row in ROWS
        for match in _COMMAND.finditer(row["by"])
    }


Run = Callable[[str], tuple[int, str]]
_SAID: dict[str, tuple[int, str]] = {}


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run a command once in the root of the project: its exit code, and what it says."""
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("COLUMNS", "120")

    def run(words: str) -> tuple[int, str]:
        if words not in _SAID:
            code = main(shlex.split(words))
            said = capsys.readouterr()
            _SAID[words] = code, said.out + said.err
        return _SAID[words]

    return run


def test_all_126_are_there_in_order() -> None:
    wanted = [f"{document}.{i}" for document, n in COUNTS.items() for i in range(1, n + 1)]
    assert [row["id"] for row in ROWS] == wanted
    assert len(wanted) == 126


def test_each_is_done_and_shown() -> None:
    for row in ROWS:
        assert row["done"] == "x", row["id"]
        assert _COMMAND.search(row["by"]), row["id"]


@pytest.mark.parametrize("words", commands())
def test_the_command_runs(words: str, run: Run) -> None:
    code, said = run(words)
    assert code == commands()[words], said
    assert said.strip()


@pytest.mark.parametrize(
    ("file", "title"),
    sorted(
        {
            (match["file"], title)
            for row in ROWS
            for match in _TITLE.finditer(row["by"])
            for title in re.findall(r'"([^"]+)"', match["titles"])
        }
    ),
)
def test_the_report_has_the_part_that_is_named(file: str, title: str, run: Run) -> None:
    _, said = run(f"eval {file}")
    assert title in said
