"""Reports as JSON, CSV and Markdown, and on terminals."""

from __future__ import annotations

import csv
import io
import json
import re

import pytest

from .command_specs import DISAPPOINTED, GOOD, MISTAKEN, SWEPT, Run

pytestmark = pytest.mark.slow


def test_json_carries_every_line_with_its_formula_and_its_plugin(run: Run) -> None:
    done = run("eval", "a.par", "--format", "json", a=GOOD)
    document = json.loads(done.out, parse_constant=pytest.fail)
    assert document["schema_version"] == 1
    assert document["rejected"] == []
    (report,) = document["reports"]
    (result,) = report["results"]
    ledger = result["ledger"]
    exposed = 0.0
    for line in ledger:
        exposed += line["exposed_seconds"]
        assert line["formula"]["text"]
        for value in line["formula"]["inputs"].values():
            assert value.keys() - {"formula"} == {"value", "unit"}
    assert exposed == result["step_seconds"] == result["figures"]["step_time_seconds"]["value"]
    stamped = [line["plugin"] for line in ledger if line["plugin"]]
    assert {p["distribution"] for p in stamped} == {"parcost"}
    memory = result["memory"]
    assert sum(line["bytes"] for line in memory["lines"]) == memory["total_bytes"]
    assert all(line["formula"]["source"] or line["formula"]["inputs"] for line in memory["lines"])


def test_json_holds_what_has_no_report_and_its_diagnostics(run: Run) -> None:
    done = run("eval", "a.par", "b.par", "--format", "json", a=MISTAKEN, b=DISAPPOINTED)
    document = json.loads(done.out)
    (rejected,) = document["rejected"]
    assert (rejected["path"], rejected["exit_code"]) == ("a.par", 2)
    assert len(rejected["diagnostics"]) >= 2
    (report,) = document["reports"]
    assert report["exit_code"] == 1
    (claim,) = report["results"][0]["expectations"]
    assert (claim["claim"], claim["figure"], claim["holds"]) == (
        "mfu >= 99 %",
        "mfu_fraction",
        False,
    )


def test_an_empty_batch_is_a_whole_document(run: Run) -> None:
    document = json.loads(run("eval", "nowhere.par", "--format", "json").out)
    assert (document["reports"], len(document["rejected"])) == ([], 1)


def test_csv_has_the_columns_of_all_reports_together(run: Run) -> None:
    out = run("eval", "a.par", "b.par", "c.par", "--format", "csv", a=GOOD, b=SWEPT, c=MISTAKEN).out
    rows = list(csv.DictReader(io.StringIO(out)))
    assert [row["path"] for row in rows] == ["a.par", *["b.par"] * 4, "c.par"]
    assert rows[0]["layout.tp"] == ""
    assert rows[0]["step_time_seconds"]
    assert rows[-1]["reason"]


def test_markdown_tells_the_same_story(run: Run) -> None:
    table = run("eval", "a.par", "--full", a=GOOD).out
    done = run("eval", "a.par", "b.par", "--full", "--format", "md", b=MISTAKEN)
    assert done.out.startswith("# a\n")
    for heading in re.findall(r"^(W\w+.*)$", table, re.MULTILINE):
        assert f"## {heading}" in done.out.replace("\\", "")
    assert "# b.par\n\n**No report.**" in done.out


def test_a_terminal_gets_colour_and_boxes(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "100")
    out = run("eval", "a.par", a=GOOD).out
    assert "\x1b[32m" in out
    assert "━" in out
    assert max(len(re.sub(r"\x1b\[[\d;]*m", "", line)) for line in out.splitlines()) <= 100


def test_no_color_is_respected(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("NO_COLOR", "1")
    done = run("eval", "a.par", a=DISAPPOINTED)
    assert "\x1b" not in done.out + done.err


@pytest.mark.parametrize("columns", ["20", "40", "60"])
def test_a_narrow_terminal_wraps_and_loses_nothing(
    run: Run, monkeypatch: pytest.MonkeyPatch, columns: str
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", columns)
    assert run("eval", "a.par", a=GOOD).code == 0


def test_a_spec_cannot_drive_the_terminal(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    text = GOOD + 'term t { seconds = 1 ms, source = "\x1b[2J\x07" }\n'
    for color in ("", "1"):
        monkeypatch.setenv("FORCE_COLOR", color)
        done = run("explain", "a.par", "t", a=text)
        assert "\x1b[2J" not in done.out + done.err
        assert "\x07" not in done.out + done.err


@pytest.mark.parametrize("option", ["--format", "--figures", "--set-env", "--anchor"])
def test_a_line_end_in_an_argument_starts_no_line(run_command: Run, option: str) -> None:
    """GitHub takes a line that begins with `::error` as an annotation."""
    done = run_command("eval", "job.par", option, "a\n::error::b", files={"job.par": GOOD})
    assert "\n::" not in done.out + done.err
    assert done.code == 2
