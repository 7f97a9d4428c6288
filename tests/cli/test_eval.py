"""`parcost eval`: reports, exit codes, directories, overrides and calculations."""

from __future__ import annotations

import csv
import io
import json
import os
import re
from pathlib import Path
from typing import Any

import pytest

from parcost_apps.cli import main

from .command_specs import DISAPPOINTED, GOOD, MISTAKEN, UNDIVIDED, Run

pytestmark = pytest.mark.slow

TOO_LARGE = GOOD.replace("zero = 1", "zero = 0").replace("recompute = full", "micro_batch = 2")


def number(text: str) -> float:
    return float(text.replace(",", ""))


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
        "2 without errors; 1 failed a rule or an expectation, or did not fit; 1 with bad input"
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
        (["--set", "layout.tp"], "`--set layout.tp` has no value"),
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


def test_an_unknown_suffix_of_out_is_an_error(run: Run) -> None:
    done = run("eval", "a.par", "--out", "x.jsn", a=GOOD)
    assert done.code == 2
    assert "no format has the suffix `.jsn`" in done.err
    assert "did you mean `json`?" in done.err
    assert not Path("x.jsn").exists()
    assert run("eval", "a.par", "--out", "x.txt", a=GOOD).code == 0


def test_without_leaves_a_plugin_out(run: Run) -> None:
    table = run("eval", "a.par", "--without", "exporters.json", a=GOOD)
    assert table.code == 0
    assert run("eval", "a.par", "--without", "exporters.json", "--format", "json").code == 2


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


def test_claims_are_judged_up_to_a_number_of_errors(run: Run) -> None:
    claims = "\n".join(f"  unknown_{i} < {i} s" for i in range(300))
    done = run("eval", "a.par", a=f"{GOOD}expect {{\n{claims}\n}}\n")
    assert done.code == 2
    assert done.err.count("error[unknown-name]") == 100
    assert "100 claims have errors; further claims are not checked" in done.err
    assert "a.par:109:3" in done.err  # the first of the others


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
    assert "`roofline.par` has no training step, only calculators" in text
    assert "`parcost eval roofline.par` shows their results" in text
