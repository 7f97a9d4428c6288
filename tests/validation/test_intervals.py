"""Ranges of measured / predicted by kind of run, worked out by hand, and how often they hold."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterable
from hashlib import sha256
from io import StringIO
from math import exp
from pathlib import Path
from typing import Any

import pytest

import parcost
from parcost_apps.cli import main
from parcost_measured.validation import intervals
from parcost_measured.validation.intervals import (
    FOLDS,
    LEVELS,
    Coverage,
    Range,
    Ranges,
    Ratio,
    _coverage_error,
    _folds,
    _samples,
    coverage_of,
    cross_validate,
    ranges,
    ranges_at,
    shortest_range,
    to_block,
)
from parcost_plugins.vocabulary import Accuracy

Raw = Callable[..., dict[str, Any]]
Write = Callable[[Iterable[Any]], Path]
Validate = Callable[..., Any]

STEP, MEMORY = LEVELS["step_time"], LEVELS["memory"]
NEMO = ("dense", "hopper", "nemo")


def ratios(values: Iterable[float], kind: Any = NEMO, models: int = 0) -> list[Ratio]:
    """Runs of so many models in turn, or each of one of its own."""
    return [
        Ratio(model=f"m{i % models if models else i}", kind=kind, value=value)
        for i, value in enumerate(values)
    ]


def ranges_of(share: float, found: list[Ratio], levels: Any = STEP) -> dict[Any, Range]:
    return ranges_at(share, _samples(found, levels))


def test_the_shortest_range_that_holds_a_share() -> None:
    values = [0.0, 5.0, 6.0, 6.5, 7.0, 20.0]
    assert shortest_range(values, 0.5) == (6.0, 7.0)  # three of six: 1 wide, and any other is wider
    assert shortest_range(values, 4 / 6) == (5.0, 7.0)
    assert shortest_range(values, 1.0) == (0.0, 20.0)
    assert shortest_range([3.0], 0.9) == (3.0, 3.0)
    assert shortest_range([1.0, 2.0, 4.0], 0.3) == (1.0, 1.0)


def test_a_range_holds_the_prediction() -> None:
    """All runs took 10 to 29 % longer than predicted: the low end is the prediction."""
    found = ranges_of(0.9, ratios(1.1 + i / 100 for i in range(20)))
    assert found[NEMO].low == 1.0
    # 18 of 20 runs: the shortest 18 in logarithms are the last ones
    assert found[NEMO].high == pytest.approx(1.29)


def test_few_models_borrow_from_the_kind_around() -> None:
    """Ten runs of two models at 1.5, and 30 of 30 models around them at 0.9."""
    found = ranges_of(
        0.8, ratios([0.9] * 30, ("dense", "ampere", "x")) + ratios([1.5] * 10, NEMO, 2)
    )
    # of all 40 runs 75 % are at 0.9 and 25 % at 1.5: four in five are in no shorter range
    around = found["dense", "", ""]
    assert (around.low, around.high) == pytest.approx((0.9, 1.5))
    # of hopper: 2 / 12 are its own, and a quarter of 10 / 12 are its own as well: 3 / 8 in all
    # of NEMO: 2 / 12 and 3 / 8 of 10 / 12 are 23 / 48, 48 % at 1.5
    assert (found[NEMO].models, found[NEMO].runs) == (2, 10)
    assert (found[NEMO].low, found[NEMO].high) == pytest.approx((0.9, 1.5))
    less = ranges_of(
        0.47, ratios([0.9] * 30, ("dense", "ampere", "x")) + ratios([1.5] * 10, NEMO, 2)
    )
    more = ranges_of(
        0.53, ratios([0.9] * 30, ("dense", "ampere", "x")) + ratios([1.5] * 10, NEMO, 2)
    )
    assert (less[NEMO].low, less[NEMO].high) == pytest.approx((0.9, 1.0))
    assert (more[NEMO].low, more[NEMO].high) == pytest.approx((0.9, 1.5))


def test_a_kind_of_few_runs_is_the_one_around() -> None:
    others = ratios((exp((i - 50) / 100) for i in range(101)), ("dense", "ampere", "x"))
    found = ranges_of(0.8, others + ratios([0.5] * 9, NEMO))
    assert NEMO not in found
    assert ("dense", "hopper", "") not in found
    assert ranges_of(0.8, others + ratios([0.5] * 10, NEMO))[NEMO].runs == 10


def test_mixtures_never_count_as_dense() -> None:
    mixed = ratios([2.0, 3.0], ("experts", "ampere", "x"), models=2)
    found = ranges_of(0.8, ratios([1.0] * 30) + mixed)
    assert found["experts", "", ""].low == 1.0
    assert found["experts", "", ""].high == pytest.approx(3.0)


def test_a_model_is_judged_by_the_other_folds() -> None:
    """All runs of a model lie in its fold, and its ratio in no range that judges it."""
    found = ratios((float(i) for i in range(1, 41)), ("any", "", ""))
    assert {one.fold for one in found} == set(range(FOLDS))
    for one, judged in cross_validate(0.9, _folds(found, MEMORY), MEMORY):
        others = [other.value for other in found if other.fold != one.fold]
        # nine in ten of those: the shortest range in logarithms is the upper one
        assert judged.runs == len(others)
        assert judged.high == pytest.approx(max(others))
        assert judged.low == 1.0


def test_the_share_is_that_at_which_models_left_out_hold_nine_in_ten() -> None:
    found = ranges(ratios((exp((i - 100) / 200) for i in range(201)), ("any", "", "")), "memory")
    assert found is not None
    assert found.left_out.n == 201
    assert found.left_out.share == pytest.approx(0.9, abs=0.02)
    # nine in ten of an even spread from e^-0.5 to e^0.5: 0.9 wide in logarithms
    whole = found.by_kind["any", "", ""]
    assert whole.high / whole.low == pytest.approx(exp(0.9), rel=0.05)


def test_runs_of_one_model_say_nothing_of_others() -> None:
    assert ranges(ratios([1.0, 1.1, 0.9], models=1), "step_time") is None
    assert ranges([], "memory") is None


def test_the_fold_of_a_model_is_the_end_of_the_hash_of_its_name() -> None:
    for name in ("GPT", "BERT", "m1", "m2"):
        end = sha256(name.encode()).digest()[-1] % 8
        assert Ratio(model=name, kind=NEMO, value=1.0).fold == end


def test_the_first_of_shares_that_hold_as_many_is_taken() -> None:
    found = ranges(ratios([1.0] * 40), "step_time")
    assert found is not None
    assert (found.share, found.left_out.share, found.left_out.half_width) == (0.8, 1.0, 0.0)


def test_half_of_a_range() -> None:
    one = Range(kind=NEMO, runs=1, models=1, low=0.7, high=1.5)
    assert one.half_width == pytest.approx(0.4)
    assert [one.holds(value) for value in (0.69, 0.7, 1.0, 1.5, 1.51)] == [
        False, True, True, True, False
    ]  # fmt: skip
    assert coverage_of([True, False], [0.1, 0.3]) == Coverage(n=2, share=0.5, half_width=0.2)
    assert coverage_of([], []) is None


BLOCK = """\
# Errors of predictions for the open runs; `parcost validate --intervals FILE` wrote this file.
# Cross-validation in 8 folds of models: the step time of 87.5 % of 1,200 runs is inside its interval, \
median half-width 12.5 %; the memory of 100.0 % of 9 runs is inside its interval, median half-width 20.0 %.
# Low and high are factors of the prediction.
use catalog.families.other

accuracy our_runs @S {
  coverage = 90 %
  others   = other
  devices  = "a100 h100"
  observed step_time_dense @S {
    figure = step_time
    model  = dense
    runs   = 30
    models = 5
    low    = 0.800
    high   = 1.250
  }
  observed step_time_dense_hopper_nemo @S {
    figure    = step_time
    model     = dense
    family    = "hopper"
    framework = "nemo"
    runs      = 10
    models    = 2
    low       = 0.800
    high      = 1.300
  }
  observed memory_any @S {
    figure = memory
    model  = any
    runs   = 9
    models = 3
    low    = 0.900
    high   = 1.000
  }
}
"""


def test_ranges_as_a_file_of_the_catalogue() -> None:
    """A kind that has the range of the kind around it is left out, and so is a rare device."""

    def range_of(kind: Any, runs: int, models: int, low: float, high: float) -> Range:
        return Range(kind=kind, runs=runs, models=models, low=low, high=high)

    def all_of(n: int, share: float, half: float, *found: Range) -> Ranges:
        left = Coverage(n=n, share=share, half_width=half)
        return Ranges(share=0.9, by_kind={one.kind: one for one in found}, left_out=left)

    steps = all_of(
        1200,
        0.875,
        0.125,
        range_of(("dense", "", ""), 30, 5, 0.8, 1.25),
        range_of(("dense", "hopper", ""), 20, 4, 0.8, 1.25),
        range_of(NEMO, 10, 2, 0.8, 1.3),
    )
    memory = all_of(9, 1.0, 0.2, range_of(("any", "", ""), 9, 3, 0.9, 1.0))
    devices = {"h100": 5, "a100": 6, "b200": 4}
    spreads = {"dense": {"jobs": "7", "margin": "1.3"}}
    text = to_block("our_runs", {"step_time": steps, "memory": memory}, devices, spreads)
    block = BLOCK.replace("@S", intervals._SOURCE)
    jobs = f"  job_spread jobs_dense {intervals._JOBS} {{\n"
    jobs += "    model  = dense\n    jobs   = 7\n    margin = 1.3\n  }\n"
    assert text == block.removesuffix("}\n") + jobs + "}\n"


# --- the command --------------------------------------------------------------------------


@pytest.fixture
def runs(small: Raw, file: Write, predicted: float) -> Path:
    """Return ten rows of ten models: nine near the prediction, and one at three times it."""
    rows = [
        small(f"r{i}", predicted * (3.0 if i == 9 else 1.0 + i / 100), model__name=f"GPT {i}")
        for i in range(10)
    ]
    return file(rows)


@pytest.mark.slow
def test_coverage_is_the_share_of_rows_in_their_intervals(runs: Path, validate: Validate) -> None:
    document = json.loads(validate(runs, "--format", "json").stdout)
    found = document["groups"]["all"]["all"]["interval"]
    # 24 runs of Megatron-LM ship, and none of them was three times as long as predicted
    assert found["n"] == 10
    assert found["coverage"] < 100.0
    row = next(one for one in document["runs"] if one["id"] == "r9")
    assert row["held"] is False
    inside = [one for one in document["runs"] if one["held"]]
    for one in inside:
        low, high = one["predicted_seconds_low"], one["predicted_seconds_high"]
        assert low <= one["measured_seconds"] <= high
    assert found["coverage"] == 100.0 * len(inside) / 10
    width = (row["predicted_seconds_high"] - row["predicted_seconds_low"]) / 2
    assert found["half_width"] == pytest.approx(100 * width / row["predicted_seconds"], abs=1e-3)
    assert document["intervals_left_out"]["step_time"]["n"] == 10
    assert "intervals" in validate(runs, "--format", "html").stdout


@pytest.mark.slow
def test_a_table_of_groups_says_how_often_intervals_hold(runs: Path, validate: Validate) -> None:
    found = validate(runs).stdout
    part = found.partition("90 % intervals")[2]
    assert "in 8 folds of models" in part
    assert "half-width" in part
    (head, *lines) = csv.reader(StringIO(validate(runs, "--format", "csv").stdout))
    held = [line[head.index("held")] for line in lines]
    assert held[9] == "no"


@pytest.mark.slow
def test_a_limit_may_be_about_intervals(runs: Path, validate: Validate) -> None:
    assert validate(runs, "--fail-over", "coverage < 1 %").exit_code == 0
    broken = validate(runs, "--fail-over", "coverage of dense < 100 %")
    assert broken.exit_code == 1
    assert "coverage of dense < 100 %" in broken.stderr
    assert validate(runs, "--fail-over", "half-width > 0.1 %").exit_code == 1
    missing = validate(runs, "--fail-over", "memory coverage < 50 %")
    assert missing.exit_code == 2
    assert "there is no such figure" in missing.stderr


@pytest.mark.slow
def test_the_ranges_of_own_rows_take_the_place_of_the_catalogue(
    runs: Path, validate: Validate, tmp_path: Path
) -> None:
    path = tmp_path / "our_runs.par"
    done = validate(runs, "--intervals", path)
    assert done.exit_code == 0
    assert main(["fmt", "--check", str(path)]) == 0
    study = tmp_path / "a.par"
    study.write_text(
        'use "our_runs.par"\n'
        "use catalog.devices.a100_sxm_80g\nuse catalog.fabrics.dgx_a100\n"
        "use catalog.models.gpt3_1_3b\nuse catalog.precisions.fp16\n"
        "cluster { devices = 1 }\ntraining { sequence = 2048, global_batch = 1 sequences }\n",
        encoding="utf-8",
    )
    (scenario,) = parcost.load(study)
    result = scenario.evaluate().result
    found = result.interval("step_time")
    assert found is not None
    assert "10 runs of 10 models" in found.formula.source
    # nine of ten are held, and the shortest range of nine ends at the ninth
    assert found.high / result.figure("step_time") == pytest.approx(1.08, abs=1e-3)
    assert result.study.all(Accuracy)
    # a hundred and more runs made the catalogue's; these are on a device with ten
    assert "u" not in found.formula.inputs


@pytest.mark.slow
@pytest.mark.parametrize("name", ["runs.json", "our-runs.par", "2runs.par"])
def test_a_file_that_no_study_can_import_is_refused(
    runs: Path, validate: Validate, tmp_path: Path, name: str
) -> None:
    found = validate(runs, "--intervals", tmp_path / name)
    assert found.exit_code == 2
    assert "our_runs.par" in found.stderr
    assert not (tmp_path / name).exists()


@pytest.mark.slow
def test_ranges_need_several_models(
    small: Raw, file: Write, predicted: float, validate: Validate, tmp_path: Path
) -> None:
    path = tmp_path / "one.par"
    found = validate(file([small("a", predicted)]), "--intervals", path)
    assert found.exit_code == 2
    assert "several models" in found.stderr
    assert not path.exists()


@pytest.mark.slow
def test_without_the_plugin_rows_are_scored_all_the_same(runs: Path, validate: Validate) -> None:
    found = validate(runs, "--without", "analysis.intervals", "--format", "json")
    whole = json.loads(found.stdout)["groups"]["all"]["all"]
    assert (whole["n"], whole["interval"]) == (10, None)


def test_the_folds_and_the_coverage_are_those_that_are_documented() -> None:
    page = (Path(__file__).parents[2] / "docs" / "validation.md").read_text(encoding="utf-8")
    assert f"{FOLDS} folds" in page
    assert f"{100 * intervals.COVERAGE:g} % of rows" in page
    assert f"fewer than {intervals.FEWEST_RUNS} rows" in page
    assert f"from {intervals.FEWEST_OF_DEVICE} rows on" in page


def test_a_coverage_that_is_closer_by_less_than_a_run_is_no_better() -> None:
    """86 and 87 of 96 runs miss 86.4 by 0.4 and 0.6: the narrower ranges are chosen."""
    wide = Coverage(n=96, share=86 / 96, half_width=0.176)
    narrow = Coverage(n=96, share=87 / 96, half_width=0.124)
    closest = min(_coverage_error(one) for one in (wide, narrow))
    assert closest == _coverage_error(narrow) == (0, 0.124)
    far = Coverage(n=96, share=85 / 96, half_width=0.1)  # by 1.4 runs
    assert _coverage_error(far) > _coverage_error(wide)
