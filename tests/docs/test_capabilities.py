"""Every capability is there once, and every command that shows one does what it says."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from parcost_apps.cli import main

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "capabilities.md").read_text(encoding="utf-8")
COUNTS = {"000": 24, "001": 13, "002": 55, "003": 21, "004": 13}
_ROW = re.compile(
    r"^\| \[(?P<done>[x ])\] \| (?P<id>\d{3}\.\d+) \| (?P<what>[^|]+) \| (?P<by>.+) \|$"
)
_COMMAND = re.compile(r"`parcost (?P<words>[^`]+)`(?: \(exits (?P<code>\d))?")
_TITLE = re.compile(r'`parcost (?P<words>eval [^` ]+ --full)`: (?P<titles>"[^|]+")')
ROWS = [match for line in TEXT.splitlines() if (match := _ROW.match(line))]


def commands() -> dict[str, int]:
    """Return each command once, with the exit code that it is to have."""
    return {
        match["words"]: int(match["code"] or 0)
        for row in ROWS
        for match in _COMMAND.finditer(row["by"])
    }


def test_all_126_are_there_in_order() -> None:
    wanted = [f"{document}.{i}" for document, n in COUNTS.items() for i in range(1, n + 1)]
    assert [row["id"] for row in ROWS] == wanted
    assert len(wanted) == 126


def test_each_is_done_and_shown() -> None:
    for row in ROWS:
        assert row["done"] == "x", row["id"]
        assert _COMMAND.search(row["by"]), row["id"]


@pytest.mark.parametrize("words", commands())
def test_the_command_runs_and_prints_the_parts_that_are_named(
    words: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("COLUMNS", "120")
    code = main(shlex.split(words))
    out, err = capsys.readouterr()
    assert code == commands()[words], out + err
    assert (out + err).strip()
    for title in titles().get(words, ()):
        assert title in out


def titles() -> dict[str, list[str]]:
    """Return the titles of parts that a report has, by its command."""
    found: dict[str, list[str]] = {}
    for row in ROWS:
        for match in _TITLE.finditer(row["by"]):
            found.setdefault(match["words"], []).extend(re.findall(r'"([^"]+)"', match["titles"]))
    return found


def test_a_command_that_has_titles_is_one_that_runs() -> None:
    assert titles().keys() <= commands().keys()
    assert sum(map(len, titles().values())) >= 16
