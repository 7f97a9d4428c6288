"""Plugins that fail, internal errors, signals and closed pipes."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from parcost import Exporter, Study, hookimpl
from parcost_apps.cli import main
from parcost_plugins.vocabulary import ScheduleChoice

from .command_specs import GOOD, SWEPT, Run

pytestmark = pytest.mark.slow


def fake_plugin(monkeypatch: pytest.MonkeyPatch, **hooks: Any) -> None:
    from parcost.plugins import discovery

    load = discovery.load
    module = SimpleNamespace(**{name: hookimpl(function) for name, function in hooks.items()})
    monkeypatch.setattr(discovery, "load", lambda **given: load(("mine", module), **given))


def test_long_work_shows_progress_to_a_person_whose_results_go_elsewhere(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from parcost_apps.cli import messages

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    now = iter([0.0, 1.0, 3.0, 4.0])
    monkeypatch.setattr(messages, "monotonic", lambda: next(now))
    for stdout, said in ((io.StringIO(), "\rb\x1b[K\r\x1b[K"), (Terminal(), "")):
        stderr = Terminal()
        monkeypatch.setattr(sys, "stdout", stdout)
        monkeypatch.setattr(sys, "stderr", stderr)
        progress = messages.Progress()
        progress.show("a")
        progress.show("b")
        progress.clear()
        assert stderr.getvalue() == said


def test_a_plugin_that_fails_is_named_and_the_report_says_that_it_is_incomplete(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def terms() -> None:
        raise RuntimeError("out of coffee")

    fake_plugin(monkeypatch, terms=terms)
    done = run("eval", "a.par", "b.par", a=GOOD, b=GOOD)
    assert done.code == 3
    said = "plugin `mine` failed in `terms`: raised RuntimeError: out of coffee"
    assert f"incomplete: {said}" in " ".join(done.out.split())
    assert done.err.count(f"error: {said}\n\n") == 1


def test_a_plugin_that_fails_late_counts_as_well(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def sections() -> None:
        raise RuntimeError("out of coffee")

    fake_plugin(monkeypatch, sections=sections)
    said = "plugin `mine` failed in `sections`: raised RuntimeError: out of coffee"
    table = run("eval", "a.par", a=GOOD)
    assert table.code == 3
    assert f"incomplete: {said}" in " ".join(table.out.split())
    assert table.err == f"error: {said}\n\n"
    data = run("eval", "a.par", "--format", "json")
    assert data.code == 3
    (result,) = json.loads(data.out)["reports"][0]["results"]
    assert not result["complete"]
    assert [fault["hook"] for fault in result["faults"]] == ["sections"]


def test_points_where_a_plugin_failed_say_so(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def terms(study: Study) -> list[object]:
        if study[ScheduleChoice].kind == "gpipe":
            raise RuntimeError("out of coffee")
        return []

    fake_plugin(monkeypatch, terms=terms)
    said = "incomplete: plugin `mine` failed in `terms`: raised RuntimeError: out of coffee"
    text = GOOD + "schedule { kind = [one_f_one_b, gpipe] }\noverlap { bucket = [25 MB, 50 MB] }\n"
    out = run("eval", "a.par", "--format", "csv", a=text).out
    rows = list(csv.DictReader(io.StringIO(out)))
    found = [(row["schedule.kind"], row["feasible"], row["reason"]) for row in rows]
    assert found == 2 * [("one_f_one_b", "yes", "")] + 2 * [("gpipe", "yes", said)]
    (report,) = json.loads(run("eval", "a.par", "--format", "json").out)["reports"]
    assert [point["reason"] for point in report["points"]] == [row["reason"] for row in rows]


def test_a_format_that_fails_is_named(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def write(*_: object) -> Any:
        yield "some"
        raise RuntimeError("out of paper")

    class Poem(Exporter):
        name, reads = "poem", "full"

        def write(self, *_: object) -> Any:
            yield from write()

    fake_plugin(monkeypatch, exporters=lambda: [Poem()])
    done = run("eval", "a.par", "--format", "poem", a=GOOD)
    assert (done.code, done.out) == (3, "some")
    assert done.err == "error: plugin `mine` failed to write `poem`: RuntimeError: out of paper\n"


def test_an_internal_error_is_one_line_and_loses_no_other_report(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    from parcost.engine.scenario import Scenario

    evaluate = Scenario.evaluate

    def fail(scenario: Scenario, *progress: Any) -> Any:
        if scenario.path == "a.par":
            raise ZeroDivisionError("by nothing")
        return evaluate(scenario, *progress)

    monkeypatch.setattr(Scenario, "evaluate", fail)
    done = run("eval", "a.par", "b.par", a=GOOD, b=GOOD)
    assert done.code == 3
    assert "internal error: ZeroDivisionError: by nothing" in done.err
    assert re.search(r"^  b +[\d.]+ m?s ", done.out, re.MULTILINE)


def test_debugging_prints_the_traceback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from parcost.engine.scenario import Scenario

    monkeypatch.chdir(tmp_path)

    def fail(*_: Any) -> Any:
        raise ZeroDivisionError("by nothing")

    monkeypatch.setattr(Scenario, "evaluate", fail)
    Path("a.par").write_text(GOOD, encoding="utf-8")
    monkeypatch.setenv("PARCOST_DEBUG", "1")
    assert main(["eval", "a.par"]) == 3
    assert "Traceback" in capsys.readouterr().err


def test_an_interrupt_exits_with_130(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    from parcost.engine.scenario import Scenario

    def interrupt(*_: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(Scenario, "evaluate", interrupt)
    done = run("eval", "a.par", a=GOOD)
    assert (done.code, done.err.strip()) == (130, "interrupted")


def process(*arguments: str, **options: Any) -> subprocess.Popen[bytes]:
    code = "import sys; from parcost_apps.cli import main; sys.exit(main())"
    return subprocess.Popen(
        [sys.executable, "-c", code, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        **options,
    )


@pytest.mark.parametrize("arguments", [["eval", "a.par", "--format", "json"], ["--help"]])
def test_a_closed_pipe_ends_quietly(tmp_path: Path, arguments: list[str]) -> None:
    (tmp_path / "a.par").write_text(GOOD, encoding="utf-8")
    with process(*arguments, cwd=tmp_path) as child:
        assert child.stdout is not None
        assert child.stderr is not None
        child.stdout.close()
        said = child.stderr.read()
    assert (child.returncode, said) == (141, b"")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a device of Linux")
@pytest.mark.parametrize("arguments", [["eval", "a.par"], ["--help"]])
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_full_disk_is_an_error(tmp_path: Path, arguments: list[str], unbuffered: str) -> None:
    (tmp_path / "a.par").write_text(GOOD, encoding="utf-8")
    code = "import sys; from parcost_apps.cli import main; sys.exit(main())"
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-c", code, *arguments],
            env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
            stdout=full,
            stderr=subprocess.PIPE,
            cwd=tmp_path,
            check=False,
        )
    assert (done.returncode, done.stderr) == (
        2,
        b"error: stdout cannot be written: No space left on device\n",
    )


@pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")
def test_ctrl_c_at_any_time_leaves_no_traceback(tmp_path: Path) -> None:
    for name in "abcdefgh":
        (tmp_path / f"{name}.par").write_text(SWEPT, encoding="utf-8")
    with process("eval", ".", "--format", "jsonl", cwd=tmp_path) as child:
        assert child.stdout is not None
        child.stdout.read(1)  # it is at work: a table comes as a whole
        child.send_signal(signal.SIGINT)
        _, said = child.communicate()
    assert b"Traceback" not in said
    assert child.returncode in (0, 130)
    time.sleep(0)


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_a_stream_that_is_not_unicode_still_gets_everything(tmp_path: Path, encoding: str) -> None:
    (tmp_path / "größe.par").write_text(GOOD, encoding="utf-8")
    environment = {**os.environ, "PYTHONIOENCODING": encoding, "FORCE_COLOR": "1"}
    with process("eval", "größe.par", cwd=tmp_path, env=environment) as child:
        out, said = child.communicate()
    assert (child.returncode, said) == (0, b"")
    assert out.decode(encoding)
