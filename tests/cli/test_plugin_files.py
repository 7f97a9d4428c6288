"""Plugins that nobody has installed: ``--plugin FILE``."""

from __future__ import annotations

import csv
import io
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import parcost
from parcost.plugins.discovery import load
from parcost.plugins.selection import PluginSelection
from parcost_apps.batch.fingerprints import Environment
from parcost_apps.cli import main

pytestmark = pytest.mark.slow

SPEC = """\
use catalog.devices.h100_sxm
use catalog.fabrics.hgx_h100
use catalog.models.llama3_8b
use catalog.precisions.bf16
cluster  { devices = 16 }
layout   { tp = 2, zero = 1, sequence_parallel = on }
training { sequence = 8192, global_batch = 32 sequences, recompute = full }
"""
LOADER = '''\
"""What waiting for data costs."""

from __future__ import annotations

from parcost import SECONDS, Formula, Once, Real, Study, block, hookimpl, quantity
from parcost_plugins.vocabulary.layout import Layout


@block("loader", label="none")
class Loader:
    """The input pipeline of the job."""

    stall: Real = quantity(SECONDS, default=3.0, doc="waited for data before every step")


@hookimpl
def blocks() -> list[type]:
    return [Loader]


@hookimpl
def terms(study: Study) -> list[Once]:
    stall = study[Loader].stall * 8.0 / study[Layout].tp
    formula = Formula(text="stall", inputs={"stall": (stall, "s")}, source="our profiles, 2024")
    return [Once(name="data_stall", seconds=stall, when="end", formula=formula)]
'''

Run = Callable[..., Any]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run a command beside `specs/a.par`, `specs/b.par` and `loader.py`."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "caches"))
    monkeypatch.delenv("PARCOST_NO_CACHE", raising=False)
    Path("specs").mkdir()
    Path("specs/a.par").write_text(SPEC, encoding="utf-8")
    Path("specs/b.par").write_text(SPEC + "loader { stall = 5 s }\n", encoding="utf-8")
    Path("loader.py").write_text(LOADER, encoding="utf-8")

    def do(*arguments: str) -> Any:
        code = main(list(arguments))
        out, err = capsys.readouterr()
        assert "Traceback" not in out + err
        return SimpleNamespace(code=code, out=out, err=err)

    return do


def steps(done: Any) -> dict[str, float]:
    """Return the step time of each study of a CSV."""
    rows = csv.DictReader(io.StringIO(done.out))
    return {row["name"]: float(row["step_time_seconds"]) for row in rows}


def step(run: Run, *arguments: str) -> float:
    (seconds,) = steps(run("eval", *arguments, "--format", "csv")).values()
    return seconds


def test_its_terms_are_in_the_step(run: Run) -> None:
    bare = step(run, "specs/a.par")
    assert step(run, "specs/a.par", "--plugin", "loader.py") == pytest.approx(
        bare + 12.0, rel=1e-12
    )
    report = run("eval", "specs/a.par", "--plugin", "loader.py")
    assert "with: loader.py" in report.out
    (entry,) = json.loads(
        run("eval", "specs/a.par", "--plugin", "loader.py", "--format", "json").out
    )["reports"]
    assert entry["with"] == ["loader.py"]
    assert (
        "of loader.py" in run("explain", "specs/a.par", "data_stall", "--plugin", "loader.py").out
    )
    assert "loader" in run("plugins", "--plugin", "loader.py").out


def test_its_blocks_are_words_of_the_language(run: Run) -> None:
    assert run("check", "specs/b.par").code == 2
    assert run("check", "specs/b.par", "--plugin", "loader.py").code == 0


def test_a_folder_is_a_package_with_files_of_its_own(run: Run) -> None:
    package = Path("data-loader")
    package.mkdir()
    (package / "__init__.py").write_text(
        "from .costs import blocks, terms\n__all__ = ['blocks', 'terms']\n", encoding="utf-8"
    )
    (package / "costs.py").write_text(LOADER, encoding="utf-8")
    bare = step(run, "specs/a.par")
    assert step(run, "specs/a.par", "--plugin", "data-loader") == pytest.approx(bare + 12.0)
    (package / "costs.py").write_text(LOADER.replace("3.0", "4.0"), encoding="utf-8")
    assert step(run, "specs/a.par", "--plugin", "data-loader") == pytest.approx(bare + 16.0)


def test_an_edit_is_seen_though_size_and_time_of_the_file_are_the_same(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    package = Path("loading")
    package.mkdir()
    (package / "__init__.py").write_text("from .costs import blocks, terms\n", encoding="utf-8")
    found = []
    for stall in ("3.0", "9.0"):
        for file in (Path("loader.py"), package / "costs.py"):
            file.write_text(LOADER.replace("3.0", stall), encoding="utf-8")
            os.utime(file, (1e9, 1e9))
        one, other = (step(run, "specs/a.par", "--plugin", p) for p in ("loader.py", "loading"))
        assert one == other
        found.append(one)
    assert found[1] == pytest.approx(found[0] + 24.0)
    assert not [*Path().rglob("*.pyc")]


def test_an_edit_behind_a_link_is_seen(run: Run) -> None:
    Path("loading").mkdir()
    Path("elsewhere").mkdir()
    Path("loading/__init__.py").write_text("from .inner.costs import *\n", encoding="utf-8")
    Path("loading/inner").symlink_to("../elsewhere", target_is_directory=True)
    Path("elsewhere/back").symlink_to("../loading", target_is_directory=True)
    found = []
    for stall in ("3.0", "9.0"):
        text = LOADER.replace("3.0", stall)
        Path("elsewhere/costs.py").write_text(text, encoding="utf-8")
        found.append(steps(run("eval", "specs", "--plugin", "loading", "--format", "csv"))["a"])
    assert found[1] == pytest.approx(found[0] + 24.0)


@pytest.mark.usefixtures("run")
def test_plugins_of_one_name_do_not_mix() -> None:
    for folder, stall in (("one", 1.0), ("two", 2.0)):
        package = Path(folder, "lazy")
        package.mkdir(parents=True)
        hook = "def terms(study):\n    from .costs import terms\n    return terms(study)\n"
        text = f"from parcost import hookimpl\nfrom .costs import blocks\n@hookimpl\n{hook}"
        (package / "__init__.py").write_text(text, encoding="utf-8")
        costs = LOADER.replace("3.0", f"{stall}")
        (package / "costs.py").write_text(costs, encoding="utf-8")
    session, other = (parcost.Session(load(files=[f"{folder}/lazy"])) for folder in ("one", "two"))
    (one,), (two,) = (s.load("specs/a.par") for s in (session, other))
    times = [scenario.evaluate().result.outcome for scenario in (two, one)]
    assert times[0] is not None
    assert times[1] is not None
    assert times[0].step_seconds == pytest.approx(times[1].step_seconds + 4.0)


def test_any_folder_has_a_name_and_what_is_no_plain_file_is_left_out(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = Path("my.data-loader")
    package.mkdir()
    (package / "__init__.py").write_text(LOADER, encoding="utf-8")
    (package / "link.py").symlink_to("nowhere")
    (package / ".#lock.py").symlink_to("nobody@nowhere")
    assert "my_data_loader" in run("plugins", "--plugin", str(package)).out
    assert run("eval", "specs", "--plugin", str(package)).code == 0
    monkeypatch.chdir(package)
    assert "my_data_loader" in run("plugins", "--plugin", ".").out


@pytest.mark.parametrize("jobs", [(), ("--jobs", "2")])
def test_a_changed_text_invalidates_the_answer_of_a_batch(run: Run, jobs: tuple[str, ...]) -> None:
    arguments = ("eval", "specs", "--plugin", "loader.py", "--format", "csv", *jobs)
    first = steps(run(*arguments))
    assert first["b"] == pytest.approx(first["a"] + 8.0)
    again = run(*arguments)
    assert "2 of them unchanged" in again.err
    assert steps(again) == first
    Path("loader.py").write_text(LOADER.replace("3.0", "1.0"), encoding="utf-8")
    other = run(*arguments)
    assert "unchanged" not in other.err
    assert steps(other)["a"] == pytest.approx(first["a"] - 8.0)
    assert steps(other)["b"] == first["b"]


def test_a_file_is_part_of_the_environment(tmp_path: Path) -> None:
    file = tmp_path / "loader.py"
    file.write_text(LOADER, encoding="utf-8")
    with_it = Environment(PluginSelection(files=[str(file)])).digest
    assert with_it != Environment().digest
    assert with_it == Environment(PluginSelection(files=[str(file)])).digest
    file.write_text(LOADER + "\n", encoding="utf-8")
    assert with_it != Environment(PluginSelection(files=[str(file)])).digest


def test_its_terms_take_part_in_a_search(run: Run) -> None:
    search = ("search", "specs/a.par", "--axes", "tp,pp", "--format", "json")
    bare = json.loads(run(*search).out)
    done = json.loads(run(*search, "--plugin", "loader.py", "--without", "analysis.advice").out)
    best = done["best"][0]
    tp = best["values"]["layout.tp"]
    assert tp > bare["best"][0]["values"]["layout.tp"]
    other = next(other for other in done["best"] if other["values"]["layout.tp"] != tp)
    more = 24.0 / other["values"]["layout.tp"] - 24.0 / tp
    assert other["differs_by_seconds"]["data_stall"] == pytest.approx(more)
    command = "parcost eval specs/a.par --without analysis.advice --plugin loader.py"
    assert best["command"].startswith(command)
    _, *arguments = best["command"].split()
    assert step(run, *arguments[1:]) == best["step_seconds"]


@pytest.mark.parametrize(
    "files, said",
    [
        (["missing.py"], "the path does not exist"),
        (["specs/a.par"], "that is neither"),
        (["specs"], "that is neither"),
        (["calculators.py"], "there is already a plugin called `calculators`: installed"),
        (
            ["loader.py", "specs/loader.py"],
            "there is already a plugin called `loader`: in `loader.py`",
        ),
    ],
)
def test_an_invalid_plugin_file_is_a_usage_error(run: Run, files: list[str], said: str) -> None:
    Path("calculators.py").write_text(LOADER, encoding="utf-8")
    Path("specs/loader.py").write_text(LOADER, encoding="utf-8")
    flags = [word for file in files for word in ("--plugin", file)]
    for command in ("eval", "search", "check"):
        done = run(command, "specs/a.par", *flags)
        assert (done.code, done.out) == (2, "")
        assert said in done.err


def test_it_may_stand_in_for_one_that_is_installed(run: Run) -> None:
    Path("optimizer.py").write_text(LOADER, encoding="utf-8")
    left_out = ("--without", "optimizer", "--plugin", "optimizer.py")
    done = run("eval", "specs/a.par", "--full", *left_out)
    assert "with: optimizer.py; without: optimizer" in done.out
    assert "data_stall" in done.out


@pytest.mark.parametrize(
    "text, said",
    [
        ("import nonsense_\n", "cannot be imported: ModuleNotFoundError"),
        ("", "it has no hook: mark functions with `@hookimpl`"),
        ("def terms(:\n", "cannot be imported: SyntaxError"),
        ("raise SystemExit(7)\n", "cannot be imported: SystemExit"),
        (
            LOADER.replace("study[Loader].stall *", "1 / 0 *"),
            "ZeroDivisionError: division by zero (loader.py:",
        ),
    ],
)
def test_a_failing_plugin_file_is_reported_and_stops_no_other(
    run: Run, text: str, said: str
) -> None:
    Path("loader.py").write_text(text, encoding="utf-8")
    done = run("eval", "specs/a.par", "--plugin", "loader.py", "--format", "csv")
    assert done.code == 3
    assert said in done.err
    assert steps(done)["a"] > 0.0


LEAVING = """\
from parcost import Schedule, hookimpl
class Exit(Schedule):
    name = "leaving"
    def order(self, stages, micro_batches, chunks):
        raise SystemExit(0)
@hookimpl
def schedules():
    return [Exit()]
"""


@pytest.mark.parametrize("jobs", [(), ("--jobs", "2")])
def test_a_schedule_that_ends_the_program_ends_one_spec(run: Run, jobs: tuple[str, ...]) -> None:
    Path("leaving.py").write_text(LEAVING, encoding="utf-8")
    Path("specs/b.par").write_text(
        SPEC.replace("tp = 2", "tp = 1, pp = 2") + "schedule { kind = leaving }\n", encoding="utf-8"
    )
    Path("specs/c.par").write_text(SPEC, encoding="utf-8")
    done = run("eval", "specs", "--plugin", "leaving.py", "--format", "csv", *jobs)
    assert done.code == 3
    rows = csv.DictReader(io.StringIO(done.out))
    found = {row["path"]: row["step_time_seconds"] for row in rows}
    assert list(found) == ["specs/a.par", "specs/b.par", "specs/c.par"]
    assert found["specs/a.par"] == found["specs/c.par"] != ""
    assert "schedule `leaving` at p = 2" in done.err
    assert "SystemExit" in done.err


RAISING = """\
from parcost import hookimpl
from parcost_plugins.vocabulary.layout import Layout
class OwnError(BaseException):
    def __str__(self):
        raise OwnError
@hookimpl
def terms(study):
    if study[Layout].zero == 3:
        {raising}
"""
ENDING = {
    "import asyncio; raise asyncio.CancelledError": "raised CancelledError (raising.py:9)",
    "raise GeneratorExit('end')": "raised GeneratorExit: end (raising.py:9)",
    "raise OwnError": "raised OwnError (raising.py:9)",
}


@pytest.mark.parametrize("jobs", [(), ("--jobs", "2")])
@pytest.mark.parametrize("raising", ENDING)
def test_whatever_a_plugin_raises_ends_no_batch(
    run: Run, raising: str, jobs: tuple[str, ...]
) -> None:
    Path("raising.py").write_text(RAISING.format(raising=raising), encoding="utf-8")
    Path("specs/b.par").write_text(SPEC.replace("zero = 1", "zero = 3"), encoding="utf-8")
    Path("specs/c.par").write_text(SPEC, encoding="utf-8")
    done = run("eval", "specs", "--plugin", "raising.py", "--format", "csv", *jobs)
    assert (done.code, list(steps(done))) == (3, ["a", "b", "c"])
    said = f"plugin `raising` of raising.py failed in `terms`: {ENDING[raising]}"
    assert said in done.err
    search = ("search", "specs/a.par", "--over", "zero=1,3", "--axes", "zero")
    done = run(*search, "--plugin", "raising.py")
    assert done.code == 3
    assert said in done.err


@pytest.mark.parametrize("raising", ENDING)
def test_whatever_importing_a_plugin_raises_ends_no_batch(run: Run, raising: str) -> None:
    text = "from parcost import hookimpl\nclass OwnError(BaseException): pass\n"
    Path("raising.py").write_text(f"{text}{raising}\n", encoding="utf-8")
    done = run("eval", "specs/a.par", "--plugin", "raising.py", "--format", "csv")
    assert (done.code, list(steps(done))) == (3, ["a"])
    assert "plugin `raising` of raising.py" in done.err
    assert "cannot be imported: " in done.err


@pytest.mark.parametrize("command", ["eval", "search"])
def test_an_interrupt_ends_a_run_wherever_it_comes(run: Run, command: str) -> None:
    text = RAISING.format(raising="pass") + "    raise KeyboardInterrupt\n"
    Path("raising.py").write_text(text, encoding="utf-8")
    done = run(command, "specs/a.par", "--plugin", "raising.py")
    assert (done.code, done.out) == (130, "")


DYING = """\
import os, signal
from parcost import hookimpl
@hookimpl
def terms():
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_workers_that_keep_dying_are_no_defect_of_ours(run: Run) -> None:
    Path("dying.py").write_text(DYING, encoding="utf-8")
    for i in range(3):
        Path(f"specs/{i}.par").write_text(SPEC, encoding="utf-8")
    done = run("eval", "specs", "--jobs", "2", "--plugin", "dying.py")
    assert done.code == 3
    assert "BrokenProcessPool" in done.err
    assert "internal error" not in done.err


def test_a_search_that_cannot_go_on_says_where_a_plugin_failed(run: Run) -> None:
    text = "from parcost import Goal, Limit, hookimpl\n\n\ndef holds(seconds, bytes_):\n"
    text += "    return seconds / 0\n\n\n@hookimpl\ndef search_goals(study):\n"
    text += "    return [Goal(limits=[Limit(name='x', says='fast', holds=holds)])]\n"
    Path("wish.py").write_text(text, encoding="utf-8")
    done = run("search", "specs/a.par", "--over", "tp=1,2", "--plugin", "wish.py")
    assert (done.code, done.out) == (3, "")
    said = "the limit `fast` raised ZeroDivisionError: float division by zero (wish.py:5)"
    assert f"plugin `wish` of wish.py failed in `search_goals`: {said}" in done.err


THREADED = """\
import sys, threading
from parcost import hookimpl
def fails():
    raise RuntimeError("no\\nway")
@hookimpl
def terms():
    for target in (sys.exit, fails):
        thread = threading.Thread(target=target)
        thread.start()
        thread.join()
"""


@pytest.mark.usefixtures("run")
@pytest.mark.parametrize("jobs", [(), ("--jobs", "2")])
def test_a_failing_thread_of_a_plugin_is_one_line(jobs: tuple[str, ...]) -> None:
    Path("threaded.py").write_text(THREADED, encoding="utf-8")
    Path("specs/b.par").write_text(SPEC, encoding="utf-8")
    command = [sys.executable, "-c", "from parcost_apps.cli import main; raise SystemExit(main())"]
    command += ["eval", "specs", "--plugin", "threaded.py", *jobs]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0
    said = "warning: a thread raised RuntimeError: no way (threaded.py:4)"
    assert set(done.stderr.splitlines()) == {said, "2 without errors"}


LINES = """\
from parcost import hookimpl
from parcost_formats.reports.jsonl import JsonLines


class Lines(JsonLines):
    name = "lines"


@hookimpl
def exporters() -> list[Lines]:
    return [Lines()]
"""


def test_shards_of_its_format_are_joined(run: Run) -> None:
    Path("lines.py").write_text(LINES, encoding="utf-8")
    flags = ("--plugin", "lines.py", "--plugin", "loader.py")
    for i in (1, 2):
        shard = ("--shard", f"{i}/2", "--out", f"{i}.lines")
        assert run("eval", "specs", "--format", "lines", *flags, *shard).code == 0
    assert run("eval", "specs", "--format", "lines", *flags, "--out", "whole").code == 0
    assert run("merge", "2.lines", "1.lines").code == 2
    merged = run("merge", "2.lines", "1.lines", *flags, "--out", "merged")
    assert (merged.code, merged.out) == (0, "")
    assert Path("merged").read_text() == Path("whole").read_text()


def test_its_suffix_may_be_in_capitals(run: Run) -> None:
    Path("LOADER.PY").write_text(LOADER, encoding="utf-8")
    bare = step(run, "specs/a.par")
    assert step(run, "specs/a.par", "--plugin", "LOADER.PY") == pytest.approx(bare + 12.0)


FAILING = """\
from parcost import hookimpl

print("at import")


@hookimpl
def {hook}():
    print("in the hook")
    raise ValueError("no way")
"""
REQUIRING = 'requires plugin "data-loader" ">= 1.2"\n' + SPEC


@pytest.mark.parametrize("file", ["data_loader.py", "parcost-data-loader.py"])
def test_a_file_meets_what_a_spec_requires(run: Run, file: str) -> None:
    """A file is called like its distribution, and an entry point without `parcost-`."""
    Path("specs/a.par").write_text(REQUIRING, encoding="utf-8")
    Path(file).write_text(LOADER, encoding="utf-8")
    done = run("check", "specs/a.par", "--plugin", file)
    assert done.code == 2
    assert ">= 1.2, and no version is installed" in done.out
    Path(file).write_text(f"{LOADER}\n__version__ = '1.3'\n", encoding="utf-8")
    assert run("check", "specs/a.par", "--plugin", file).code == 0
    assert run("check", "specs/a.par", "--plugin", "loader.py").code == 2


COMMANDS = {
    "eval": ("specs/a.par",),
    "check": ("specs/a.par",),
    "show": ("specs/a.par",),
    "show ": ("specs/a.par", "--stages"),
    "explain": ("specs/a.par", "step_time"),
    "figures": ("specs/a.par", "mfu"),
    "timeline": ("specs/a.par",),
    "search": ("specs/a.par", "--over", "tp=2", "--axes", "tp"),
    "plugins": (),
    "catalog": ("h100_sxm",),
}


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("hook", ["blocks", "checks", "termz"])
def test_every_command_ends_with_3_where_a_plugin_failed(run: Run, command: str, hook: str) -> None:
    Path("failing.py").write_text(FAILING.format(hook=hook), encoding="utf-8")
    arguments = (command.strip(), *COMMANDS[command])
    usual = run(*arguments)
    assert usual.code == 0
    done = run(*arguments, "--plugin", "failing.py")
    asked = hook != "checks" or command not in ("show", "plugins", "catalog")
    assert done.code == (3 if asked else 0)
    named = "plugin `failing` of failing.py failed in"
    assert (named in done.err + (done.out if command == "check" else "")) == asked
    assert "at import" in done.err
    assert done.err.count(named) <= 2
    assert "at import" not in done.out
    assert "in the hook" not in done.out


PRINTING = """\
import os, subprocess, sys
from parcost import hookimpl

real = sys.stdout
print("one")


@hookimpl
def terms():
    print("two")
    real.write("three\\n")
    sys.__stdout__.write("four\\n")
    os.write(1, b"five\\n")
    subprocess.run([sys.executable, "-c", "print('six')"], check=True)
    return []
"""


@pytest.mark.slow
@pytest.mark.usefixtures("run")
@pytest.mark.parametrize("jobs", [(), ("--jobs", "2")])
def test_output_of_a_plugin_is_not_mixed_with_results(jobs: tuple[str, ...]) -> None:
    Path("printing.py").write_text(PRINTING, encoding="utf-8")
    Path("specs/b.par").write_text(SPEC, encoding="utf-8")
    command = [sys.executable, "-c", "from parcost_apps.cli import main; raise SystemExit(main())"]
    command += ["eval", "specs", "--format", "jsonl", "--plugin", "printing.py", *jobs]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0
    assert [json.loads(line)["name"] for line in done.stdout.splitlines()] == ["a", "b"]
    # Processes may write at the same time, in one line.
    assert all(word in done.stderr for word in ("one", "two", "three", "four", "five", "six"))


CLOSING = """import sys
from parcost import hookimpl


@hookimpl
def terms():
    sys.stdout.close()
    sys.stderr.close()
    raise ValueError("after closing")
"""


@pytest.mark.slow
@pytest.mark.usefixtures("run")
def test_a_plugin_that_closes_the_streams_loses_no_result() -> None:
    Path("closing.py").write_text(CLOSING, encoding="utf-8")
    command = [sys.executable, "-c", "from parcost_apps.cli import main; raise SystemExit(main())"]
    command += ["eval", "specs/a.par", "--format", "jsonl", "--plugin", "closing.py"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 3
    assert [json.loads(line)["name"] for line in done.stdout.splitlines()] == ["a"]
    assert "plugin `closing` of closing.py failed in `terms`" in done.stderr
