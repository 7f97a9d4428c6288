"""The report on one screen, the other views of it, and the figures that a user chooses."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import parcost
from parcost_formats.rendering.studies import join_pages

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
SEVENTY = str(ROOT / "specs" / "runs" / "llama3_70b_64_h100.par")
SMALL = """\
use catalog.devices.h100_sxm
use catalog.fabrics.hgx_h100
use catalog.models.llama3_8b
use catalog.precisions.bf16
cluster  { devices = 16 }
layout   { tp = 2, zero = 1, sequence_parallel = on }
training { sequence = 8192, global_batch = 32 sequences, recompute = full }
"""
DEEPSEEK = """\
use catalog.devices.h800_sxm
use catalog.fabrics.hgx_h800
use catalog.models.deepseek_v3
use catalog.precisions.fp8_deepseek
cluster  { devices = 2048 }
layout   { pp = 16, ep = 64, zero = 1 }
schedule { kind = dualpipe, stages = [4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 3, 3, 3] }
training { sequence = 4096, global_batch = 15360 sequences, recompute = full }
"""

Run = Callable[..., Any]


@pytest.mark.parametrize("study", ["llama3_70b_64_h100", "llama3_70b_64_h100_tiled"])
def test_a_job_is_one_screen(run_command: Run, study: str) -> None:
    done = run_command("eval", SEVENTY, "--study", study)
    lines = done.out.splitlines()
    assert (done.code, done.err) == (0, "")
    assert len(lines) <= 44
    assert max(map(len, lines)) <= 80
    assert done.out.count("pipeline bubble  ") == 2  # one figure, and one cause
    for title in ("step time", "MFU", "HFU", "exposed", "memory"):
        assert re.search(rf"^  {title}.*? +[\d.]+ (s|%|GiB)", done.out, re.MULTILINE)


def test_a_large_mixture_of_experts_is_one_screen(run_command: Run) -> None:
    done = run_command("eval", "a.par", a=DEEPSEEK)
    lines = done.out.splitlines()
    assert len(lines) <= 44
    assert max(map(len, lines)) <= 80
    causes = re.findall(
        r"^  (compute|pipeline bubble|pipeline send/recv|[A-Z]P communication) ",
        done.out,
        re.MULTILINE,
    )
    assert {"compute", "EP communication", "pipeline send/recv", "DP communication"} <= set(causes)
    assert "fp8 peak x 2" in run_command("eval", "a.par", "--section", "levers").out


def test_causes_add_up_to_the_step_and_stand_in_order_of_size(run_command: Run) -> None:
    out = run_command("eval", SEVENTY, "--study", "llama3_70b_64_h100").out
    table = out.partition("by cause")[2].partition("Peak memory")[0]
    parts = [float(n.replace(",", "")) for n in re.findall(r"([\d,]+) ms", table)]
    assert parts == sorted(parts, reverse=True)
    assert sum(parts) == pytest.approx(4434.451, abs=0.5 * len(parts))  # as its comment derives
    bars = [len(bar) for bar in re.findall(r"#+", table)]
    assert bars[0] == 28
    # a bar is as long as its part of the largest
    assert bars[1] == round(28 * parts[1] / parts[0])


def test_a_directory_is_a_line_for_each_study_and_then_what_failed(run_command: Run) -> None:
    good = dict.fromkeys("abcd", SMALL)
    done = run_command("eval", ".", **good, e=SMALL.replace("tp = 2", "tp = 3"))
    assert done.code == 1
    lines = done.out.splitlines()
    assert len(lines) <= 10
    assert re.findall(r"^  (\w) +[\d.]+ m?s ", done.out, re.MULTILINE) == ["a", "b", "c", "d"]
    assert "e (e.par): " in done.out.partition("  d ")[2]


def test_a_directory_counts_warnings_and_does_not_print_them(run_command: Run) -> None:
    warned = SMALL.replace("devices = 16", "devices = 2")
    warned += "schedule { kind = one_f_one_b }\n"
    done = run_command("eval", ".", a=SMALL, b=warned)
    assert "warning[" not in done.err
    assert re.search(r"\d warnings?: `parcost eval FILE` shows", done.err)
    screen = run_command("eval", "b.par")
    assert "warning: zero 1 has no effect" in screen.out
    assert "warning[" not in screen.err


def test_a_section_is_found_by_part_of_its_title(run_command: Run) -> None:
    text = SMALL.replace("tp = 2", "tp = 2, pp = 2")
    out = run_command("eval", "a.par", "--section", "memory", a=text).out
    assert "Memory by term" in out
    assert "Memory by stage" in out
    assert "Step time by term" not in out
    missed = run_command("eval", "a.par", "--section", "memry")
    assert missed.code == 2
    assert "did you mean `memory`?" in missed.err
    assert "memory by stage" in " ".join(missed.err.split())


def test_the_whole_report_stands_in_order_of_execution_or_size(run_command: Run) -> None:
    def titles(*options: str) -> list[str]:
        out = run_command("eval", "a.par", "--section", "time by term", *options, a=SMALL).out
        return re.findall(r"^  (forward|recompute|backward|weight gradients) ", out, re.MULTILINE)

    assert titles() == ["forward", "recompute", "backward", "weight gradients"]
    by_size = titles("--order", "size")
    assert by_size[0] == "backward"  # the most of it: twice the attention of a forward pass
    assert set(by_size) == set(titles())


@pytest.mark.parametrize(
    "arguments, said",
    [
        (["--full", "--compare"], "exclude each other"),
        (["--order", "size"], "add --full"),
        (["--full", "--format", "json"], "`--full` has no effect on `--format json`"),
        (["--figures", "mfu", "--format", "jsonl"], "has no effect"),
        (["--figures", ","], "has no names"),
    ],
)
def test_options_that_have_no_effect_are_refused(
    run_command: Run, arguments: list[str], said: str
) -> None:
    done = run_command("eval", "a.par", *arguments, a=SMALL)
    assert done.code == 2
    assert said in done.err


def test_studies_are_compared_in_one_table(run_command: Run) -> None:
    done = run_command(
        "eval", "a.par", "b.par", "--compare", a=SMALL, b=SMALL.replace("= 2,", "= 4,")
    )
    (head,) = re.findall(r"^ +(a +b)$", done.out.partition("by cause")[0], re.MULTILINE)
    assert head.split() == ["a", "b"]
    (mfu,) = re.findall(r"MFU \(model FLOPs\) +([\d.]+) % +([\d.]+) %", done.out)
    for name, shown in zip("ab", mfu, strict=True):
        (scenario,) = parcost.load(f"{name}.par")
        assert float(shown) == pytest.approx(100 * scenario.evaluate().result.figure("mfu"), 1e-3)
    assert re.search(r"^  TP communication +\S+ m?s .* %  .* %$", done.out, re.MULTILINE)


def test_a_comparison_that_is_too_wide_goes_on_below(run_command: Run) -> None:
    text = SMALL + "".join(f"study a_rather_long_name_{i} {{ }}\n" for i in range(4))
    done = run_command("eval", "a.par", "--compare", a=text)
    assert max(map(len, done.out.splitlines())) <= 80
    for i in range(4):
        assert f"a_rather_long_name_{i}" in done.out


def test_csv_has_every_figure_and_what_claims_say(run_command: Run) -> None:
    claimed = SMALL + "expect {\n mfu >= 1 %\n mfu >= 99 %\n}\n"
    (row,) = csv.DictReader(
        io.StringIO(run_command("eval", "a.par", "--format", "csv", a=claimed).out)
    )
    (scenario,) = parcost.load("a.par")
    result = scenario.evaluate().result
    names = {figure.name for _, figure in (*result.figures, *result.details)}
    assert len(row) >= len(names) > 100
    assert row["claims"] == "2"
    assert row["claims_failed"] == "mfu >= 99 %"


def test_figures_choose_the_columns_of_csv_sweeps_and_rows(run_command: Run) -> None:
    swept = SMALL.replace("tp = 2", "tp = [2, 4]")
    out = run_command("eval", "a.par", "--format", "csv", "--figures", "bubble,mfu", a=swept).out
    assert (
        out.splitlines()[0]
        == "path,name,layout.tp,bubble_fraction,mfu_fraction,verdict,feasible,reason"
    )
    table = run_command("eval", "a.par", "--figures", "headroom,hfu").out
    assert re.search(r"^ +tp +headroom +hfu$", table, re.MULTILINE)
    (scenario,) = parcost.load("a.par")
    report = scenario.evaluate()
    assert list(report.rows(["hfu"])[0]) == ["layout.tp", "hfu", "verdict", "feasible", "reason"]
    with pytest.raises(KeyError, match="did you mean `headroom`"):
        report.rows(["headrom"])


def test_a_figure_that_no_study_has_is_bad_input(run_command: Run) -> None:
    done = run_command("eval", "a.par", "b.par", "--figures", "mfuu,bubble", a=SMALL, b=SMALL)
    assert done.code == 2
    assert "no figure is called `mfuu`; did you mean `mfu`?" in done.err
    assert done.err.count("mfuu") == 1


def test_a_sweep_keeps_bubble_headroom_and_exposed_communication(run_command: Run) -> None:
    swept = SMALL.replace("tp = 2", "tp = 2, pp = [2, 4]").replace("recompute = full", "")
    head = run_command("eval", "a.par", a=swept).out.partition("Results")[2]
    for title in ("bubble", "headroom", "exposed", "mfu", "memory"):
        assert title in head.partition("---")[0]


def test_a_long_sweep_shows_twenty_points_and_says_so(run_command: Run) -> None:
    swept = (
        SMALL.replace("recompute = full", "recompute = full, micro_batch = [1, 2]")
        .replace("tp = 2", "tp = [1, 2, 4], zero = [0, 1, 2]")
        .replace("layout   {", "overlap { bucket = [25 MB, 50 MB] }\nlayout   {")
        .replace("zero = 1, ", "")
    )
    out = run_command("eval", "a.par", a=swept).out
    points = csv.DictReader(io.StringIO(run_command("eval", "a.par", "--format", "csv").out))
    runs = sum(point["feasible"] == "yes" for point in points)
    assert runs > 20
    assert f"{runs - 20} more points" in out
    assert "more points" not in run_command("eval", "a.par", "--full").out


def test_nothing_is_joined_out_of_nothing() -> None:
    assert join_pages([], beside=False, width=80) == []


def test_one_point_more_is_no_points(run_command: Run) -> None:
    swept = SMALL.replace("tp = 2", "tp = [3, 5, 6, 7, 9, 10, 11]")
    out = run_command("eval", "a.par", a=swept).out
    assert "  1 more point: " in out


def test_figures_stay_on_the_page(run_command: Run) -> None:
    lines = run_command("figures", "a.par", a=SMALL).out.splitlines()
    assert len(lines) > 100
    assert max(map(len, lines)) <= 80
    (start,) = (i for i, text in enumerate(lines) if " communication_overhead " in text)
    column = lines[3].index("meaning")
    words = [text[column:].strip() for text in lines[start : start + 4]]
    assert "exposed communication / busy time without it; may exceed" in " ".join(
        words
    )  # no word is torn


def test_figures_are_in_order_of_subject_and_name(run_command: Run) -> None:
    out = run_command("figures", "a.par", a=SMALL).out
    assert out.splitlines()[5].split()[:2] == ["headline"]
    assert out.splitlines()[6].split()[0] == "step_time"
    subjects = re.findall(r"^  (\w\S*)$", out, re.MULTILINE)
    assert subjects == ["headline", *sorted(subjects[1:])]
    for part in re.split(r"^  \w\S*$", out, flags=re.MULTILINE)[2:]:
        names = re.findall(r"^    (\w\S*) ", part, re.MULTILINE)
        assert names == sorted(names)
        assert names


def test_pairs_are_listed_where_no_single_change_is_enough(
    run_command: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    big = SMALL.replace("8b", "70b").replace(", recompute = full", "").replace("zero = 1, ", "")
    out = " ".join(run_command("eval", "a.par", a=big).out.split())
    # No single change is enough: pairs, the first of which a command repeats.
    assert "Changes that fit in memory" in out
    assert "layout.zero = 3, offload.activations = 1" in out
    assert "--set layout.tp=8 --set offload.optimizer=1.0 --set offload.update=device" in out


@pytest.mark.parametrize("columns, width", [("\u00b2", 80), ("00", 80), ("9" * 5000, 1000)])
def test_any_number_of_columns_is_read(
    run_command: Run, monkeypatch: pytest.MonkeyPatch, columns: str, width: int
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    done = run_command("eval", "small.par", small=SMALL)
    assert done.code == 0
    assert "=" * width in done.out.splitlines()


def test_the_bubble_of_the_figures_is_that_of_the_bars(run_command: Run) -> None:
    study = (SEVENTY, "--study", "llama3_70b_64_h100")
    out = run_command("eval", *study).out
    figure = re.search(r"^  pipeline bubble +([\d.]+) %  of the step$", out, re.MULTILINE)
    bar = re.search(r"^  pipeline bubble +[\d.,]+ m?s +([\d.]+) %", out, re.MULTILINE)
    assert figure is not None
    assert bar is not None
    assert round(float(figure[1]), 1) == float(bar[1])
    assert "idle share" not in out
    full = " ".join(run_command("eval", *study, "--full").out.split())
    assert "idle share of the pipeline's makespan" in full
