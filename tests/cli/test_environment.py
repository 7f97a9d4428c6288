"""Commands in odd surroundings: no current directory, no stdin, a terminal without end."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from parcost_apps.batch.cache import default_place
from parcost_apps.cli import main
from parcost_apps.cli.pages import paper

PIPELINE = "pipeline q { stages = 1, micro_batches = 3, forward = 0.1 s, backward = 0.7 s }\n"
STEP = """
use catalog.devices.h100_sxm
use catalog.fabrics.hgx_h100
use catalog.models.llama3_8b
use catalog.precisions.bf16
cluster { devices = 64 }
layout { tp = 2, zero = 1, sequence_parallel = on }
training { sequence = 8192, global_batch = 64 sequences, recompute = full }
"""
GONE = "cannot be read: the current directory was removed"


@pytest.fixture
def parent_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Go to a directory that is removed; return one that is there."""
    folder = tmp_path / "gone"
    folder.mkdir()
    monkeypatch.chdir(folder)
    folder.rmdir()
    return tmp_path


@pytest.mark.usefixtures("parent_folder")
@pytest.mark.parametrize("name", [".", "a.par", "*.par"])
@pytest.mark.parametrize("command", ["check", "eval", "fmt", "show"])
def test_a_removed_directory_is_an_error(
    capsys: pytest.CaptureFixture[str], command: str, name: str
) -> None:
    arguments = ["--no-cache"] if command == "eval" else []
    assert main([command, name, *arguments]) == 2
    printed = "".join(capsys.readouterr())
    assert GONE in printed or (command, name) == ("fmt", "a.par")
    assert "internal error" not in printed


@pytest.mark.slow
@pytest.mark.parametrize("more", [[], ["b.par"]])
def test_absolute_paths_need_no_directory(
    parent_folder: Path, capsys: pytest.CaptureFixture[str], more: list[str]
) -> None:
    for name in ("a.par", *more):
        (parent_folder / name).write_text(PIPELINE)
    paths = [str(parent_folder / name) for name in ("a.par", *more)]
    assert main(["eval", *paths, "--no-cache", *(["--jobs", "2"] if more else [])]) == 0
    assert "2.4 s" in capsys.readouterr().out


def test_a_plugin_by_a_relative_path_is_not_there(
    parent_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (parent_folder / "a.par").write_text(PIPELINE)
    assert main(["eval", str(parent_folder / "a.par"), "--plugin", "p.py"]) == 2
    assert "the path does not exist" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["fmt", "calibrate"])
def test_a_closed_stdin_is_an_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    monkeypatch.setattr(sys, "stdin", None)
    assert main([command, "-"]) == 2
    assert "`<stdin>` cannot be read: it is closed" in capsys.readouterr().err


@pytest.mark.parametrize("forced", ["", "1"])
def test_no_page_is_wider_than_a_thousand_columns(
    monkeypatch: pytest.MonkeyPatch, forced: str
) -> None:
    monkeypatch.setenv("COLUMNS", "1000000000")
    monkeypatch.setenv("FORCE_COLOR", forced)
    assert paper(sys.stdout).width == 1000


def test_a_relative_cache_home_is_ignored(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for relative in ("relative", "./relative", ""):
        monkeypatch.setenv("XDG_CACHE_HOME", relative)
        assert default_place() == tmp_path / ".cache" / "parcost"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "other"))
    assert default_place() == tmp_path / "other" / "parcost"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("tp", "columns"),
    [
        ("3", ["path", "name", "verdict", "feasible", "reason"]),
        ("[3, 5]", ["path", "name", "layout.tp", "verdict", "feasible", "reason"]),
        (
            "[2, 3]",
            ["path", "name", "layout.tp", "step_time_seconds", "verdict", "feasible", "reason"],
        ),
    ],
)
def test_a_figure_has_one_name_whether_or_not_points_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], tp: str, columns: list[str]
) -> None:
    (tmp_path / "a.par").write_text(STEP.replace("tp = 2", f"tp = {tp}"))
    main(["eval", str(tmp_path / "a.par"), "--format", "csv", "--figures", "step_time"])
    assert capsys.readouterr().out.splitlines()[0].split(",") == columns


def test_a_device_that_never_waits_idles_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.par").write_text(STEP)
    assert main(["timeline", str(tmp_path / "a.par")]) == 0
    assert re.search(r" 0 %  +1$", capsys.readouterr().out.rstrip())
