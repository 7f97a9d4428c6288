"""Batches that are interrupted: signals, workers, and readers that read no more."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from .batch_specs import GOOD, Run, cache_entries, files, many_specs, process, spec_names

pytestmark = pytest.mark.slow


def is_alive(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


def test_an_interrupted_batch_goes_on_where_it_stopped(
    run: Run, evaluations: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from parcost.engine.scenario import Scenario

    files(many_specs(6))
    Path("all.jsonl").write_text("of before")
    spied = Scenario.evaluate

    def interruption(scenario: Scenario, *progress: Any) -> Any:
        if scenario.path.endswith("s003.par"):
            raise KeyboardInterrupt
        return spied(scenario, *progress)

    arguments = ["eval", "specs", "--format", "jsonl", "--out", "all.jsonl"]
    with monkeypatch.context() as patch:
        patch.setattr(Scenario, "evaluate", interruption)
        done = run(*arguments)
    assert done.code == 130
    assert done.err == (
        "3 of 6 files were done; run the same command again to continue\n"
        "not done: specs/s003.par\n\ninterrupted\n"
    )
    assert Path("all.jsonl").read_text() == "of before"
    assert spec_names() == ["all.jsonl", "specs"]
    evaluations.clear()
    assert run(*arguments).code == 0
    assert [Path(path).name for path in evaluations] == ["s003.par", "s004.par", "s005.par"]
    resumed = Path("all.jsonl").read_text()
    run(*arguments, "--no-cache")
    assert resumed == Path("all.jsonl").read_text()


def test_a_batch_prints_the_file_that_has_no_result_for_a_while(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    from parcost.engine.scenario import Scenario
    from parcost_apps.batch import formats

    files(many_specs(3))
    spied, write, named = Scenario.evaluate, formats.write_message, Event()

    def slow(scenario: Scenario, *progress: Any) -> Any:
        if scenario.path.endswith("s001.par"):
            assert named.wait(60)
        return spied(scenario, *progress)

    def write_and_name(text: str) -> None:
        write(text)
        if "s001" in text:  # the first may take long as well, on a busy machine
            named.set()

    monkeypatch.setattr(formats, "_LONG_SECONDS", 0.05)
    monkeypatch.setattr(formats, "write_message", write_and_name)
    monkeypatch.setattr(Scenario, "evaluate", slow)
    done = run("eval", "specs", "--jobs", "1", "--no-cache")
    assert done.code == 0
    slow_lines = [line for line in done.err.splitlines() if "still running" in line]
    expected = r"specs/s001\.par: still running after \d+ s; Ctrl-C stops the run"
    assert any(re.fullmatch(expected, line) for line in slow_lines)


# A plugin that stops at the study with `zero = 2`, as long as there is a gate. It sleeps in turns: a
# signal that comes just before a system call would leave the process in the call. The limit ends it
# where the tests were killed.
STOPPING = """\
import time
from pathlib import Path
from parcost import hookimpl
from parcost_plugins.vocabulary import Layout
gate = Path("gate")
@hookimpl
def terms(study):
    if study[Layout].zero == 2 and gate.exists():
        gate.write_text("closed")
        until = time.monotonic() + 300
        while gate.exists() and time.monotonic() < until:
            time.sleep(0.01)
    return []
"""
posix = pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")


def wait_for(what: Callable[[], Any]) -> Any:
    """Return what comes; the limit only ends a test that would hang."""
    until = time.monotonic() + 300
    while not (found := what()):
        assert time.monotonic() < until
        time.sleep(0.02)
    return found


@contextmanager
def half_batch(
    tmp_path: Path, *arguments: str, before: str = ""
) -> Iterator[subprocess.Popen[bytes]]:
    """Start a batch of 41 specs that stops at the last of them, and wait until it does."""
    files({**many_specs(40), "z.par": GOOD.replace("zero = 1", "zero = 2")})
    Path("stopping.py").write_text(STOPPING, encoding="utf-8")
    gate = Path("gate")
    gate.touch()
    child = process(*arguments, before=before, start_new_session=True)

    def stops() -> bool:
        assert child.poll() is None
        return gate.read_text() == "closed"

    with ExitStack() as stack:
        stack.callback(end, child)
        wait_for(stops)
        stack.callback(gate.unlink)
        wait_for(lambda: cache_entries(tmp_path))
        yield child
        wait_for(lambda: not is_alive(child.pid))


def end(child: subprocess.Popen[bytes]) -> None:
    """End what is left of a process and of its workers."""
    with suppress(ProcessLookupError):  # it has ended
        os.killpg(child.pid, signal.SIGKILL)
    with suppress(ValueError):  # it has been read to its end
        child.communicate()


def gate_command(jobs: str) -> list[str]:
    return ["eval", "specs", "--format", "jsonl", "--plugin", "stopping.py", "--jobs", jobs]


@posix
@pytest.mark.parametrize("jobs", ["1", "2"])
def test_ctrl_c_loses_nothing_and_leaves_no_process(run: Run, tmp_path: Path, jobs: str) -> None:
    with half_batch(tmp_path, *gate_command(jobs), "--out", "all.jsonl") as child:
        os.killpg(child.pid, signal.SIGINT)  # as a terminal does
        _, said = child.communicate()
    assert b"Traceback" not in said
    assert child.returncode == 130
    assert b"run the same command again to continue" in said
    assert spec_names() == ["specs", "stopping.py"]
    known = len(cache_entries(tmp_path))
    resumed = run(*gate_command("1"))
    assert f"{known} of them unchanged, from the cache" in resumed.err
    assert len(resumed.out.splitlines()) == 41


@posix
@pytest.mark.parametrize("jobs", ["1", "2"])
@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP"])
@pytest.mark.usefixtures("run")
def test_other_signals_end_a_batch_like_ctrl_c(tmp_path: Path, jobs: str, name: str) -> None:
    with half_batch(tmp_path, *gate_command(jobs), "--out", "all.jsonl") as child:
        for _ in range(2):  # as `timeout` does
            child.send_signal(getattr(signal, name))
        _, said = child.communicate()
    assert child.returncode == 128 + getattr(signal, name)
    assert b"run the same command again to continue" in said
    assert b"Traceback" not in said
    assert spec_names() == ["specs", "stopping.py"]


@posix
@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP"])
@pytest.mark.usefixtures("run")
def test_a_second_signal_may_come_while_the_process_ends(tmp_path: Path, name: str) -> None:
    number = getattr(signal, name)
    again = f"import atexit, os; atexit.register(lambda: os.kill(os.getpid(), {int(number)}))"
    with half_batch(tmp_path, *gate_command("1"), "--out", "all", before=again) as child:
        child.send_signal(number)
        child.communicate()
    assert child.returncode == 128 + number


@posix
@pytest.mark.usefixtures("run")
def test_workers_end_with_a_batch_that_is_killed(tmp_path: Path) -> None:
    with half_batch(tmp_path, *gate_command("2"), "--out", "all") as child:
        child.kill()
        child.wait()


# Signals reach a pipe once they are handled; a reader is waited for as long as it takes.
TOLD = """\
import os
from parcost_apps.cli import interrupts, streams
streams._PATIENCE_SECONDS = {patience}
record = interrupts.Interrupts._record
def record_and_tell(caller, *signal):
    try:
        record(caller, *signal)
    finally:
        os.write({pipe}, b"!")
interrupts.Interrupts._record = record_and_tell
"""


@contextmanager
def in_a_line(patience: float) -> Iterator[tuple[Any, Any, Callable[[], None]]]:
    """Start a batch that waits in its first line for a reader; also give how to interrupt it."""
    import fcntl
    import termios

    files(many_specs(30))
    inwards, outwards = os.pipe()
    handled, pipe = os.pipe()
    if hasattr(fcntl, "F_SETPIPE_SZ"):  # less than a line
        fcntl.fcntl(outwards, fcntl.F_SETPIPE_SZ, 4096)
    child = process(
        "eval",
        "specs",
        "--format",
        "jsonl",
        before=TOLD.format(patience=patience, pipe=pipe),
        stdout=outwards,
        pass_fds=(pipe,),
        start_new_session=True,
    )
    os.close(outwards)
    os.close(pipe)

    def full() -> bool:
        assert child.poll() is None
        held = fcntl.ioctl(inwards, termios.FIONREAD, b"\0" * 4)
        return int.from_bytes(held, sys.byteorder) >= 4096

    def interrupt() -> None:
        child.send_signal(signal.SIGINT)
        assert os.read(handled, 1) == b"!"

    with os.fdopen(inwards, "rb") as reader, ExitStack() as stack:
        stack.callback(os.close, handled)
        stack.callback(end, child)
        wait_for(full)
        yield child, reader, interrupt
        child.communicate()


@posix
@pytest.mark.usefixtures("run")
def test_ctrl_c_does_not_cut_a_line_in_two() -> None:
    with in_a_line(patience=3600.0) as (child, reader, interrupt):
        interrupt()
        interrupt()
        written = reader.read()
    assert child.returncode == 130
    assert written.endswith(b"}\n")
    assert [json.loads(line)["path"] for line in written.splitlines()] == ["specs/s000.par"]


@posix
@pytest.mark.usefixtures("run")
def test_ctrl_c_does_not_wait_for_a_reader_who_reads_no_more() -> None:
    with in_a_line(patience=0.1) as (child, _, interrupt):
        interrupt()
        child.wait()
    assert child.returncode == 130
