"""The files of a batch, the formats of its results, and where they are written."""

from __future__ import annotations

import csv
import io
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from .batch_specs import (
    ALL,
    BIGGER,
    DEFINITIONS,
    DISAPPOINTED,
    GOOD,
    MISTAKEN,
    STUDIES,
    SWEPT,
    USING,
    Run,
    files,
    many_specs,
    process,
    spec_names,
)

pytestmark = pytest.mark.slow


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


@pytest.mark.parametrize("format_", ["json", "csv"])
def test_several_processes_give_the_same_to_the_bit(run: Run, format_: str) -> None:
    files({**ALL, **many_specs(20)})
    alone = run("eval", "specs", "--format", format_, "--no-cache")
    spread = run("eval", "specs", "--format", format_, "--no-cache", "--jobs", "2")
    assert (spread.code, spread.out, spread.err) == (alone.code, alone.out, alone.err)


def test_answers_of_processes_are_cached(run: Run, evaluations: list[str]) -> None:
    files({**ALL, **many_specs(20)})
    spread = run("eval", "specs", "--format", "jsonl", "--jobs", "2")
    again = run("eval", "specs", "--format", "jsonl")
    assert evaluations == []
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


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a device of Linux")
@pytest.mark.parametrize("format_", ["jsonl", "csv", "table"])
def test_a_full_disk_is_an_error_and_loses_nothing(
    run: Run, evaluations: list[str], format_: str
) -> None:
    files(many_specs(3))
    done = run("eval", "specs", "--format", format_, "--out", "/dev/full")
    assert done.code == 2
    assert "`/dev/full` cannot be written: No space left on device" in done.err
    evaluations.clear()
    assert run("eval", "specs", "--format", format_).code == 0
    assert len(evaluations) <= 2


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
    assert summary[2:] == ["and 2 more errors in specs", "4 with bad input"]


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
    assert counts.startswith(
        "23 failed a rule or an expectation, or did not fit; 1 with bad input; 1 f"
    )


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
        "1 without errors; 1 failed a rule or an expectation, or did not fit; 1 with bad input"
    )


@pytest.mark.parametrize("option", ["--full", "--section=verdict", "--format=jsonl"])
def test_the_summary_repeats_what_no_page_lists(run: Run, option: str) -> None:
    files({"a.par": GOOD, "b.par": MISTAKEN})
    done = run("eval", "specs", option)
    assert done.err.splitlines()[-2].startswith("specs/b.par:6:")


@pytest.mark.parametrize("named", ["specs", "specs/**/*.par"])
def test_a_directory_with_too_many_entries_is_not_searched(
    run: Run, monkeypatch: pytest.MonkeyPatch, named: str
) -> None:
    """`specs` holds two directories and three files, and hidden directories are not entered."""
    files({"deep/a.par": GOOD, "deep/er/b.par": GOOD, ".git/x": "", ".git/y": ""})
    files({"deep/notes.txt": ""})
    monkeypatch.setattr("parcost_apps.batch.files.MOST_ENTRIES", 6)
    assert run("eval", named).code == 0
    monkeypatch.setattr("parcost_apps.batch.files.MOST_ENTRIES", 5)
    done = run("eval", named, "specs/deep/a.par", "--format", "jsonl")
    assert done.code == 2
    assert "holds more than 5 files and directories" in done.err
    assert "name the directory of the specs" in done.err
    rows = [json.loads(line) for line in done.out.splitlines()]
    assert rows[-1]["path"] == "specs/deep/a.par"
    assert "step_time_seconds" in done.out.splitlines()[-1]
