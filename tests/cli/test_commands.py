"""What commands print, where they print it, and how they exit."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from parcost import Exporter, Study, hookimpl
from parcost_apps.cli import main
from parcost_plugins.vocabulary import ScheduleChoice

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
GOOD = """\
use catalog.devices.h100_sxm
use catalog.fabrics.hgx_h100
use catalog.models.llama3_8b
use catalog.precisions.bf16
cluster  { devices = 16 }
layout   { tp = 2, zero = 1, sequence_parallel = on }
training { sequence = 8192, global_batch = 32 sequences, recompute = full }
"""
DISAPPOINTED = GOOD + "expect { mfu >= 99 % }\n"
UNDIVIDED = GOOD.replace("tp = 2", "tp = 3")
TOO_LARGE = GOOD.replace("zero = 1", "zero = 0").replace("recompute = full", "micro_batch = 2")
MISTAKEN = GOOD.replace("tp = 2", "tpp = 2").replace("devices = 16", "devices = 16 GB")
SWEPT = GOOD.replace("tp = 2", "tp = [1, 2, 3, 4]")

Run = Callable[..., Any]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run a command in a directory of its own; files are written there first."""
    monkeypatch.chdir(tmp_path)
    for name in ("FORCE_COLOR", "NO_COLOR", "COLUMNS", "PARCOST_DEBUG"):
        monkeypatch.delenv(name, raising=False)

    def do(*arguments: str, **files: str) -> Any:
        for name, text in files.items():
            path = tmp_path / (name.replace("__", "/") + ".par")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        code = main(list(arguments))
        out, err = capsys.readouterr()
        assert "Traceback" not in out + err
        return SimpleNamespace(code=code, out=out, err=err)

    return do


def number(text: str) -> float:
    return float(text.replace(",", ""))


# --- eval -------------------------------------------------------------------------------


def test_a_report_answers_in_the_order_in_which_people_ask(run: Run) -> None:
    done = run("eval", "a.par", "--full", a=GOOD)
    assert (done.code, done.err) == (0, "")
    headings = [
        "Valid, fits in memory.",
        "Figures of the step",
        "Step time by term",
        "Memory by term",
    ]
    assert sorted(headings, key=done.out.index) == headings


def test_a_piped_report_is_ascii_and_eighty_columns_wide(run: Run) -> None:
    out = run("eval", "a.par", a=GOOD).out
    assert out.isascii()
    assert max(map(len, out.splitlines())) <= 80


def test_the_lines_of_the_ledger_add_up_to_the_step_as_printed(run: Run) -> None:
    out = run("eval", "a.par", "--full", a=GOOD).out
    table = out.partition("Step time by term")[2].partition("Memory by term")[0]
    groups = re.findall(r"^  (?!step time)\S.*?  ([\d,.]+) +[\d.]+(?: |$)", table, re.MULTILINE)
    rows = re.findall(r"^   (\S.*?  ([\d,.]+) +[\d.]+)(?: |$)", table, re.MULTILINE)
    (total,) = re.findall(r"^  step time +([\d,.]+) +100", table, re.MULTILINE)
    assert len(rows) > len(groups) > 2
    assert sum(map(number, groups)) == pytest.approx(number(total), abs=0.01 * len(groups))


def test_a_failed_expectation_is_shown_and_exits_with_1(run: Run) -> None:
    done = run("eval", "a.par", a=DISAPPOINTED)
    assert done.code == 1
    assert re.search(r"FAIL: mfu >= 99 %: [\d.]+ % is predicted", done.out)
    assert re.search(r"FAIL +mfu >= 99 %", run("eval", "a.par", "--full").out)
    assert "expectation" in done.err


def test_a_layout_that_does_not_divide_is_refused_and_never_priced(run: Run) -> None:
    done = run("eval", "a.par", a=UNDIVIDED)
    assert done.code == 1
    assert re.search(r"Invalid: [2-9] rules violated\.", done.out)
    assert "step time" not in done.out
    assert "tp = 3" in done.err


def test_a_job_that_does_not_fit_shows_its_memory_and_its_step_time_marked(run: Run) -> None:
    done = run("eval", "a.par", a=TOO_LARGE)
    assert done.code == 1
    words = " ".join(done.out.split())
    assert re.search(r"Does not fit in memory\. stage 0 needs [\d.]+ GiB at the loss", words)
    assert re.search(r"step time [\d.]+ m?s ignoring the memory limit \([^)]*, 90 %\)", words)
    assert re.search(
        r"^  memory +[\d.]+ GiB .*\n +[\d.]+ % +of 79.65 GiB usable", done.out, re.MULTILINE
    )
    full = run("eval", "a.par", "--full").out
    assert "Figures of the step (ignoring the memory limit)" in full
    assert "Memory by term" in full
    line = run("eval", ".").out
    assert re.search(r"^  a +[\d.]+ m?s .*does not fit in memory$", line, re.MULTILINE)


def test_bad_input_prints_every_problem_on_stderr_and_exits_with_2(run: Run) -> None:
    done = run("eval", "a.par", a=MISTAKEN)
    assert (done.code, done.out) == (2, "")
    assert "a.par:5:" in done.err
    assert "a.par:6:" in done.err
    assert "did you mean `tp`?" in done.err


@pytest.mark.parametrize(
    "argument, said",
    [
        ("missing.par", "there is no file `missing.par`"),
        ("notes.txt", "`notes.txt` is not a spec, and its format was not recognised"),
        ("empty", "there is no `.par` file in `empty`"),
        ("binary.par", "`binary.par` is not UTF-8: byte 0xff on line 1"),
        ("nothing.par", "`nothing.par` is empty"),
    ],
)
def test_an_unreadable_path_is_an_error_and_exits_with_2(
    run: Run, tmp_path: Path, argument: str, said: str
) -> None:
    (tmp_path / "notes.txt").touch()
    (tmp_path / "empty").mkdir()
    (tmp_path / "binary.par").write_bytes(b"\xff\xfe")
    (tmp_path / "nothing.par").touch()
    done = run("eval", argument)
    assert done.code == 2
    assert said in done.err


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="pipes of POSIX")
def test_a_pipe_with_the_name_of_a_spec_is_not_waited_for(run: Run, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.par")
    for argument in (".", "pipe.par"):
        done = run("eval", argument)
        assert done.code == 2
        assert "`pipe.par` is not a spec: it is not a regular file" in done.err


def test_an_unreadable_file_is_an_error(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "secret.par"
    path.write_text(GOOD, encoding="utf-8")
    path.chmod(0)
    if os.access(path, os.R_OK):
        pytest.skip("this user may read everything")
    done = run("eval", "secret.par")
    assert done.code == 2
    assert "Permission denied" in done.err


def test_a_directory_stands_for_its_specs_in_order_and_a_bad_one_stops_nothing(run: Run) -> None:
    done = run(
        "eval",
        ".",
        b__bad=MISTAKEN,
        a__good=GOOD,
        c__good=GOOD,
        d__sad=DISAPPOINTED,
        **{".hidden__x": MISTAKEN},
    )
    assert done.code == 2
    rows = re.findall(r"^  (\w/\w+) +[\d.]+ m?s ", done.out, re.MULTILINE)
    assert rows == ["a/good", "c/good", "d/sad"]
    _, _, failures = done.out.partition("d/sad.par")
    assert "b/bad.par: " in failures
    summary = done.err.rstrip().splitlines()
    assert summary[-1] == (
        "2 without errors; 1 failed a rule or an expectation, or did not fit; 1 bad input"
    )
    places = re.findall(r"--> (\w/\w+\.par):\d+:\d+", done.err)
    assert sorted(set(places)) == ["b/bad.par", "d/sad.par"]


DEFINITIONS = "device mine extends h100_sxm { memory = 96 GB }\nuse catalog.devices.h100_sxm\n"


def test_a_directory_passes_over_files_that_only_define(run: Run) -> None:
    using = GOOD.replace("use catalog.devices.h100_sxm", 'use "lib/site.par"').replace(
        "devices = 16", "devices = 16, device = mine"
    )
    done = run("eval", ".", a=using, lib__site=DEFINITIONS)
    assert (done.code, done.err) == (0, "1 without errors\n")
    assert run("check", ".").code == 0
    assert run("check", "lib/site.par").code == 0
    alone = run("eval", "lib/site.par")
    assert alone.code == 2
    assert "missing-block" in alone.err


def test_a_directory_passes_over_files_that_only_name_values(run: Run) -> None:
    using = 'use "lib/sizes.par"\n' + GOOD.replace("devices = 16", "devices = nodes * 8")
    done = run("eval", ".", a=using, lib__sizes="let nodes = 2\n")
    assert (done.code, done.err) == (0, "1 without errors\n")
    assert run("check", ".").code == 0
    assert run("eval", "lib/sizes.par").code == 2
    study = run("eval", ".", b='use "a.par"\nlet spare = 1\n', a=using)
    assert study.code == 0
    assert study.err.startswith("2 without errors; 1 warning")  # nothing reads `let spare`


def test_a_directory_passes_over_files_that_only_name_a_system(run: Run) -> None:
    system = "".join(GOOD.splitlines(keepends=True)[:2]) + "cluster pod { devices = 16 }\n"
    done = run("eval", ".", a=GOOD, lib__pod=system)
    assert (done.code, done.err) == (0, "1 without errors\n")
    assert run("check", ".").code == 0
    unnamed = run("eval", ".", b=system.replace(" pod", ""))
    assert unnamed.code == 2  # which nothing can import: a study that lacks the rest
    assert "missing-block" in unnamed.err


def test_an_empty_name_stands_for_nothing(run: Run) -> None:
    for command in ("eval", "check"):
        done = run(command, "", a=GOOD)
        assert done.code == 2
        assert "a file name is empty" in done.out + done.err


def test_a_mistake_in_a_file_that_only_defines_is_found(run: Run) -> None:
    done = run("check", ".", lib__site=DEFINITIONS.replace("96 GB", "96 Gb"))
    assert done.code == 2
    assert "lib/site.par:1:" in done.out
    assert "missing-block" not in done.out


def test_a_directory_of_what_is_no_study_and_no_definition_is_bad_input(run: Run) -> None:
    assert run("eval", ".", a="layout { tp = 4 }\n").code == 2


def test_every_study_of_a_file_is_reported_or_only_the_one_that_is_named(run: Run) -> None:
    text = GOOD + "study narrow { layout { tp = 1 } }\nstudy wide { layout { tp = 4 } }\n"
    full = run("eval", "a.par", "--full", a=text).out
    assert re.findall("^(narrow|wide) ", full, re.MULTILINE) == ["narrow", "wide"]
    assert "narrow" not in run("eval", "a.par", "--study", "wide").out
    done = run("eval", "a.par", "--study", "wade")
    assert done.code == 2
    assert "did you mean `wide`?" in done.err


def test_a_study_that_cannot_be_bound_loses_no_other(run: Run) -> None:
    text = GOOD + "study bad { layout { tp = 1 s } }\nstudy good { layout { tp = 4 } }\n"
    done = run("eval", "a.par", a=text)
    assert done.code == 2
    assert "good" in done.out


def test_a_problem_shared_by_studies_is_printed_once(run: Run) -> None:
    text = MISTAKEN + "study one { layout { tp = 1 } }\nstudy two { layout { tp = 4 } }\n"
    assert run("eval", "a.par", a=text).err.count("no attribute `tpp`") == 1


def test_set_overrides_in_the_words_of_the_language(run: Run) -> None:
    as_written = run("eval", "a.par", "--format", "json", a=GOOD.replace("tp = 2", "tp = 4"))
    overridden = run("eval", "a.par", "--format", "json", "--set", "layout.tp = 8 / 2", a=GOOD)
    step = [json.loads(r.out)["reports"][0]["results"][0] for r in (as_written, overridden)]
    assert step[0]["step_seconds"] == step[1]["step_seconds"]


def test_set_makes_a_block_that_the_file_lacks(run: Run) -> None:
    """A run of 1,000 steps takes 1,000 times the step."""
    tokens = 1000 * 32 * 8192
    written = ["--format", "json", "--set", f"run.tokens={tokens}"]
    result = json.loads(run("eval", "a.par", *written, a=GOOD).out)["reports"][0]["results"][0]
    assert result["figures"]["days_seconds"]["value"] == pytest.approx(
        1000 * result["step_seconds"]
    )


@pytest.mark.parametrize(
    "arguments, said",
    [
        (["--set", "layout.tp"], "`--set layout.tp` sets nothing"),
        (["--set", "layout.tp=1", "--set", "layout.tp=2"], "given twice"),
        (["--set", "layout.tpp=4"], "there is no attribute `layout.tpp`"),
        (["--set", "transfer.size=2 GB"], "the study has no block `transfer`: write one with a"),
        (["--set", "price.hour=2 USD/h"], "there is no attribute `price.hour`"),
        (["--set", "layout.tp=4 GB"], "layout.tp"),
        (["--format", "jsn"], "did you mean `json`?"),
        (["--without", "transformr"], "no plugin is called `transformr`"),
        (["--frmat", "json"], "--frmat"),
    ],
)
def test_a_wrong_option_is_a_usage_error(run: Run, arguments: list[str], said: str) -> None:
    done = run("eval", "a.par", *arguments, a=GOOD)
    assert (done.code, done.out) == (2, "")
    assert said in done.err


@pytest.mark.parametrize(
    "path",
    ["hgx_h100.network", "network", "fabric.network", "cluster.fabric.network"],
)
def test_set_reaches_blocks_inside_of_those_in_use(run: Run, path: str) -> None:
    """A slower network makes the step longer, however the path to it is written."""
    setting = f"{path}.bandwidth=1 Gbps per_direction"
    done = run("eval", "a.par", "--set", setting, "--format", "json", a=GOOD)
    usual = run("eval", "a.par", "--format", "json", a=GOOD)
    slow, step = (
        json.loads(r.out)["reports"][0]["results"][0]["step_seconds"] for r in (done, usual)
    )
    assert slow > 1.05 * step


def test_a_path_that_several_blocks_have_is_refused_with_all_of_them(run: Run) -> None:
    text = GOOD.replace(
        "cluster", "use catalog.fabrics.hgx_b200\ncluster { fabric = hgx_h100 }\ncluster", 1
    )
    text = GOOD + "use catalog.fabrics.hgx_b200\n"
    done = run("eval", "a.par", "--set", "network.bandwidth=1 Gbps per_direction", a=text)
    assert done.code == 2
    assert "there is `hgx_h100.network.bandwidth`, `hgx_b200.network.bandwidth`" in done.err


def test_without_leaves_a_plugin_out(run: Run) -> None:
    table = run("eval", "a.par", "--without", "exporters.json", a=GOOD)
    assert table.code == 0
    assert run("eval", "a.par", "--without", "exporters.json", "--format", "json").code == 2


# --- sweeps -----------------------------------------------------------------------------


def test_a_sweep_shows_a_row_for_each_point_and_why_some_cannot_run(run: Run) -> None:
    done = run("eval", "a.par", a=SWEPT)
    assert done.code == 0
    assert "3 of 4 points are valid and fit in memory." in done.out
    costs, _, refused = done.out.partition("Excluded points")
    assert re.findall(r"^ +([124])  +[\d.]+ s ", costs, re.MULTILINE) == ["1", "2", "4"]
    assert re.search(r"^ +3  .*divisible", refused, re.MULTILINE)
    assert "error" not in done.err


BUCKETS = SWEPT + "overlap { bucket = [25 MB, 100 MB] }\n"


def test_swept_values_carry_their_unit_in_every_format(run: Run) -> None:
    assert re.search(r"^ +2 +25 MB +\d", run("eval", "a.par", a=BUCKETS).out, re.MULTILINE)
    assert "overlap.bucket_bytes" in run("eval", "a.par", "--format", "csv").out
    (report,) = json.loads(run("eval", "a.par", "--format", "json").out)["reports"]
    assert report["axes"]["overlap.bucket_bytes"] == [25e6, 100e6]
    assert report["points"][0]["overlap.bucket_bytes"] == 25e6


def test_swept_values_stand_in_the_order_in_which_they_were_written(run: Run) -> None:
    table = run("eval", "a.par", a="overlap { bucket = [25 MB, 100 MB] }\n" + SWEPT).out
    assert re.search(r"^ +bucket +tp +step time", table, re.MULTILINE)
    sets = ["--set", "training.micro_batch=[1, 2]", "--set", "layout.zero=[0, 1]"]
    table = run("eval", "b.par", *sets, b=BUCKETS).out
    assert re.search(r"^ +tp +bucket +micro(?: batch)? +zero +step", table, re.MULTILINE)


def test_a_sweep_has_the_headline_figures_first(run: Run) -> None:
    out = run("eval", "a.par", a=SWEPT).out
    assert re.search(r"^ +tp +step time +mfu +memory +headroom ", out, re.MULTILINE)


def test_a_list_is_called_a_sweep_and_names_what_it_sweeps(run: Run) -> None:
    models = GOOD.replace("training {", "training { model = [llama3_8b, llama32_1b],")
    out = run("eval", "a.par", a="use catalog.models.llama32_1b\n" + models).out
    assert "Sweep: `training.model` has a list of values." in out


@pytest.mark.parametrize(
    ("written", "swept"),
    [
        ("zero = 1", "zero = 1"),
        ("zero = 1", "zero = [0, 1]"),
        ("training {", "overlap { bucket = [25 MB, 100 MB] }\ntraining {"),
        (
            "cluster  {",
            (
                "fabric mine extends hgx_h100 {\n"
                "  level network { bandwidth = [100 Gbps, 400 Gbps] per_direction }\n"
                "}\ncluster { fabric = mine,"
            ),
        ),
    ],
)
def test_a_sweep_says_which_options_show_the_advice_of_a_point(
    run: Run, written: str, swept: str
) -> None:
    out = run("eval", "a.par", "--full", a=SWEPT.replace(written, swept)).out
    assert "Levers" not in out
    flowing = " ".join(out.split())
    (options,) = re.findall(r"advice of one point: ((?:--set (?:'[^']*'|\S+) ?)+)", flowing)
    one = run("eval", "a.par", "--full", *shlex.split(options))
    assert "Levers" in one.out


def test_a_sweep_of_a_let_has_no_option_for_a_point(run: Run) -> None:
    text = "let degree = [1, 2]\n" + GOOD.replace("tp = 2", "tp = degree")
    done = run("explain", "a.par", "step_time", a=text)
    assert done.err.endswith("pick one, such as one value of `degree` in the file\n")


def test_a_sweep_says_where_a_claim_holds(run: Run) -> None:
    out = run("eval", "a.par", a=SWEPT + "expect {\n mfu <= 99 %\n mfu >= 99 %\n}\n").out
    assert re.search(r"pass +mfu <= 99 % +at 3 of 3 points$", out, re.MULTILINE)
    assert re.search(r"FAIL +mfu >= 99 % +at 0 of 3 points; not at tp = 1: ", out)


def test_a_sweep_fails_where_a_claim_fails_at_a_point_that_runs(run: Run) -> None:
    shares = [
        float(row["mfu_fraction"])
        for row in csv.DictReader(io.StringIO(run("eval", "a.par", "--format", "csv", a=SWEPT).out))
        if row["feasible"] == "yes"
    ]
    low, high = 100 * min(shares), 100 * max(shares)
    assert len(shares) == 3
    between = run("eval", "a.par", a=SWEPT + f"expect {{ mfu >= {(low + high) / 2:.3f} % }}\n")
    assert between.code == 1
    assert re.search(r"does not hold \(at (tp = \d|2 of 3 points that run, such as )", between.err)
    below = run("eval", "b.par", b=SWEPT + f"expect {{ mfu >= {low - 0.01:.3f} % }}\n")
    assert below.code == 0


def test_a_claim_does_not_count_at_points_that_do_not_fit(run: Run) -> None:
    text = SWEPT.replace("recompute = full", "micro_batch = [1, 64]").replace("32 seq", "1024 seq")
    rows = csv.DictReader(io.StringIO(run("eval", "a.par", "--format", "csv", a=text).out))
    assert any("GiB are usable" in row["reason"] for row in rows)
    assert run("eval", "b.par", b=text + "expect { memory <= 80 GiB }\n").code == 0


@pytest.mark.parametrize("swept", ["tp = [1, 2, 3, 4]", "tp = 2, pp = [1, 2, 3]"])
def test_check_and_eval_leave_out_the_illegal_points_of_a_sweep(run: Run, swept: str) -> None:
    text = GOOD.replace("tp = 2", swept)
    checked = run("check", "a.par", a=text)
    assert run("eval", "a.par").code == checked.code == 0
    axis = "tp" if swept.startswith("tp = [") else "pp"
    assert re.search(rf"warning\[[a-z-]+\]: .* \(at {axis} = 3\)", checked.out)
    assert "error[" not in checked.out


def test_check_and_eval_refuse_a_sweep_without_a_legal_point(run: Run) -> None:
    text = GOOD.replace("tp = 2", "tp = [3, 5]")
    assert run("check", "a.par", a=text).code == run("eval", "a.par").code == 1


def test_a_warning_of_a_sweep_says_at_which_points_it_stands(run: Run) -> None:
    one = " ".join(run("eval", "a.par", a=GOOD.replace("tp = 2", "tp = [1, 2, 4]")).out.split())
    assert "warning: sequence parallelism shards nothing: tp is 1 (at tp = 1)" in one
    swept = GOOD.replace("tp = 2", "tp = [1, 2, 4]").replace("32 seq", "[32, 64] seq")
    several = " ".join(run("eval", "b.par", b=swept).out.split())
    assert "tp is 1 (at 2 of 6 points, such as tp = 1, global_batch = " in several
    every = " ".join(run("eval", "c.par", c=swept.replace("tp = [1, 2, 4]", "tp = 1")).out.split())
    assert "shards nothing: tp is 1 " in every
    assert "tp is 1 (at" not in every


@pytest.mark.parametrize(
    "spec, head", [(GOOD, "Valid, fits in memory"), (SWEPT, "are valid and fit in memory")]
)
def test_a_report_says_which_plugins_were_left_out(run: Run, spec: str, head: str) -> None:
    left_out = ["--without", "memory.fit", "--without", "analysis.advice"]
    table, md, csv_, json_ = (
        run("eval", "a.par", "--format", name, *left_out, a=spec).out
        for name in ("table", "md", "csv", "json")
    )
    assert f"{head}; without: analysis.advice, memory.fit." in " ".join(table.split())
    assert "without: analysis.advice, memory" in md.replace("\\", "")
    assert next(csv.DictReader(io.StringIO(csv_)))["without"] == "analysis.advice memory.fit"
    assert json.loads(json_)["reports"][0]["without"] == ["analysis.advice", "memory.fit"]


def test_each_point_of_a_sweep_is_a_line_of_csv(run: Run) -> None:
    out = run("eval", "a.par", "--format", "csv", a=SWEPT).out
    rows = list(csv.DictReader(io.StringIO(out)))
    assert [row["layout.tp"] for row in rows] == ["1.0", "2.0", "3.0", "4.0"]
    assert [row["feasible"] for row in rows] == ["yes", "yes", "no", "yes"]
    assert rows[2]["reason"]
    assert rows[2]["step_time_seconds"] == ""
    alone = run("eval", "b.par", "--format", "csv", b=GOOD).out
    (row,) = csv.DictReader(io.StringIO(alone))
    assert float(row["step_time_seconds"]) == pytest.approx(
        float(rows[1]["step_time_seconds"]), rel=1e-12
    )


def test_a_sweep_in_json_has_its_points(run: Run) -> None:
    (report,) = json.loads(run("eval", "a.par", "--format", "json", a=SWEPT).out)["reports"]
    assert report["axes"] == {"layout.tp": [1, 2, 3, 4]}
    assert [point["feasible"] for point in report["points"]] == [True, True, False, True]
    assert sum(len(result["step_seconds"]) for result in report["results"]) == 3


# --- formats ----------------------------------------------------------------------------


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


# --- faults -----------------------------------------------------------------------------


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


# --- terminals --------------------------------------------------------------------------


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


# --- check ------------------------------------------------------------------------------


def test_check_finds_everything_without_evaluating(run: Run) -> None:
    done = run("check", "a.par", "b.par", "c.par", a=GOOD, b=MISTAKEN, c=UNDIVIDED)
    assert done.code == 2
    assert "b.par:5:" in done.out
    assert "tp = 3" in done.out
    assert re.fullmatch(
        r"3 studies checked, \d errors\n`parcost rule [a-z-]+` explains a rule by its id\n",
        done.err,
    )


def test_check_of_a_good_spec_says_nothing_on_stdout(run: Run) -> None:
    done = run("check", "a.par", a=GOOD)
    assert (done.code, done.out, done.err) == (
        0,
        "",
        "1 study checked, no errors; `parcost eval` checks memory too\n",
    )


def test_check_as_data(run: Run) -> None:
    done = run("check", "a.par", "--format", "json", a=MISTAKEN)
    found = json.loads(done.out)["diagnostics"]
    assert done.code == 2
    assert {d["id"] for d in found} >= {"unknown-attribute"}


def test_check_annotates_a_pull_request(run: Run) -> None:
    done = run("check", "a.par", "--format", "github", a=UNDIVIDED)
    assert done.code == 1
    assert re.match(r"::error file=a\.par,line=6,endLine=6,col=\d+,", done.out)
    assert all(line.startswith("::") for line in done.out.splitlines())


# --- fmt --------------------------------------------------------------------------------

UNTIDY = "cluster {devices=8 # eight\n}\n"


def test_fmt_rewrites_a_file_once_and_keeps_its_mode(run: Run, tmp_path: Path) -> None:
    (tmp_path / "a.par").write_text(UNTIDY, encoding="utf-8")
    (tmp_path / "a.par").chmod(0o640)
    done = run("fmt", "a.par")
    assert (done.code, done.out, done.err) == (0, "a.par\n", "1 changed, 0 unchanged\n")
    tidy = (tmp_path / "a.par").read_text(encoding="utf-8")
    assert "# eight" in tidy
    assert (tmp_path / "a.par").stat().st_mode & 0o777 == 0o640
    assert [p.name for p in tmp_path.iterdir()] == ["a.par"]
    assert run("fmt", "a.par").err == "0 changed, 1 unchanged\n"
    assert (tmp_path / "a.par").read_text(encoding="utf-8") == tidy


@pytest.mark.parametrize("option", ["--check", "--diff"])
def test_fmt_writes_nothing_with_check_or_diff(run: Run, tmp_path: Path, option: str) -> None:
    done = run("fmt", ".", option, a=UNTIDY)
    assert done.code == 1
    assert "a.par" in done.out
    assert (tmp_path / "a.par").read_text(encoding="utf-8") == UNTIDY
    if option == "--diff":
        assert "-cluster {devices=8 # eight\n" in done.out


def test_fmt_passes_stdin_to_stdout(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(UNTIDY.encode())))
    done = run("fmt", "-")
    assert done.code == 0
    assert "devices = 8" in done.out
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"\xff")))
    assert run("fmt", "-").code == 2


@pytest.mark.parametrize("options, shown", [([], "layout { tp = = 4 }\n"), (["--check"], "")])
def test_fmt_tells_mistakes_and_changes_nothing(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: list[str], shown: str
) -> None:
    wrong = "layout { tp = = 4 }\n"
    done = run("fmt", *options, "a.par", a=wrong)
    assert (done.code, done.out) == (2, "")
    assert "a.par:1:15" in done.err
    assert (tmp_path / "a.par").read_text(encoding="utf-8") == wrong
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(wrong.encode())))
    done = run("fmt", *options, "-")
    assert (done.code, done.out) == (2, shown)
    assert "<stdin>:1:15" in done.err


def test_fmt_says_what_it_cannot_read_and_goes_on(run: Run, tmp_path: Path) -> None:
    (tmp_path / "bad.par").write_bytes(b"\xff")
    done = run("fmt", "bad.par", "a.par", a=UNTIDY)
    assert done.code == 2
    assert "not UTF-8" in done.err
    assert done.out == "a.par\n"


# --- show, explain, plugins, catalog ----------------------------------------------------


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
    from parcost_apps.explain.explanation import _describe_hiding

    work = Work(
        name="w", pass_="R", seconds=1.0, resource="net", window="", formula=Formula(text="x")
    )
    line: Any = SimpleNamespace(term=work, pass_="R")
    assert "all serial work of the whole backward pass" in _describe_hiding(line)


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


# --- help -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "command",
    ["--help", "--version", *(f"{c} --help" for c in (
        "eval", "check", "fmt", "show", "explain", "plugins", "catalog", "figures",
        "calibrate", "validate",
    ))],
)  # fmt: skip
def test_help_imports_nothing_heavy(command: str) -> None:
    code = f"""
import sys
from parcost_apps.cli import main
assert main({command.split()!r}) == 0
heavy = {{"numpy", "lark", "attrs", "attr", "pluggy", "parcost_specs"}}
assert not heavy & sys.modules.keys(), heavy & sys.modules.keys()
packages = {{
    "parcost_apps": (
        *("batch", "cli", "eval", "options", "search"),
        *("catalog", "check", "diff", "documentation", "editor", "explain", "export"),
        *("figures", "fmt", "import_command", "merge", "new_plugin", "plugins", "rule"),
        *("server", "show", "timeline"),
    ),
    "parcost_measured": ("calibration", "validation"),
}}
commands = [f"{{package}}.{{name}}" for package, names in packages.items() for name in names]
known = {{*packages, *commands, *(f"{{name}}.command" for name in commands)}}
known |= {{f"parcost_apps.cli.{{n}}" for n in ("group", "interrupts", "messages", "output_files")}}
known |= {{f"parcost_apps.cli.{{n}}" for n in ("colors", "pages", "process", "streams", "threads")}}
known |= {{"parcost_apps.options.jobs", "parcost_apps.batch.pictures"}}
known |= {{"parcost_formats", "parcost_formats.rendering", "parcost_formats.rendering.escapes"}}
plugins = {{n for n in sys.modules if n.startswith("parcost_") and n != "parcost_grammar"}}
assert plugins <= known, plugins - known
"""
    subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.DEVNULL)


def test_no_command_at_all_prints_the_help(run: Run) -> None:
    done = run()
    assert (done.code, done.out) == (2, "")
    assert "Commands:" in done.err


def test_an_unknown_command_has_the_nearest_as_hint(run: Run) -> None:
    done = run("evaluate", "a.par")
    assert done.code == 2
    assert "there is no command `evaluate`; did you mean `eval`?" in done.err
    assert "write `parcost eval a.par`" in run("a.par").err
    assert "`h100_sxm`" in run("catalog", "h1000").err


def test_the_commands_are_listed_in_order(run: Run) -> None:
    listed = run("xyz").err.partition("commands are ")[2].splitlines()[0].split(", ")
    assert listed == sorted(listed)
    assert len(listed) > 10


def test_a_file_that_is_not_there_names_the_one_beside_it(run: Run, tmp_path: Path) -> None:
    (tmp_path / "ok.par").write_text("cluster { devices = 8 }\n")
    assert f"did you mean `{tmp_path / 'ok.par'}`?" in run("eval", str(tmp_path / "okk.par")).err


def test_a_term_ahead_of_its_file_is_noticed(run: Run) -> None:
    done = run("explain", "mfu", "a.par")
    assert done.code == 2
    assert "`parcost explain a.par mfu`" in done.err


def test_the_version_is_printed(run: Run) -> None:
    from parcost import __version__

    assert run("--version").out == f"parcost {__version__}\n"


def test_python_runs_the_package_as_the_command() -> None:
    command = [sys.executable, "-m", "parcost", "eval", "nope.par"]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr.startswith("error[missing-file]")


RIDGES = """\
use catalog.devices.h100_sxm
fabric f { level node { bandwidth = 450 GB/s per_direction, latency = 1 us } }
roofline r { }
"""


def test_calculations_without_training_are_printed(run: Run) -> None:
    done = run("eval", "a.par", a=RIDGES)
    assert done.code == 0
    assert "2,198" in done.out
    assert "a step" not in done.out
    assert "Figures" in run("eval", "a.par", "--full").out


def test_a_directory_shows_calculations_and_passes_definitions_over(run: Run) -> None:
    definitions = RIDGES.partition("roofline")[0]
    done = run("eval", "in", "--format", "csv", in__a=RIDGES, in__b=definitions)
    assert [row["path"] for row in csv.DictReader(io.StringIO(done.out))] == ["in/a.par"]


def test_a_claim_about_a_calculation_can_fail(run: Run) -> None:
    done = run("eval", "a.par", a=RIDGES + "expect { r.node >= 3000 }\n")
    assert done.code == 1
    assert "FAIL" in done.out


def test_calculations_are_swept(run: Run) -> None:
    swept = RIDGES.replace("450 GB/s per", "[225 GB/s, 450 GB/s] per")
    done = run("eval", "a.par", "--format", "json", a=swept)
    points = json.loads(done.out)["reports"][0]["points"]
    assert [round(point["r.node"]) for point in points] == [4396, 2198]


@pytest.mark.parametrize("names", [[], ["step_time"]])
def test_figures_of_what_a_rule_refuses_are_its_reasons(run: Run, names: list[str]) -> None:
    done = run("figures", "a.par", *names, a=UNDIVIDED)
    assert (done.code, done.out) == (1, "")
    assert "error[" in done.err
    assert "tp = 3" in done.err
    assert "no figure is called" not in done.err


def test_figures_lists_what_a_report_leaves_out(run: Run) -> None:
    done = run("figures", "a.par", "r.*", a=RIDGES)
    assert done.code == 0
    assert "r.memory" in done.out
    assert run("figures", "a.par", "nothing").code == 2


def test_an_infinite_value_is_printed_in_words(run: Run) -> None:
    done = run("figures", "idle.par", idle="estimate idle { compute = 0 s, communication = 0 s }\n")
    assert done.code == 0
    (rate,) = (line for line in done.out.splitlines() if "samples_per_second" in line)
    assert rate.split()[1] == "infinite"


def test_check_says_what_eval_says_of_all_but_prices(run: Run) -> None:
    """Rules of a schedule's length, names and units in claims, and plugins that fail."""
    long = GOOD.replace("tp = 2", "tp = 2, pp = 4").replace("= 32 seq", "= 100000 seq")
    done = run("check", "long.par", long=long)
    assert done.code == 1
    assert "error[schedule-length]: 50000 micro-batches on pp 4 are 200000 passes" in done.out
    assert "help: use larger micro-batches, at most 32768 per step" in done.out
    claims = "expect {\n  mfuu >= 1 %\n  memory >= 3 s\n  mfu = 40 %\n}\n"
    done = run("check", "claims.par", claims=GOOD + claims)
    assert done.code == 2
    assert "error[unknown-name]: no figure is called `mfuu`" in done.out
    assert "error[wrong-dimension]: `memory` is measured in B" in done.out
    assert "error[missing-tolerance]: `mfu =` needs a tolerance" in done.out
    assert "error" not in run("check", "hopes.par", hopes=DISAPPOINTED).out


def test_check_tells_rules_beside_claims_that_are_wrong(run: Run) -> None:
    done = run("check", "both.par", both=UNDIVIDED + "expect { mfu = 40 % }\n")
    assert done.code == 2
    assert "error[missing-tolerance]" in done.out
    assert re.search(r"error\[\w+-divide\]", done.out)


def test_check_names_a_plugin_that_fails(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def checks(study: Any) -> list[Any]:
        return [1 / 0 for _ in [study]]

    import parcost_plugins.rules

    monkeypatch.setattr(parcost_plugins.rules, "checks", hookimpl(checks))
    done = run("check", "good.par", good=GOOD)
    assert done.code == 3
    assert "error[plugin-fault]: plugin `rules` of parcost" in done.out
    assert "failed in `checks`: raised ZeroDivisionError" in done.out


def test_a_sweep_that_is_bound_point_by_point_has_a_limit(run: Run) -> None:
    """What decides how many stages there are costs an evaluation a point."""
    done = run("eval", "a.par", "--set", "layout.pp=range(1, 20000)", a=GOOD)
    assert done.code == 2
    assert "error[too-many-points]: the sweeps have 20,000 points" in done.err
    assert "limit is 10,000" in done.err
    assert "each value of `layout.pp` is another structure" in done.err


def test_a_sweep_is_read_once_however_many_points_are_bound(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    from parcost.binding import functions

    read = []
    call = functions.call
    monkeypatch.setattr(
        functions, "call", lambda *given: (read.append(given[0].span.text), call(*given))[1]
    )
    swept = GOOD.replace("recompute = full", "recompute = full, documents = range(1, 40)")
    assert run("eval", "a.par", a=swept).code == 1
    assert read.count("range(1, 40)") == 1


def test_problems_of_points_are_shown_up_to_a_limit(run: Run) -> None:
    swept = GOOD.replace("recompute = full", "recompute = full, documents = range(1, 130)")
    done = run("eval", "a.par", a=swept)
    assert done.code == 1
    assert done.err.count("error[documents-fill]") == 100
    assert "error[too-many-problems]: 30 further problems are not shown" in done.err
    rows = run("eval", "a.par", "--format", "csv", a=swept).out.splitlines()
    assert len(rows) == 1 + 130


def test_claims_are_judged_up_to_a_number_of_errors(run: Run) -> None:
    claims = "\n".join(f"  unknown_{i} < {i} s" for i in range(300))
    done = run("eval", "a.par", a=f"{GOOD}expect {{\n{claims}\n}}\n")
    assert done.code == 2
    assert done.err.count("error[unknown-name]") == 100
    assert "100 claims have errors; further claims are not checked" in done.err
    assert "a.par:109:3" in done.err  # the first of the others


def test_long_work_on_one_file_shows_how_far_it_has_got(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At a terminal too: nothing is written before all points are done."""
    from parcost_apps.cli import messages

    shown: list[str] = []
    monkeypatch.setattr(messages.Progress, "show", lambda _, text: shown.append(text))
    swept = GOOD.replace("tp = 2", "pp = [1, 2]")
    assert run("eval", "a.par", a=swept).code == 0
    assert shown[:2] == ["a.par, 0 of 2 points done", "a.par, 1 of 2 points done"]
    shown.clear()
    studies = GOOD + "study one { }\nstudy two { layout { tp = 4 } }\n"
    assert run("eval", "b.par", b=studies).code == 0
    assert shown[:2] == ["b.par, study 1 of 2", "b.par, study 2 of 2"]


@pytest.mark.parametrize(
    "arguments",
    [
        ["eval", "LONG"],
        ["eval", "a.par", "--plugin", "LONG.py"],
        ["eval", "a.par", "--plugin", "LONG/__init__.py"],
        ["eval", "a.par", "--out", "LONG"],
        ["merge", "LONG"],
        ["validate", "LONG"],
        ["validate", "LONG/runs.jsonl", "--intervals", "LONG/x.par"],
        ["calibrate", "LONG"],
        ["calibrate", "a.par", "LONG.jsonl"],
        ["calibrate", "a.par", "--out", "LONG"],
    ],
)
def test_a_name_that_is_too_long_is_bad_input(
    arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    """File systems reject names of more than 255 bytes, and some functions of Python raise it."""
    monkeypatch.chdir(tmp_path)
    Path("a.par").write_text(GOOD, encoding="utf-8")
    assert main([argument.replace("LONG", 300 * "x") for argument in arguments]) == 2
    assert "internal" not in capsys.readouterr().err


def test_a_search_of_calculators_says_that_they_have_no_layout(run_command: Run) -> None:
    spec = (Path(__file__).parents[2] / "specs/examples/roofline.par").read_text("utf-8")
    done = run_command("search", "roofline.par", files={"roofline.par": spec})
    assert done.code == 2
    text = " ".join(done.err.split())
    assert "`roofline.par` has no training step: its blocks are calculators" in text
    assert "`parcost eval roofline.par` shows their results" in text
