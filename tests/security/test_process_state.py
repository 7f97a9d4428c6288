"""Plugins that would end the process or change its state, and outputs that are no plain file."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SPEC = """
use catalog.devices.h100_sxm
use catalog.fabrics.hgx_h100
use catalog.models.llama3_8b
use catalog.precisions.bf16
cluster { devices = 8 }
layout { tp = 8 }
training { sequence = 2048, global_batch = 8 sequences }
"""
PLUGIN = """
import os
import sys
from parcost import hookimpl

@hookimpl
def {hook}(study):
    {call}
    return []
"""


def parcost(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command as a user does."""
    command = [sys.executable, "-P", "-m", "parcost", *arguments]
    return subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=60, check=False
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("a.par", "b.par"):
        (tmp_path / name).write_text(SPEC)
    return tmp_path


@pytest.mark.slow
@pytest.mark.parametrize("jobs", [(), ("--jobs", "2")], ids=["alone", "jobs"])
@pytest.mark.parametrize(
    ("call", "message"),
    [
        ("os._exit(0)", "`os._exit` is not allowed"),
        ("os.chdir('/')", "`os.chdir` is not allowed"),
        ("sys.setrecursionlimit(60)", "`sys.setrecursionlimit` would lower the limit"),
    ],
)
def test_the_plugin_is_named_and_every_file_has_a_result(
    folder: Path, call: str, message: str, jobs: tuple[str, ...]
) -> None:
    (folder / "quitter.py").write_text(PLUGIN.format(hook="terms", call=call))
    options = ("--plugin", "quitter.py", "--format", "jsonl", *jobs)
    done = parcost(folder, "eval", "a.par", "b.par", *options)
    assert done.returncode == 3
    expected = (
        f"plugin `quitter` of quitter.py failed in `terms`: raised ProcessStateError: {message}"
    )
    assert expected in " ".join(done.stderr.split())
    assert len(done.stdout.splitlines()) == 2
    assert "missing" not in done.stderr


@pytest.mark.slow
def test_a_higher_recursion_limit_is_a_plugins_own_business(folder: Path) -> None:
    call = "sys.setrecursionlimit(sys.getrecursionlimit() + 1)"
    (folder / "deep.py").write_text(PLUGIN.format(hook="terms", call=call))
    done = parcost(folder, "eval", "a.par", "--plugin", "deep.py", "--format", "json")
    assert "deep" not in done.stderr
    assert done.returncode != 3


@pytest.mark.slow
def test_the_file_behind_a_link_is_written_and_the_link_stays(folder: Path) -> None:
    (folder / "results").mkdir()
    (folder / "link.json").symlink_to("results/target.json")
    parcost(folder, "eval", "a.par", "--format", "json", "--out", "link.json")
    assert (folder / "link.json").is_symlink()
    assert (folder / "results/target.json").read_text().startswith("{")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="pipes of POSIX")
@pytest.mark.slow
def test_a_pipe_that_no_program_reads_is_an_error(folder: Path) -> None:
    os.mkfifo(folder / "pipe")
    done = parcost(folder, "eval", "a.par", "--format", "json", "--out", "pipe")
    assert done.returncode != 0
    assert "`pipe` cannot be written: the reader of this pipe has exited" in done.stderr


@pytest.mark.skipif(sys.platform != "linux", reason="names of files are bytes there")
@pytest.mark.slow
def test_a_file_whose_name_is_not_utf8_is_drawn(folder: Path) -> None:
    pytest.importorskip("vl_convert")
    name = os.fsdecode(b"\xff.par")
    (folder / name).write_text(SPEC)
    done = parcost(folder, "eval", ".", "--format", "svg", "--out", "a.svg")
    assert "failed to write" not in done.stderr
    assert r"\udcff" in (folder / "a.svg").read_text()
