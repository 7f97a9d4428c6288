"""Reports of sweeps: rows, points that cannot run, claims and limits."""

from __future__ import annotations

import csv
import io
import json
import re
import shlex

import pytest

from .command_specs import BUCKETS, GOOD, SWEPT, Run

pytestmark = pytest.mark.slow


def test_a_sweep_shows_a_row_for_each_point_and_why_some_cannot_run(run: Run) -> None:
    done = run("eval", "a.par", a=SWEPT)
    assert done.code == 0
    assert "3 of 4 points are valid and fit in memory." in done.out
    costs, _, rejected = done.out.partition("Excluded points")
    assert re.findall(r"^ +([124])  +[\d.]+ s ", costs, re.MULTILINE) == ["1", "2", "4"]
    assert re.search(r"^ +3  .*divisible", rejected, re.MULTILINE)
    assert "error" not in done.err


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
    (options,) = re.findall(r"Full report of one point: ((?:--set (?:'[^']*'|\S+) ?)+)", flowing)
    one = run("eval", "a.par", "--full", *shlex.split(options))
    assert "Levers" in one.out


def test_a_sweep_of_a_let_has_no_option_for_a_point(run: Run) -> None:
    text = "let degree = [1, 2]\n" + GOOD.replace("tp = 2", "tp = degree")
    done = run("explain", "a.par", "step_time", a=text)
    assert done.err.endswith("choose one, such as one value of `degree` in the file\n")


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
    assert re.search(r"is false \(at (tp = \d|2 of 3 points that run, such as )", between.err)
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
    assert "warning: sequence parallelism has no effect: tp is 1 (at tp = 1)" in one
    swept = GOOD.replace("tp = 2", "tp = [1, 2, 4]").replace("32 seq", "[32, 64] seq")
    several = " ".join(run("eval", "b.par", b=swept).out.split())
    assert "tp is 1 (at 2 of 6 points, such as tp = 1, global_batch = " in several
    every = " ".join(run("eval", "c.par", c=swept.replace("tp = [1, 2, 4]", "tp = 1")).out.split())
    assert "sequence parallelism has no effect: tp is 1 " in every
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


def test_a_sweep_that_is_bound_point_by_point_has_a_limit(run: Run) -> None:
    """What decides how many stages there are costs an evaluation a point."""
    done = run("eval", "a.par", "--set", "layout.pp=range(1, 20000)", a=GOOD)
    assert done.code == 2
    assert "error[too-many-points]: the sweeps have 20,000 points" in done.err
    assert "limit is 10,000" in done.err
    assert "every value of `layout.pp` is evaluated separately" in done.err


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
