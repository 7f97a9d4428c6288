"""Batches on the command line: what is remembered, spread, cut into shards, and written."""

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
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from errno import ENOSPC
from pathlib import Path
from threading import Event
from types import SimpleNamespace
from typing import Any

import pytest

from parcost_apps.cli import main

pytestmark = pytest.mark.slow

GOOD = """\
use catalog.devices.h100_sxm
use catalog.fabrics.hgx_h100
use catalog.models.llama3_8b
use catalog.precisions.bf16
cluster  { devices = 16 }
layout   { tp = 2, zero = 1, sequence_parallel = on }
training { sequence = 8192, global_batch = 32 sequences, recompute = full }
"""
BIGGER = GOOD.replace("32 sequences", "64 sequences")
DISAPPOINTED = GOOD + "expect { mfu >= 99 % }\n"
UNDIVIDED = GOOD.replace("tp = 2", "tp = 3")
MISTAKEN = GOOD.replace("tp = 2", "tpp = 2")
SWEPT = GOOD.replace("tp = 2", "tp = [1, 2, 3, 4]")
STUDIES = GOOD + "study narrow { layout { tp = 1 } }\nstudy wide { layout { tp = 4 } }\n"
DEFINITIONS = "use catalog.devices.h100_sxm\ndevice mine extends h100_sxm { memory = 96 GB }\n"
USING = GOOD.replace("use catalog.devices.h100_sxm", 'use "lib/site.par"').replace(
    "devices = 16", "devices = 16, device = mine"
)
ALL = {
    "a.par": GOOD,
    "b.par": MISTAKEN,
    "c.par": SWEPT,
    "d.par": DISAPPOINTED,
    "e.par": STUDIES,
    "f.par": UNDIVIDED,
    "g.par": USING,
    "lib/site.par": DEFINITIONS,
}
FORMATS = ["table", "md", "json", "jsonl", "csv"]

Run = Callable[..., Any]


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
def evaluated(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return a list to which the path of every evaluation in this process is added."""
    from parcost.engine.scenario import Scenario

    paths: list[str] = []
    real = Scenario.evaluate

    def spy(scenario: Scenario, *progress: Any) -> Any:
        paths.append(scenario.path)
        return real(scenario, *progress)

    monkeypatch.setattr(Scenario, "evaluate", spy)
    return paths


def files(texts: dict[str, str], folder: str = "specs") -> None:
    for name, text in texts.items():
        path = Path(folder, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def many_specs(count: int) -> dict[str, str]:
    return {f"s{i:03}.par": GOOD.replace("32 seq", f"{32 * (i + 1)} seq") for i in range(count)}


def spec_names() -> list[str]:
    return sorted(path.name for path in Path().iterdir())


def cached(tmp_path: Path) -> list[Path]:
    """Return the entries of the cache; a name with a dot in front is still being written."""
    return [p for p in (tmp_path / "caches").glob("parcost/??/[!.]*") if p.is_file()]


def process(*arguments: str, before: str = "", **options: Any) -> subprocess.Popen[bytes]:
    """Start the command in a process that runs the code *before* first."""
    code = f"""{before}
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background ignores it
if hasattr(signal, "SIGHUP"):
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
from parcost_apps.cli import main
sys.exit(main())"""
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
    return subprocess.Popen([sys.executable, "-c", code, *arguments], **streams)


def is_alive(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


# --- which files --------------------------------------------------------------------------


def test_a_pattern_stands_for_the_specs_that_match_it(run: Run) -> None:
    files({"a.par": GOOD, "deep/er/b.par": GOOD, "deep/er/notes.txt": "", "c.par": GOOD})
    done = run("eval", "specs/**/[ab].par", "--format", "jsonl")
    assert [json.loads(line)["path"] for line in done.out.splitlines()] == [
        "specs/a.par",
        "specs/deep/er/b.par",
    ]
    assert done.err == "2 without errors\n"
    missed = run("eval", "specs/*.spec")
    assert missed.code == 2
    assert "no `.par` file matches `specs/*.spec`" in missed.err


@pytest.mark.skipif(sys.platform == "win32", reason="links need rights")
def test_a_pattern_finds_a_file_once_however_links_lead_to_it(run: Run) -> None:
    def paths_of(*named: str) -> list[str]:
        lines = run("eval", *named, "--format", "jsonl").out.splitlines()
        return [json.loads(line)["path"] for line in lines]

    files({"x/s1.par": GOOD, "y/s2.par": BIGGER})
    for link, to in {"x/l1": ".", "x/l2": ".", "x/l3": "..", "a": "y", "c": "c"}.items():
        Path("specs", link).symlink_to(to)
    Path("specs/s3.par").symlink_to("x/s1.par")
    plain = ["specs/s3.par", "specs/x/s1.par", "specs/y/s2.par"]
    assert paths_of("specs") == plain
    for pattern in ("specs/**/s*.par", "specs/**", "**/**/s*.par", "./specs/*/**/../**/s*.par"):
        assert [os.path.normpath(path) for path in paths_of(pattern)] == plain, pattern
    assert paths_of("specs/*/s*.par") == plain[1:]
    assert paths_of("specs", "specs/**/s*.par") == plain
    Path("link").symlink_to("specs")
    assert paths_of("li*/**/s2.par") == ["link/y/s2.par"]
    assert paths_of("specs/a/**/*.par") == ["specs/a/s2.par"]
    assert paths_of("specs/**/l1/*.par") == ["specs/x/l1/s1.par"]


def test_a_file_whose_name_looks_like_a_pattern_is_that_file(run: Run) -> None:
    files({"a[1].par": GOOD})
    assert run("eval", "specs/a[1].par").code == 0


def test_what_is_set_for_studies_does_not_make_definitions_one(run: Run) -> None:
    files({"g.par": USING, "lib/site.par": DEFINITIONS})
    assert run("eval", "specs", "--set", "layout.zero=0").err == "1 without errors\n"


def test_a_file_that_is_named_twice_is_evaluated_once(run: Run) -> None:
    files({"a.par": GOOD, "b.par": GOOD})
    done = run("eval", "specs", "specs/a.par", "./specs/b.par", "--format", "jsonl")
    assert len(done.out.splitlines()) == 2


def test_an_error_of_a_file_with_several_studies_is_one_line(run: Run) -> None:
    files({"a.par": GOOD, "b.par": STUDIES.replace("zero = 1", "zreo = 1")})
    found = [one for one in run("eval", "specs").out.splitlines() if "zreo" in one]
    assert found == ["  specs/b.par: `layout` has no attribute `zreo` (2 studies)"]


# --- formats ------------------------------------------------------------------------------


def test_lines_of_json_say_what_the_document_says_but_for_advice(run: Run) -> None:
    files(ALL)
    document = json.loads(run("eval", "specs", "--format", "json").out)
    lines = [
        json.loads(line) for line in run("eval", "specs", "--format", "jsonl").out.splitlines()
    ]
    header = {name: document[name] for name in ("schema_version", "parcost_version")}
    for report in document["reports"]:
        for result in report["results"]:
            result.pop("sections", None)
    found = [*document["reports"], *document["rejected"]]
    assert sorted(lines, key=str) == sorted([{**header, **values} for values in found], key=str)
    assert [line["path"] for line in lines] == sorted(line["path"] for line in lines)


def test_each_line_is_written_as_soon_as_it_is_known(tmp_path: Path) -> None:
    files({"a.par": GOOD}, str(tmp_path))
    os.mkfifo(tmp_path / "b.par")
    files({"c.par": GOOD}, str(tmp_path))
    with process("eval", str(tmp_path), "--format", "jsonl", bufsize=0) as child:
        assert child.stdout is not None
        line = child.stdout.readline()
        child.communicate()
    assert json.loads(line)["name"] == "a"


def test_points_have_all_columns_however_many_there_are(run: Run) -> None:
    files({**many_specs(3), "z.par": SWEPT})
    rows = list(csv.DictReader(io.StringIO(run("eval", "specs", "--format", "csv").out)))
    assert rows[0]["layout.tp"] == ""
    assert [row["layout.tp"] for row in rows[3:]] == ["1.0", "2.0", "3.0", "4.0"]
    assert list(rows[0])[:2] == ["path", "name"]
    assert list(rows[0])[-2:] == ["feasible", "reason"]


def test_parquet_has_the_rows_of_the_table_with_their_types(run: Run) -> None:
    duckdb = pytest.importorskip("duckdb")
    files(ALL)
    done = run("eval", "specs", "--format", "parquet", "--out", "all.parquet")
    assert done.code == 2
    table = duckdb.sql("select * from 'all.parquet'")
    rows = [dict(zip(table.columns, row, strict=True)) for row in table.fetchall()]
    lines = list(csv.DictReader(io.StringIO(run("eval", "specs", "--format", "csv").out)))
    assert set(rows[0]) == set(lines[0])
    for row, line in zip(rows, lines, strict=True):
        assert row["path"] == line["path"]
        assert row["feasible"] is (line["feasible"] == "yes")
        seconds = line["step_time_seconds"]
        assert row["step_time_seconds"] == (float(seconds) if seconds else None)


@pytest.mark.skipif(sys.platform in ("win32", "darwin"), reason="names there are Unicode")
def test_parquet_spells_a_name_that_is_no_unicode_as_csv_does(run: Run) -> None:
    duckdb = pytest.importorskip("duckdb")
    files({"a.par": GOOD, "b.par": MISTAKEN})
    Path("specs/a.par").rename(os.fsdecode(b"specs/n\xe9.par"))
    table = run("eval", "specs", "--format", "csv", "--out", "r.csv")
    found = run("eval", "specs", "--format", "parquet", "--out", "r.parquet")
    assert (found.code, table.code) == (2, 2)
    names = duckdb.sql("SELECT path FROM 'r.parquet'").fetchall()
    rows = csv.DictReader(io.StringIO(Path("r.csv").read_text(encoding="utf-8")))
    assert [name for (name,) in names] == [row["path"] for row in rows]
    assert names == [("specs/b.par",), (r"specs/n\udce9.par",)]


def test_parquet_without_its_library_says_what_to_install(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    files({"a.par": GOOD})
    monkeypatch.setitem(sys.modules, "duckdb", None)
    done = run("eval", "specs", "--format", "parquet", "--out", "all.parquet")
    assert done.code == 2
    assert "pip install 'parcost[parquet]'" in done.err
    assert spec_names() == ["specs"]
    assert "add --out FILE" in run("eval", "specs", "--format", "parquet").err


# --- what is remembered -------------------------------------------------------------------


@pytest.mark.parametrize("format_", FORMATS)
def test_a_cached_answer_is_printed_in_the_same_bytes(
    run: Run, evaluated: list[str], format_: str
) -> None:
    files(ALL)
    fresh = run("eval", "specs", "--format", format_, "--no-cache")
    first = run("eval", "specs", "--format", format_)
    evaluated.clear()
    again = run("eval", "specs", "--format", format_)
    assert evaluated == []
    assert fresh.out == first.out == again.out
    assert fresh.code == first.code == again.code == 2
    assert fresh.err == first.err
    summary, _, note = again.err.rstrip("\n").rpartition("; ")
    assert summary + "\n" == fresh.err
    assert note == "8 of them unchanged, from the cache"


def test_nothing_is_imported_for_what_is_known(run: Run) -> None:
    files(many_specs(2))
    first = run("eval", "specs", "--format", "jsonl").out
    code = (
        "import sys; from parcost_apps.cli import main; main(sys.argv[1:]);"
        "print([m for m in sys.modules if m.startswith(('parcost_', 'numpy', 'lark',"
        "'parcost.binding', 'parcost.engine', 'parcost.search'))], file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, "eval", "specs", "--format", "jsonl"],
        capture_output=True,
        check=True,
        text=True,
    )
    assert done.stdout == first
    expected = {
        "parcost_apps": "batch cli eval options",
        "parcost_apps.batch": "cache files fingerprints formats run saved_entries worker",
        "parcost_apps.cli": "colors group interrupts messages output_files pages process streams "
        "threads",
        "parcost_apps.eval": "command",
        "parcost_apps.options": "jobs",
        "parcost_formats": "rendering reports",
        "parcost_formats.rendering": "json_header rejection view",
        "parcost_formats.reports": "jsonl",
    }
    modules = {f"{package}.{name}" for package, names in expected.items() for name in names.split()}
    assert set(eval(done.stderr.splitlines()[-1])) == modules | expected.keys()


def test_only_what_changed_is_evaluated_again(run: Run, evaluated: list[str]) -> None:
    files({"a.par": GOOD, "b.par": GOOD, "g.par": USING, "lib/site.par": DEFINITIONS})
    run("eval", "specs", "--format", "csv")

    def again(*options: str) -> list[str]:
        evaluated.clear()
        run("eval", "specs", "--format", "csv", *options)
        return [Path(path).name for path in evaluated]

    assert again() == []
    files({"b.par": BIGGER})
    assert again() == ["b.par"]
    files({"b.par": GOOD})
    assert again() == []  # known from before
    files({"lib/site.par": DEFINITIONS.replace("96 GB", "94 GB")})
    assert again() == ["g.par"]
    os.utime("specs/a.par", (1, 1))
    assert again() == []
    everything = ["a.par", "b.par", "g.par"]
    assert again("--set", "layout.zero=0") == everything
    assert again("--set", "layout.zero=0") == []
    assert again("--without", "analysis.advice") == everything
    assert again("--no-cache") == everything
    assert again("--cache", "elsewhere") == everything
    assert again("--cache", "elsewhere") == []


def test_a_copy_of_a_tree_knows_its_own_imports(
    run: Run, evaluated: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    files({"g.par": USING, "lib/site.par": DEFINITIONS}, "one/specs")
    files({"g.par": USING, "lib/site.par": DEFINITIONS}, "two/specs")
    files({"lib/site.par": DEFINITIONS.replace("96 GB", "94 GB")}, "three/specs")
    files({"g.par": USING}, "three/specs")
    for folder, known in (("one", False), ("two", True), ("three", False)):
        evaluated.clear()
        with monkeypatch.context() as patch:
            patch.chdir(folder)
            run("eval", "specs")
        assert (evaluated == []) is known, folder


def test_a_missing_import_is_looked_for_again(run: Run) -> None:
    files({"g.par": USING, "a.par": GOOD})
    assert run("eval", "specs").code == 2
    files({"lib/site.par": DEFINITIONS})
    assert run("eval", "specs").code == 0


def test_a_failed_plugin_is_called_again(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    from parcost import hookimpl
    from parcost.plugins import discovery

    def terms() -> Any:
        raise RuntimeError("out of coffee")

    files({"a.par": GOOD, "b.par": GOOD})
    load = discovery.load
    broken = SimpleNamespace(terms=hookimpl(terms))
    with monkeypatch.context() as patch:
        patch.setattr(discovery, "load", lambda **given: load(("mine", broken), **given))
        assert run("eval", "specs").code == 3
    assert run("eval", "specs").code == 0


def damage_cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:200])


def damage_flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-20] ^= 1
    path.write_bytes(data)


def damage_empty(path: Path) -> None:
    path.write_bytes(b"")


@pytest.mark.parametrize("damage", [damage_cut, damage_flip, damage_empty])
def test_a_damaged_answer_is_evaluated_again(
    run: Run, evaluated: list[str], tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    files(many_specs(3))
    first = run("eval", "specs", "--format", "jsonl")
    assert len(cached(tmp_path)) == 3
    for path in cached(tmp_path):
        damage(path)
    evaluated.clear()
    again = run("eval", "specs", "--format", "jsonl")
    assert (again.out, again.err, len(evaluated)) == (first.out, first.err, 3)
    evaluated.clear()
    run("eval", "specs", "--format", "jsonl")
    assert evaluated == []


def test_a_misplaced_answer_is_evaluated_again(
    run: Run, evaluated: list[str], tmp_path: Path
) -> None:
    files(many_specs(3))
    first = run("eval", "specs", "--format", "jsonl")
    kept = [*cached(tmp_path), *(tmp_path / "caches").glob("parcost/facts/*")]
    assert len(kept) > 3
    contents = [path.read_bytes() for path in kept]
    for path, content in zip(kept, contents[1:] + contents[:1], strict=True):
        path.write_bytes(content)
    evaluated.clear()
    again = run("eval", "specs", "--format", "jsonl")
    assert (again.code, again.out, again.err) == (0, first.out, first.err)
    assert len(evaluated) == 3


def test_an_unusable_cache_is_one_warning_and_ignored(run: Run, tmp_path: Path) -> None:
    files(many_specs(3))
    (tmp_path / "caches").write_text("in the way")
    done = run("eval", "specs", "--format", "jsonl")
    assert done.code == 0
    assert len(done.out.splitlines()) == 3
    assert done.err.count("note: the cache in") == 1
    assert "; results are not remembered" in done.err


def test_a_cache_on_a_full_disk_is_one_warning_and_ignored(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files(many_specs(3))
    replace = Path.replace

    def full(path: Path, target: Any) -> Path:
        if "caches" in path.parts:
            raise OSError(ENOSPC, os.strerror(ENOSPC))
        return replace(path, target)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", full)
        done = run("eval", "specs", "--format", "jsonl", "--out", "all.jsonl")
    assert done.code == 0
    assert done.err.count("cannot be written: No space left on device; results are") == 1
    assert len(Path("all.jsonl").read_text().splitlines()) == 3
    assert cached(tmp_path) == []


def test_unused_answers_are_removed_after_a_month(run: Run, tmp_path: Path) -> None:
    files(many_specs(3))
    run("eval", "specs")
    old = time.time() - 40 * 86400
    for path in [*cached(tmp_path), tmp_path / "caches" / "parcost" / "pruned"]:
        os.utime(path, (old, old))
    Path("specs/s002.par").unlink()
    run("eval", "specs")
    assert len(cached(tmp_path)) == 2


def test_one_spec_is_evaluated_and_not_remembered(run: Run, tmp_path: Path) -> None:
    files({"a.par": GOOD})
    run("eval", "specs/a.par")
    assert cached(tmp_path) == []
    run("eval", "specs/a.par", "--cache", "here")
    assert len(list(Path("here").glob("??/*"))) == 1


@pytest.mark.usefixtures("run")
def test_runs_at_the_same_time_share_a_cache() -> None:
    files(many_specs(6))
    runs = [process("eval", "specs", "--format", "jsonl", "--cache", "here") for _ in range(3)]
    outs = [one.communicate() for one in runs]
    assert [one.returncode for one in runs] == [0, 0, 0]
    assert len({out for out, _ in outs}) == 1
    assert len(outs[0][0].splitlines()) == 6
    left = [path.name for path in Path("here").rglob(".*")]
    assert left == []


@pytest.mark.parametrize("command", [("check",), ("eval", "--format", "jsonl", "--no-cache")])
def test_a_warning_of_several_files_is_printed_once(run: Run, command: tuple[str, ...]) -> None:
    line = "overlap { tensor = off, chunks = 4 }\n"
    files({path: text + line for path, text in many_specs(3).items()})
    done = run(*command, "specs")
    said = done.out if command == ("check",) else done.err
    assert said.count("has no effect") == (1 if command == ("check",) else 2)
    assert said.count("--> specs/") == 1
    assert "the same in 2 more files: specs/s001.par, specs/s002.par" in said


# --- interrupted ----------------------------------------------------------------------------


def test_an_interrupted_batch_goes_on_where_it_stopped(
    run: Run, evaluated: list[str], monkeypatch: pytest.MonkeyPatch
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
        "3 of 6 files were done; the same command goes on from there\n"
        "not done: specs/s003.par\n\ninterrupted\n"
    )
    assert Path("all.jsonl").read_text() == "of before"
    assert spec_names() == ["all.jsonl", "specs"]
    evaluated.clear()
    assert run(*arguments).code == 0
    assert [Path(path).name for path in evaluated] == ["s003.par", "s004.par", "s005.par"]
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
    slow_lines = [line for line in done.err.splitlines() if "no result" in line]
    expected = r"specs/s001\.par: no result after \d+ s; Ctrl-C ends the run"
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
def stopped(tmp_path: Path, *arguments: str, before: str = "") -> Iterator[subprocess.Popen[bytes]]:
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
        wait_for(lambda: cached(tmp_path))
        yield child
        wait_for(lambda: not is_alive(child.pid))


def end(child: subprocess.Popen[bytes]) -> None:
    """End what is left of a process and of its workers."""
    with suppress(ProcessLookupError):  # it has ended
        os.killpg(child.pid, signal.SIGKILL)
    with suppress(ValueError):  # it has been read to its end
        child.communicate()


def stopping(jobs: str) -> list[str]:
    return ["eval", "specs", "--format", "jsonl", "--plugin", "stopping.py", "--jobs", jobs]


@posix
@pytest.mark.parametrize("jobs", ["1", "2"])
def test_ctrl_c_loses_nothing_and_leaves_no_process(run: Run, tmp_path: Path, jobs: str) -> None:
    with stopped(tmp_path, *stopping(jobs), "--out", "all.jsonl") as child:
        os.killpg(child.pid, signal.SIGINT)  # as a terminal does
        _, said = child.communicate()
    assert b"Traceback" not in said
    assert child.returncode == 130
    assert b"the same command goes on from there" in said
    assert spec_names() == ["specs", "stopping.py"]
    known = len(cached(tmp_path))
    resumed = run(*stopping("1"))
    assert f"{known} of them unchanged, from the cache" in resumed.err
    assert len(resumed.out.splitlines()) == 41


@posix
@pytest.mark.parametrize("jobs", ["1", "2"])
@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP"])
@pytest.mark.usefixtures("run")
def test_other_signals_end_a_batch_like_ctrl_c(tmp_path: Path, jobs: str, name: str) -> None:
    with stopped(tmp_path, *stopping(jobs), "--out", "all.jsonl") as child:
        for _ in range(2):  # as `timeout` does
            child.send_signal(getattr(signal, name))
        _, said = child.communicate()
    assert child.returncode == 128 + getattr(signal, name)
    assert b"the same command goes on from there" in said
    assert b"Traceback" not in said
    assert spec_names() == ["specs", "stopping.py"]


@posix
@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP"])
@pytest.mark.usefixtures("run")
def test_a_second_signal_may_come_while_the_process_ends(tmp_path: Path, name: str) -> None:
    number = getattr(signal, name)
    again = f"import atexit, os; atexit.register(lambda: os.kill(os.getpid(), {int(number)}))"
    with stopped(tmp_path, *stopping("1"), "--out", "all", before=again) as child:
        child.send_signal(number)
        child.communicate()
    assert child.returncode == 128 + number


@posix
@pytest.mark.usefixtures("run")
def test_workers_end_with_a_batch_that_is_killed(tmp_path: Path) -> None:
    with stopped(tmp_path, *stopping("2"), "--out", "all") as child:
        child.kill()
        child.wait()


# Signals reach a pipe once they are handled; a reader is waited for as long as it takes.
TOLD = """\
import os
from parcost_apps.cli import interrupts, streams
streams._PATIENCE_SECONDS = {patience}
note = interrupts.Interrupts._note
def note_and_tell(caller, *signal):
    try:
        note(caller, *signal)
    finally:
        os.write({pipe}, b"!")
interrupts.Interrupts._note = note_and_tell
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
    )
    os.close(outwards)
    os.close(pipe)

    def full() -> bool:
        held = fcntl.ioctl(inwards, termios.FIONREAD, b"\0" * 4)
        return int.from_bytes(held, sys.byteorder) >= 4096

    def interrupt() -> None:
        child.send_signal(signal.SIGINT)
        assert os.read(handled, 1) == b"!"

    with os.fdopen(inwards, "rb") as reader:
        wait_for(full)
        yield child, reader, interrupt
        child.communicate()
    os.close(handled)


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


# --- processes and engines ------------------------------------------------------------------


@pytest.mark.parametrize("format_", ["json", "csv"])
def test_several_processes_give_the_same_to_the_bit(run: Run, format_: str) -> None:
    files({**ALL, **many_specs(20)})
    alone = run("eval", "specs", "--format", format_, "--no-cache")
    spread = run("eval", "specs", "--format", format_, "--no-cache", "--jobs", "2")
    assert (spread.code, spread.out, spread.err) == (alone.code, alone.out, alone.err)


def test_answers_of_processes_are_cached(run: Run, evaluated: list[str]) -> None:
    files({**ALL, **many_specs(20)})
    spread = run("eval", "specs", "--format", "jsonl", "--jobs", "2")
    again = run("eval", "specs", "--format", "jsonl")
    assert evaluated == []
    assert again.out == spread.out


@pytest.mark.parametrize(
    "arguments, said",
    [
        (["--executor", "dusk://host:1"], "did you mean `dask`?"),
        (["--executor", "dask"], "`dask` does not name an executor; write dask://HOST:PORT"),
        (["--executor", "dask://h:1", "--jobs", "2"], "exclude each other"),
        (["--jobs", "0"], "0 is not in the range x>=1"),
        (["--shard", "3/2"], "`3/2` is not a shard; write 1/8, 2/8, ... 8/8"),
        (["--shard", f"1/{'9' * 5000}"], "is not a shard; write 1/8, 2/8, ... 8/8"),
        (["--cache", "x", "--no-cache"], "contradict each other"),
    ],
)
def test_an_option_that_makes_no_sense_is_a_usage_error(
    run: Run, arguments: list[str], said: str
) -> None:
    files({"a.par": GOOD})
    done = run("eval", "specs", *arguments)
    assert (done.code, done.out) == (2, "")
    assert said in done.err


# --- where results go -----------------------------------------------------------------------


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a device of Linux")
@pytest.mark.parametrize("format_", ["jsonl", "csv", "table"])
def test_a_full_disk_is_an_error_and_loses_nothing(
    run: Run, evaluated: list[str], format_: str
) -> None:
    files(many_specs(3))
    done = run("eval", "specs", "--format", format_, "--out", "/dev/full")
    assert done.code == 2
    assert "`/dev/full` cannot be written: No space left on device" in done.err
    evaluated.clear()
    assert run("eval", "specs", "--format", format_).code == 0
    assert len(evaluated) <= 2


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a device of Linux")
@pytest.mark.parametrize("where", ["full", "pipe"])
@pytest.mark.parametrize("extra", [[], ["--jobs", "2"]])
def test_messages_that_cannot_be_written_cost_no_results(
    run: Run, where: str, extra: list[str]
) -> None:
    files({**ALL, **many_specs(20)})
    arguments = ["eval", "specs", "--format", "jsonl", "--no-cache"]
    expected = run(*arguments)
    if where == "full":
        stderr = os.open("/dev/full", os.O_WRONLY)
    else:
        inwards, stderr = os.pipe()
        os.close(inwards)
    child = process(*arguments, *extra, "--out", "all.jsonl", stderr=stderr)
    os.close(stderr)
    out, _ = child.communicate(timeout=120)
    assert (child.returncode, out) == (expected.code, b"")
    assert Path("all.jsonl").read_text(encoding="utf-8") == expected.out


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a device of Linux")
@pytest.mark.usefixtures("run")
def test_what_went_wrong_is_in_the_exit_code_where_stderr_is_full() -> None:
    for arguments, code in ((["eval", "nowhere.par"], 2), (["--oops"], 2), (["plugins"], 0)):
        with Path("/dev/full").open("w") as full:
            child = process(*arguments, stderr=full)
            child.communicate(timeout=60)
        assert child.returncode == code


def test_an_unwritable_file_is_an_error(run: Run) -> None:
    files({"a.par": GOOD})
    done = run("eval", "specs", "--out", "no/such/folder.txt")
    assert (done.code, done.out) == (2, "")
    assert "`no/such/folder.txt` cannot be written: there is no folder `no/such`" in done.err
    assert "`specs` cannot be written: Is a directory" in run("eval", "specs", "--out", "specs").err


def test_a_file_has_the_rights_of_any_other(run: Run) -> None:
    files({"a.par": GOOD})
    Path("other").touch()
    run("eval", "specs", "--out", "a.txt")
    assert Path("a.txt").stat().st_mode == Path("other").stat().st_mode


def test_a_summary_is_no_place_for_thousands_of_lines(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    from parcost_apps.batch import formats

    monkeypatch.setattr(formats, "_MOST_OF_A_GROUP", 2)
    files({f"{name}.par": MISTAKEN for name in "abcd"})
    summary = run("eval", "specs", "--format", "csv").err.splitlines()[-4:]
    assert summary[0].startswith("specs/a.par:6:")
    assert summary[1].startswith("specs/b.par:6:")
    assert summary[2:] == ["and 2 more errors in specs", "4 bad input"]


def test_a_summary_ends_in_what_is_gravest(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    from parcost.engine.scenario import Scenario

    real = Scenario.evaluate

    def evaluate(scenario: Scenario, *progress: Any) -> Any:
        if scenario.path == "specs/a.par":
            raise RuntimeError("out of coffee")
        return real(scenario, *progress)

    monkeypatch.setattr(Scenario, "evaluate", evaluate)
    files({"a.par": GOOD, "b.par": MISTAKEN})
    files({f"c{i:02}.par": DISAPPOINTED for i in range(23)})
    done = run("eval", "specs", "--format", "csv")
    assert done.code == 3
    *verdicts, more, mistaken, failed, counts = done.err.splitlines()[-24:]
    assert [line.partition(":")[0] for line in verdicts] == [
        f"specs/c{i:02}.par" for i in range(20)
    ]
    assert more == "and 3 more verdicts"
    assert mistaken.startswith("specs/b.par:6:")
    assert failed.startswith("specs/a.par: error[internal-error]: internal error: RuntimeError")
    assert counts.startswith("23 failed a rule or an expectation, or did not fit; 1 bad input; 1 f")


@pytest.mark.parametrize(
    ("other", "heads"),
    [("here/two.par", ["one", "two"]), ("here/deep/one.par", ["a/b/one", "here/deep/one"])],
)
def test_a_column_of_a_comparison_has_no_folder(run: Run, other: str, heads: list[str]) -> None:
    """Two files with one name keep their folders, which alone tell them apart."""
    files({"a/b/one.par": GOOD, other: GOOD.replace("tp = 2", "tp = 4")})
    lines = run("eval", "specs/a/b/one.par", f"specs/{other}", "--compare").out.splitlines()
    assert lines[lines.index("Studies side by side") + 1].split() == heads


@pytest.mark.parametrize("option", ["--format=table", "--format=md", "--compare"])
def test_stderr_says_once_what_the_page_lists(run: Run, option: str) -> None:
    files({"a.par": GOOD, "b.par": MISTAKEN, "c.par": DISAPPOINTED})
    done = run("eval", "specs", option)
    assert done.code == 2
    for name in "bc":
        assert sum(f"specs/{name}.par" in line for line in done.err.splitlines()) == 1
    assert "specs/b.par: " in done.out
    assert "c (specs/c.par): " in done.out
    assert done.err.splitlines()[-2] == ""  # a diagnostic ends before the summary
    assert done.err.splitlines()[-1].startswith(
        "1 without errors; 1 failed a rule or an expectation, or did not fit; 1 bad input"
    )


@pytest.mark.parametrize("option", ["--full", "--section=verdict", "--format=jsonl"])
def test_the_summary_repeats_what_no_page_lists(run: Run, option: str) -> None:
    files({"a.par": GOOD, "b.par": MISTAKEN})
    done = run("eval", "specs", option)
    assert done.err.splitlines()[-2].startswith("specs/b.par:6:")


# --- shards ---------------------------------------------------------------------------------


def run_shards(run: Run, count: int, *options: str) -> list[str]:
    """Write the specs in so many shards, and return their names."""
    names = [f"{number}.jsonl" for number in range(1, count + 1)]
    for number, name in enumerate(names, start=1):
        run("eval", "specs", *options, "--shard", f"{number}/{count}", "--out", name)
    return names


@pytest.mark.parametrize(
    "format_", [*FORMATS, "table --compare", "table --full", "md --figures=mfu"]
)
def test_shards_joined_are_what_one_run_writes(run: Run, format_: str) -> None:
    files(ALL)
    name, *options = format_.split()
    whole = run("eval", "specs", "--format", name, *options).out
    names = run_shards(run, 10, "--format", name, *options)  # of eight files: two are empty
    done = run("merge", *reversed(names), "--out", "all")
    assert (done.code, done.err) == (0, "10 shards joined\n")
    assert Path("all").read_text() == whole
    assert run("merge", *names).out == whole


def test_shards_of_points_are_joined_in_any_format_of_points(run: Run) -> None:
    duckdb = pytest.importorskip("duckdb")
    files(ALL)
    names = run_shards(run, 3, "--format", "parquet")
    assert "`--format parquet` writes files: add --out FILE" in run("merge", *names).err
    assert run("merge", *names, "--out", "all.parquet").code == 0
    run("eval", "specs", "--format", "parquet", "--out", "whole.parquet")
    joined, whole = (duckdb.sql(f"from '{n}.parquet'").fetchall() for n in ("all", "whole"))
    assert joined == whole
    assert (
        run("merge", *names, "--format", "csv").out == run("eval", "specs", "--format", "csv").out
    )
    refused = run("merge", *names, "--format", "json")
    assert (refused.code, refused.out) == (2, "")
    assert "`--format json` needs shards that hold `full`, and these hold `points`" in refused.err


def test_shards_that_are_not_the_whole_of_one_run_are_not_joined(run: Run) -> None:
    files(many_specs(4))
    one, two, three, four = run_shards(run, 4, "--format", "csv")

    def refusal(*paths: str) -> str:
        done = run("merge", *paths, "--out", "all")
        assert (done.code, done.out) == (2, "")
        assert not Path("all").exists()
        return str(done.err)

    assert "shards 2, 4 of 4 are missing" in refusal(one, three)
    assert "shard 4 of 4 is missing" in refusal(one, two, three)
    Path("again.jsonl").write_bytes(Path(two).read_bytes())
    assert "are both shard 2/4" in refusal(one, two, "again.jsonl", three, four)
    for other in (["--format", "csv", "--set", "layout.pp=1"], ["--format", "parquet"]):
        run("eval", "specs", *other, "--shard", "2/4", "--out", two)
        assert f"`{two}` belongs to another run than `{one}`" in refusal(one, two, three, four)
    Path(three).write_text(Path(three).read_text()[:-30])
    assert f"`{three}`" in refusal(three)
    run("eval", "specs", "--format", "jsonl", "--out", four)
    assert f"`{four}` is not a complete shard" in refusal(four)
    for text in ("hello\n", "[1]\n", "{\n"):
        Path("other.txt").write_text(text)
        said = " ".join(refusal("other.txt").split())
        assert "checksum, is missing; `parcost eval --shard 1/4 --out FILE` writes shards" in said
        assert "JSON" not in said
    assert "error[missing-file]: there is no file" in refusal("none.jsonl")


def test_a_shard_that_was_edited_is_not_joined(run: Run) -> None:
    files(many_specs(4))
    names = run_shards(run, 2, "--format", "jsonl")
    second = Path(names[1])
    written = second.read_text()

    def refusal(text: str) -> None:
        assert text != written
        second.write_text(text)
        done = run("merge", *names, "--out", "all")
        assert (done.code, done.out) == (2, "")
        assert "`2.jsonl` is shard 2/2, but it was truncated or changed" in done.err
        assert not Path("all").exists()

    lines = written.splitlines(keepends=True)
    refusal("".join(lines[:1] + lines[2:]))
    refusal("".join([*lines[:-1], lines[-2], lines[-1]]))
    refusal(written.replace("s003", "s004", 1))
    refusal(re.sub(r'"format": ?"jsonl"', '"format":"json"', written))
    second.write_text(re.sub(r'"number": ?2', '"number": 1', written))
    assert "is shard 1/2, but it was truncated or changed" in run("merge", names[1]).err
    second.write_text(re.sub(r'"kind": ?"\w+"', '"kind": "poster"', written))
    assert "the checksum line of `2.jsonl` is damaged" in run("merge", *names).err


def test_a_sealed_shard_without_entries_is_not_joined(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    from parcost_apps.eval import shards
    from parcost_apps.eval.shards import Shard

    class Stranger:
        text = "[]"

    monkeypatch.setattr(shards, "entry_head", lambda _: {"path": "a.par"})
    shard = Shard(number=1, of=1, run="1", format="csv", part="points")
    Path("1.jsonl").write_text("".join(shard.lines([Stranger()])))  # type: ignore[list-item]
    done = run("merge", "1.jsonl")
    assert (done.code, done.out) == (2, "")
    assert "line 1 of `1.jsonl` is not an entry: KeyError: 'name'" in done.err
