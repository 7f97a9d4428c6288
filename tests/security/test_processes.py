"""Nothing in the current directory is run, unless the command line names it."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from parcost_apps.batch.cache import make_private

SPEC = """\
use catalog.devices.h100_sxm
use catalog.fabrics.hgx_h100
use catalog.models.llama3_8b
use catalog.precisions.bf16
cluster  { devices = 16 }
layout   { tp = 2, zero = 1, sequence_parallel = on }
training { sequence = 8192, global_batch = 32 sequences }
"""
Run = Callable[..., Any]


def process(*arguments: str, **settings: Any) -> subprocess.CompletedProcess[str]:
    """Run the installed command as a shell does, without a path of our own."""
    env = {**os.environ, **settings.pop("env", {})}
    env.pop("PYTHONPATH", None)
    command = [str(Path(sys.executable).with_name("parcost")), *arguments]
    return subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=100, env=env, **settings
    )


POISONED = (
    "multiprocessing", "concurrent", "numpy", "parcost", "parcost_apps", "parcost_formats",
    "parcost_measured", "parcost_plugins", "sitecustomize", "usercustomize", "pluggy", "attrs", "lark", "click", "distributed", "duckdb", "json", "pickle",
)  # fmt: skip
COMMANDS = {
    "eval": ("eval", "a.par", "b.par", "--format", "csv"),
    "eval --jobs": ("eval", "a.par", "b.par", "--format", "csv", "--jobs", "2"),
    "search": ("search", "a.par", "--over", "tp=1,2"),
    "parquet": ("eval", "a.par", "--format", "parquet", "--out", "out.parquet"),
    "check": ("check", "a.par"),
    "plugins": ("plugins",),
}


def poisoned() -> None:
    for name in POISONED:
        Path(f"{name}.py").write_text(f"open('ran_{name}', 'w')\nraise ImportError('{name}')\n")
    found = Path("theirs-1.dist-info")
    found.mkdir()
    (found / "METADATA").write_text("Metadata-Version: 2.1\nName: theirs\nVersion: 1\n")
    groups = ("parcost", "parcost.commands", "parcost.executors")
    (found / "entry_points.txt").write_text("".join(f"[{g}]\nevil = evil\n" for g in groups))
    Path("evil.py").write_text("open('ran_evil', 'w')\n")
    Path("a.par").write_text(SPEC)
    Path("b.par").write_text(SPEC.replace("8192", "4096"))


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS)
def test_no_process_imports_from_the_current_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    """Workers imported `multiprocessing` from there, and went on as if nothing had been."""
    if command == "parquet":
        pytest.importorskip("duckdb")
    monkeypatch.chdir(tmp_path)
    poisoned()
    done = process(*COMMANDS[command], env={"XDG_CACHE_HOME": str(tmp_path / "caches")})
    assert done.returncode == 0, done.stderr
    assert not list(tmp_path.glob("ran_*"))
    assert "Traceback" not in done.stderr
    assert "evil" not in done.stdout


@pytest.mark.slow
def test_what_the_command_line_names_is_run(run: Run) -> None:
    Path("a.par").write_text(SPEC)
    hook = "from parcost import hookimpl\nopen('ran', 'w').close()\n@hookimpl\ndef terms():\n    return []\n"
    Path("named.py").write_text(hook)
    assert run("eval", "a.par").code == 0
    assert not Path("ran").exists()
    assert run("eval", "a.par", "--plugin", "named.py").code == 0
    assert Path("ran").exists()


def test_the_environment_configures_processes_only_at_their_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from parcost_apps.batch.executors import processes

    monkeypatch.delenv("PYTHONSAFEPATH", raising=False)
    before = dict(os.environ)
    executor = processes(2).start()
    assert dict(os.environ) == before
    executor.shutdown()


@pytest.mark.slow
def test_results_are_kept_for_their_owner_alone(run: Run, tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        Path("specs").mkdir()
        Path("specs/a.par").write_text(SPEC)
        run("eval", "specs", "--format", "csv")
    finally:
        os.umask(before)
    top = tmp_path / "caches" / "parcost"
    for path in (top, *top.rglob("*")):
        assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0, path


@pytest.mark.slow
def test_a_cache_of_an_older_version_is_closed(run: Run, tmp_path: Path) -> None:
    top = tmp_path / "caches" / "parcost"
    top.mkdir(parents=True, mode=0o755)
    top.chmod(0o755)
    Path("specs").mkdir()
    Path("specs/a.par").write_text(SPEC)
    run("eval", "specs")
    assert stat.S_IMODE(top.stat().st_mode) == 0o700


def test_a_folder_of_another_user_is_left_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tmp_path.chmod(0o755)
    monkeypatch.setattr(os, "getuid", lambda: tmp_path.stat().st_uid + 1)
    make_private(tmp_path)
    assert stat.S_IMODE(tmp_path.stat().st_mode) == 0o755


@pytest.mark.slow
def test_without_an_executor_no_cluster_is_contacted(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    import socket

    def connect(*_: object, **__: object) -> None:
        raise AssertionError("a connection")

    monkeypatch.setenv("DASK_SCHEDULER_ADDRESS", "tcp://127.0.0.1:8786")
    monkeypatch.setattr(socket, "create_connection", connect)
    monkeypatch.setattr(socket.socket, "connect", connect)
    Path("a.par").write_text(SPEC)
    assert run("eval", "a.par").code == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    "address", ["", "no host", "nohost.invalid", "127.0.0.1:1", "h:99999", "[::"]
)
def test_an_address_without_a_scheduler_is_bad_input(run: Run, address: str) -> None:
    pytest.importorskip("distributed")
    Path("a.par").write_text(SPEC)
    done = run("eval", "a.par", "--executor", f"dask://{address}")
    assert (done.code, done.out) == (2, "")
    assert f"error[no-executor]: no Dask scheduler answers at `{address}`: " in done.err
    assert "Traceback" not in done.err


@pytest.mark.slow
def test_one_who_takes_connections_and_says_nothing_is_bad_input(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    import socket

    pytest.importorskip("distributed")
    from parcost_apps.executors import dask

    monkeypatch.setattr(dask, "_PATIENCE_SECONDS", 1)
    Path("a.par").write_text(SPEC)
    with socket.create_server(("127.0.0.1", 0)) as mute:
        address = f"127.0.0.1:{mute.getsockname()[1]}"
        done = run("eval", "a.par", "--executor", f"dask://{address}")
    assert done.code == 2
    assert "error[no-executor]" in done.err
    assert "Traceback" not in done.err
