"""`parcost validate`: what it prints, what it leaves out, and what its exit code says."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable, Iterable
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

import parcost

Raw = Callable[..., dict[str, Any]]
Write = Callable[[Iterable[Any]], Path]
Validate = Callable[..., Any]


@pytest.fixture
def runs(small: Raw, file: Write, predicted: float) -> Path:
    """Return rows of which the errors are -20 %, +10 % and +30 %, of two sources."""
    return file(
        [
            small("a", predicted / 0.8, source_key="one"),
            small("b", predicted / 1.1, source_key="one", core=True),
            small("c", predicted / 1.3, source_key="two"),
        ]
    )


@pytest.mark.slow
def test_the_errors_of_groups(runs: Path, validate: Validate) -> None:
    found = validate(runs, "--format", "json")
    assert found.exit_code == 0, found.output
    document = json.loads(found.stdout)
    whole = document["groups"]["all"]["all"]
    assert whole["n"] == 3
    assert whole["mape"] == pytest.approx(20.0)
    assert whole["median"] == pytest.approx(20.0)
    assert whole["mean"] == pytest.approx(20 / 3, abs=1e-3)
    assert whole["p90"] == pytest.approx(28.0)  # 0.8 of the way from 20 to 30
    one = document["groups"]["source"]["one"]
    assert (one["n"], one["mape"], one["mean"]) == (2, pytest.approx(15.0), pytest.approx(-5.0))
    assert one["worst"] == ["a", "b"]
    assert document["mean_over_sources"]["mape"] == pytest.approx((15 + 30) / 2)
    assert document["groups"]["core"]["core"]["n"] == 1
    assert set(document["groups"]["framework"]) == {"megatron_lm_2021"}
    assert set(document["groups"]["nodes"]) == {"1"}
    assert set(document["groups"]["model"]) == {"dense"}


@pytest.mark.slow
def test_the_baseline_is_fitted_on_the_same_rows(runs: Path, validate: Validate) -> None:
    """The three run at rates of 0.8, 1.1 and 1.3: at the median one takes p / 1.1."""
    document = json.loads(validate(runs, "--format", "json").stdout)
    errors = [0.8 / 1.1 - 1, 0.0, 1.3 / 1.1 - 1]
    baseline = document["groups"]["all"]["all"]["baseline"]
    assert baseline["mape"] == pytest.approx(100 * sum(map(abs, errors)) / 3, abs=1e-3)
    assert baseline["mean"] == pytest.approx(100 * sum(errors) / 3, abs=1e-3)


@pytest.mark.slow
def test_a_configuration_that_was_measured_often_counts_once(
    small: Raw, file: Write, predicted: float, validate: Validate
) -> None:
    twice = {"extra": {"dup_group": "x"}}
    rows = [
        small("a", predicted / 1.4, **twice),
        small("b", predicted / 1.4, **twice),
        small("c", predicted / 1.1),
    ]
    groups = json.loads(validate(file(rows), "--format", "json").stdout)["groups"]
    assert groups["all"]["all"]["mape"] == pytest.approx(30.0)
    assert groups["once"]["once"]["mape"] == pytest.approx(25.0)


@pytest.mark.slow
def test_bad_rows_are_named_and_the_others_scored(
    small: Raw, file: Write, predicted: float, validate: Validate
) -> None:
    rows = [
        small("a", predicted),
        small("b", predicted, parallel__dp=3),
        small("c", predicted / 50),  # a step in a fiftieth of the time
        small("d", predicted, hardware__gpu="Abacus"),
        "{",
    ]
    path = file(rows)
    found = validate(path, "--format", "json")
    assert found.exit_code == 1
    document = json.loads(found.stdout)
    assert document["rows"] == 1
    flaws = {flaw["line"]: flaw for flaw in document["flaws"]}
    assert {line: flaw["kind"] for line, flaw in flaws.items()} == {
        2: "contradictory",
        3: "absurd",
        5: "unreadable",
    }
    assert "MFU" in flaws[3]["reason"]
    (unmodelled,) = document["unmodelled"]
    assert (unmodelled["line"], unmodelled["id"]) == (4, "d")
    assert f"error[contradictory-row]: {path}:2 (`b`): tp 1 x pp 1" in found.stderr
    assert f"error[absurd-row]: {path}:3 (`c`): a step of" in found.stderr


@pytest.mark.slow
def test_rows_that_cannot_be_modelled_are_no_fault_of_the_file(
    small: Raw, file: Write, predicted: float, validate: Validate
) -> None:
    rows = [small("a", predicted), small("b", 1.0, hardware__gpu="Abacus")]
    found = validate(file(rows))
    assert found.exit_code == 0
    assert "1 row that cannot be modeled" in found.stdout
    assert "the device `Abacus` is not one of" in found.stdout


@pytest.mark.slow
def test_a_study_that_breaks_a_rule_is_listed_with_its_reason(
    small: Raw, file: Write, predicted: float, validate: Validate
) -> None:
    """Six heads of one group do not divide over four tensor-parallel ranks."""
    split = {"hardware__gpus": 4, "parallel__tp": 4, "model__heads": 6, "model__kv_heads": 6}
    rows = [small("a", predicted), small("b", 1.0, **split)]
    document = json.loads(validate(file(rows), "--format", "json").stdout)
    (unmodelled,) = document["unmodelled"]
    assert unmodelled["id"] == "b"
    assert "6" in unmodelled["reason"]
    assert "4" in unmodelled["reason"]


@pytest.mark.slow
def test_unknown_fields_are_a_warning(
    small: Raw, file: Write, predicted: float, validate: Validate
) -> None:
    found = validate(file([{**small("a", predicted), "colour": "red"}]))
    assert found.exit_code == 0
    assert "warning[unknown-field]: the unknown field `colour` of 1 rows is ignored" in found.stderr
    assert "Unknown fields (ignored): `colour` (1)." in found.stdout


def test_a_file_that_is_not_there(tmp_path: Path, validate: Validate) -> None:
    found = validate(tmp_path / "none.jsonl")
    assert found.exit_code == 2
    assert "missing-file" in found.stderr


def test_a_file_without_rows(file: Write, validate: Validate) -> None:
    found = validate(file([""]))
    assert found.exit_code == 2
    assert "has no row" in found.stderr


def test_a_file_that_is_none_of_runs_is_one_error(file: Write, validate: Validate) -> None:
    found = validate(file(["[1] log line", " no log line"] * 250))
    assert found.exit_code == 2
    assert found.stdout == ""
    assert "nor a log of nccl-tests" in found.stderr
    assert ":1: the line is not JSON" in found.stderr
    assert "parcost calibrate SPEC --anchor" in found.stderr
    assert len(found.stderr.splitlines()) < 12


@pytest.mark.slow
def test_rows_of_which_none_is_good(small: Raw, file: Write, validate: Validate) -> None:
    for format_ in ("table", "json", "md", "csv", "html"):
        found = validate(file([small("a", 0.0)]), "--format", format_)
        assert found.exit_code == 1
        assert "is 0, but it must be above 0" in found.stderr
        assert "Traceback" not in found.stderr


@pytest.mark.slow
def test_specs_are_written_and_are_what_was_evaluated(
    runs: Path, tmp_path: Path, predicted: float, validate: Validate
) -> None:
    folder = tmp_path / "specs"
    assert validate(runs, "--write-specs", folder).exit_code == 0
    assert sorted(path.name for path in folder.iterdir()) == ["a.par", "b.par", "c.par"]
    (scenario,) = parcost.load(folder / "a.par")
    assert scenario.evaluate().result.figure("step_time") == pytest.approx(predicted)
    assert "# Assumed: layer norms" in (folder / "a.par").read_text()


@pytest.mark.slow
def test_a_row_for_each_line_of_csv(runs: Path, predicted: float, validate: Validate) -> None:
    found = validate(runs, "--format", "csv")
    lines = [*csv.DictReader(StringIO(found.stdout))]
    assert [line["id"] for line in lines] == ["a", "b", "c"]
    assert float(lines[0]["predicted_seconds"]) == pytest.approx(predicted)
    assert float(lines[2]["error_percent"]) == pytest.approx(30.0)


@pytest.mark.slow
def test_the_table_and_its_picture(runs: Path, validate: Validate) -> None:
    found = validate(runs, "--worst", "1")
    text = found.stdout
    assert "Predicted against measured: 3 runs of 2 sources" in text
    assert "+30 to +40 %" in text
    assert "=====" in text
    worst = text.partition("Worst rows")[2].partition("Left out")[0]
    assert "c " in worst
    assert "+30.0 %" in worst
    assert "-20.0 %" not in worst


@pytest.mark.slow
def test_markdown_has_tables(runs: Path, validate: Validate) -> None:
    text = validate(runs, "--format", "md").stdout
    assert "# Predicted against measured: 3 runs of 2 sources" in text
    assert "| all rows | 3 | 20.0 % | 20.0 % | +6.7 % | 28.0 % |" in text


@pytest.mark.slow
def test_html_holds_a_picture_with_a_dot_for_each_row(runs: Path, validate: Validate) -> None:
    text = validate(runs, "--format", "html").stdout
    (drawing,) = re.findall(r'<script type="application/json">(.*)</script>', text)
    assert json.loads(drawing)["fields"]["error"]["values"][2:] == ["-20.0 %", "+10.0 %", "+30.0 %"]
    assert '<td class="left">all rows</td>' in text


@pytest.mark.slow
def test_names_in_html_are_text(
    small: Raw, file: Write, predicted: float, validate: Validate
) -> None:
    row = small("<script>alert(1)</script>", predicted, source_key="<b>")
    text = validate(file([row]), "--format", "html").stdout
    assert "<script>alert" not in text
    assert "<b>" not in text


@pytest.mark.slow
def test_rows_are_selected(runs: Path, validate: Validate) -> None:
    def ids(*conditions: str) -> list[str]:
        options = [part for text in conditions for part in ("--select", text)]
        found = validate(runs, "--format", "json", *options)
        return [one["id"] for one in json.loads(found.stdout)["runs"]]

    assert ids("source_key=one") == ["a", "b"]
    assert ids("id=a,C") == ["a", "c"]
    assert ids("source_key!=o*") == ["c"]
    assert ids("source_key=one", "core=true") == ["b"]
    assert ids("batch.global>=1", "framework=megatron*") == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("condition", "reason"),
    [
        ("source_key", "`source_key` is not a condition"),
        ("sourcekey=one", "did you mean `source_key`?"),
        ("hardware.gpus>many", "the value in `hardware.gpus>many` is not a number"),
        ("source_key=three", "none of 3 rows matches"),
    ],
)
def test_a_condition_that_selects_nothing(
    condition: str, reason: str, runs: Path, validate: Validate
) -> None:
    found = validate(runs, "--select", condition)
    assert found.exit_code == 2
    assert reason in found.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    ("limit", "code"),
    [
        ("mape > 19 %", 1),
        ("mape > 21 %", 0),
        ("mape of one > 16 %", 0),
        ("p90 of two >= 29.9 %", 1),
        ("mean < 0 %", 0),
        ("rejected > 1 %", 0),
    ],
)
def test_a_limit_fails_the_command(limit: str, code: int, runs: Path, validate: Validate) -> None:
    found = validate(runs, "--fail-over", limit)
    assert found.exit_code == code
    assert (f"error[over-the-limit]: {limit}" in found.stderr) == bool(code)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("limit", "reason"),
    [
        ("mape", "`mape` is not a limit"),
        ("mape > 10", "the limit of `mape` is a percentage; write `10 %`"),
        ("mape of three > 10 %", "there is no such figure; groups are all"),
        ("memory mape > 10 %", "there is no such figure"),
        ("regret > 1 %", "there is no such figure"),
    ],
)
def test_a_limit_about_nothing(limit: str, reason: str, runs: Path, validate: Validate) -> None:
    found = validate(runs, "--fail-over", limit)
    assert found.exit_code == 2
    assert reason in found.stderr


@pytest.mark.slow
def test_layouts_of_one_model_are_ranked(small: Raw, file: Write, validate: Validate) -> None:
    """Four micro-batches of one model, measured in the order that is predicted but for two."""
    base = {"batch__global": 256, "batch__grad_accum": None}
    rows = [small(f"r{micro}", 1e4, **base, batch__micro=micro) for micro in (1, 4, 16, 64)]
    first = json.loads(validate(file(rows), "--format", "json").stdout)
    order = sorted(first["runs"], key=lambda one: one["predicted_seconds"])
    seconds = {one["id"]: float(place + 10) for place, one in enumerate(order)}
    seconds[order[0]["id"]], seconds[order[1]["id"]] = 11.0, 10.0
    for row in rows:
        row["measured"]["step_time_s"] = 1000 * seconds[row["id"]]
    ranking = json.loads(validate(file(rows), "--format", "json").stdout)["ranking"]
    assert ranking["groups"] == 1
    assert ranking["regret"] == pytest.approx(10.0)  # 11 s in place of 10
    assert ranking["pairs"] == pytest.approx(100 * 5 / 6, abs=1e-4)


@pytest.mark.slow
def test_memory_is_scored_by_what_was_measured(
    small: Raw, file: Write, predicted: float, validate: Validate
) -> None:
    rows = [small("a", predicted), small("b", predicted)]
    rows[0]["notes"] = "Memory is an nvidia-smi reading."
    rows[1]["extra"] = {"peak_memory_gib": 3.0}
    for row in rows:
        row["measured"]["memory_gb"] = 1.0
    first = json.loads(validate(file(rows), "--format", "json").stdout)
    device, reserved = (one["predicted_memory_bytes"] for one in first["runs"])
    assert reserved < device  # which holds what the allocator does not see, too
    rows[0]["measured"]["memory_gb"] = device / 1e9 / 0.9
    rows[1]["measured"]["memory_gb"] = reserved / 1e9 / 1.2
    document = json.loads(validate(file(rows), "--format", "json").stdout)
    assert document["memory"]["device"]["mean"] == pytest.approx(-10.0)
    assert document["memory"]["reserved"]["mean"] == pytest.approx(20.0)
    assert document["groups"]["all"]["all"]["memory"]["mape"] == pytest.approx(15.0)


@pytest.mark.slow
def test_a_run_predicted_not_to_fit_is_counted(small: Raw, file: Write, validate: Validate) -> None:
    """Two hundred layers of 3072 in fp16 take 450 GB of state on one device."""
    found = validate(file([small("a", 1e3, model__layers=200)]), "--format", "json")
    document = json.loads(found.stdout)
    assert document["rejected"] == ["a"]
    assert document["groups"]["all"]["all"]["rejected"] == 1


@pytest.mark.slow
def test_values_from_outside_hold_for_every_study(
    runs: Path, predicted: float, validate: Validate
) -> None:
    found = validate(runs, "--format", "json", "--set", "kernels.memory_bound=off")
    for one in json.loads(found.stdout)["runs"]:
        assert one["predicted_seconds"] < predicted


@pytest.mark.slow
def test_the_rows_that_ship_are_read_without_a_path(validate: Validate) -> None:
    found = validate("--select", "id=titan-none")
    assert found.exit_code == 2
    assert "none of 726 rows matches" in found.stderr


@pytest.mark.slow
def test_several_processes_find_the_same(runs: Path, validate: Validate) -> None:
    alone, many = (validate(runs, "--format", "json", *o) for o in ([], ["--jobs", "2"]))
    assert many.exit_code == 0
    assert many.stdout == alone.stdout
