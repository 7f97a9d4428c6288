"""`parcost show`, `explain`, `plugins` and `catalog`."""

from __future__ import annotations

import csv
import io
import json
import re
from types import SimpleNamespace
from typing import Any

import pytest

from .command_specs import BUCKETS, GOOD, SWEPT, UNDIVIDED, Run

pytestmark = pytest.mark.slow


def test_show_prints_a_spec_that_costs_the_same(run: Run) -> None:
    shown = run("show", "a.par", a=GOOD)
    assert shown.code == 0
    again = run("eval", "b.par", "--format", "json", b=shown.out)
    assert (again.code, again.err) == (0, "")
    first = run("eval", "a.par", "--format", "json")
    steps = [json.loads(r.out)["reports"][0]["results"][0] for r in (first, again)]
    assert steps[0]["step_seconds"] == steps[1]["step_seconds"]
    assert steps[0]["memory"]["total_bytes"] == steps[1]["memory"]["total_bytes"]


def test_show_says_where_each_value_is_from(run: Run) -> None:
    out = run("show", "a.par", "--set", "layout.tp=4", a=GOOD).out
    assert re.search(r"devices +=  *16 +# a.par:5$", out, re.MULTILINE)
    assert re.search(r"tp +=  *4 +# override$", out, re.MULTILINE)
    assert re.search(
        r"dp +=  *4 +# default: cluster.devices / \(tp \* cp \* pp\)$", out, re.MULTILINE
    )
    assert re.search(
        r"memory += 81559 MiB @published\(\".*\"\) +# catalog\S*:\d+$", out, re.MULTILINE
    )


def test_show_begins_with_what_the_file_says(run: Run) -> None:
    out = run("show", "a.par", "--set", "routing.dispatcher=deepep", a=GOOD).out
    count = len(out.splitlines())
    assert out.splitlines()[0].endswith(f": {count:,} lines")
    titles = [line.split()[0] for line in out.splitlines() if re.match(r"[a-z]\w* .*{$", line)]
    heads = re.findall(r"^# --- (.*?): (\d+) block", out, re.MULTILINE)
    assert [title for title, _ in heads] == [
        "blocks of the study's file",
        "blocks that they refer to",
        "other blocks",
    ]
    own, referred = int(heads[0][1]), int(heads[1][1])
    written = [kind for kind in titles[:own] if kind != "routing"]
    assert written == re.findall(r"^(?!use|expect)(\w+) +{", GOOD, re.MULTILINE)
    assert {"device", "fabric", "model", "precision"} <= set(titles[own : own + referred])
    assert "compression" in titles[own + referred :]


def test_show_of_a_sweep_is_a_sweep(run: Run) -> None:
    shown = run("show", "a.par", a=SWEPT).out
    points = [
        list(csv.DictReader(io.StringIO(run("eval", name, "--format", "csv", **files).out)))
        for name, files in (("a.par", {}), ("b.par", {"b": shown}))
    ]
    assert [p["step_time_seconds"] for p in points[0]] == [
        p["step_time_seconds"] for p in points[1]
    ]


def test_explain_shows_a_line_down_to_its_numbers(run: Run) -> None:
    ledger = json.loads(run("eval", "a.par", "--format", "json", a=GOOD).out)["reports"][0]
    for line in ledger["results"][0]["ledger"]:
        if line["exposed_seconds"]:
            done = run("explain", "a.par", line["name"])
            assert (done.code, done.err) == (0, "")
            assert line["name"] in done.out
            for label in ("exposed", "formula"):
                assert label in done.out


def test_explain_knows_memory_and_figures_too(run: Run) -> None:
    result = json.loads(run("eval", "a.par", "--format", "json", a=GOOD).out)["reports"][0][
        "results"
    ][0]
    for name in [line["name"] for line in result["memory"]["lines"]] + ["mfu", "step_time"]:
        assert run("explain", "a.par", name).code == 0


def test_explain_takes_a_name_without_its_stage_and_in_any_case(run: Run) -> None:
    pipelined = GOOD.replace("tp = 2", "tp = 2, pp = 2")
    out = run("explain", "a.par", "optimizer UPDATE", a=pipelined).out
    assert re.search(r"^optimizer update, stage", out, re.MULTILINE)


def test_explain_finds_a_figure_by_its_title(run: Run) -> None:
    for term in ("pipeline bubble", "Pipeline Bubble", "bubble"):
        out = run("explain", "a.par", term, a=GOOD).out
        assert "bubble: pipeline bubble" in out


def test_explain_without_a_term_lists_them(run: Run) -> None:
    done = run("explain", "a.par", a=GOOD)
    assert done.code == 0
    for name in ("step_time", "bubble", "optimizer update", "Further figures"):
        assert name in done.out


def test_explain_suggests_no_name_that_is_nothing_alike(run: Run) -> None:
    done = run("explain", "a.par", "zzzz", a=GOOD)
    assert done.code == 2
    (line,) = (line for line in done.err.splitlines() if "help" in line)
    assert "did you mean" not in line
    assert "the command lists all terms and figures" in line


def test_explain_suggests_the_nearest_name(run: Run) -> None:
    done = run("explain", "a.par", "step_tme", a=GOOD)
    assert (done.code, done.out) == (2, "")
    assert "did you mean `step_time`" in done.err


@pytest.mark.parametrize("term", ["mfu", "optimizer update", "optimizer state"])
def test_explain_of_a_sweep_says_how_to_pick_a_point(run: Run, term: str) -> None:
    done = run("explain", "a.par", term, a=BUCKETS)
    assert (done.code, done.out) == (2, "")
    assert "`layout.tp`" in done.err
    assert "--set 'overlap.bucket=25 MB'" in done.err
    picked = ["--set", "overlap.bucket=25 MB", "--set", "layout.tp=1"]
    assert run("explain", "a.par", term, *picked).code == 0


def test_explain_of_work_beside_a_whole_pass_says_so() -> None:
    from parcost import Formula
    from parcost.contract.terms import Work
    from parcost_apps.explain.explanation import _describe_overlap

    work = Work(
        name="w", pass_="R", seconds=1.0, resource="net", window="", formula=Formula(text="x")
    )
    line: Any = SimpleNamespace(term=work, pass_="R")
    assert "all serial work of the whole backward pass" in _describe_overlap(line)


def test_explain_of_what_cannot_run_says_why(run: Run) -> None:
    done = run("explain", "a.par", "step_time", a=UNDIVIDED)
    assert done.code == 1
    assert "tp = 3" in done.err


def test_plugins_lists_where_each_is_from_and_what_it_has(run: Run) -> None:
    done = run("plugins")
    assert done.code == 0
    assert re.search(r"exporters.json +parcost \S+ +exporters: json", done.out)
    assert "vocabulary" not in run("plugins", "--without", "vocabulary").out


def test_catalog_lists_and_shows(run: Run) -> None:
    assert "h100_sxm" in run("catalog").out
    assert "h100_sxm_96g" in run("catalog", "h100").out
    whole = run("catalog", "h100_sxm").out  # and not `h100_sxm_96g`, whose name begins with it
    assert re.search(r"memory_bandwidth +3.35 TB/s +vendor: ", whole)
    assert "h100_sxm_96g" not in whole
    assert "use catalog.frameworks.NAME" in run("catalog", "frameworks.nemo*").out
    missing = run("catalog", "h100_smx")
    assert missing.code == 2
    assert "did you mean `h100_sxm`?" in missing.err
