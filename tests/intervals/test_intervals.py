"""Where measured values lie: factors of the prediction, by the runs that a study is like."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from math import exp, log, sqrt
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import parcost
from parcost import Formula, Interval, Report, SpecError, hookimpl
from parcost.plugins.discovery import load
from parcost_apps.cli import main

from ..rows import mark_most

STUDY = """
use catalog.devices.h100_sxm
use catalog.fabrics.hgx_h100
use catalog.models.llama3_8b
use catalog.precisions.bf16
cluster { devices = 16 }
layout { tp = 2, zero = 1, sequence_parallel = on }
training { sequence = 2048, global_batch = 16 sequences, recompute = full }
"""
#: Factors that no other test has; `widely` is how far a device without runs may be off.
ERRORS = """
family widely { spread = 30 % }
accuracy ours {
  coverage = 90 %
  others = widely
  devices = "v100 h100_sxm"
  observed dense { figure = step_time, model = dense, runs = 40, models = 9, low = 0.5, high = 2 }
  observed hopper {
    figure = step_time, model = dense, family = "hopper", runs = 20, models = 5, low = 0.8, high = 1.25
  }
  observed nemo {
    figure = step_time, model = dense, family = "hopper", framework = "nemo"
    runs = 10, models = 3, low = 0.9, high = 1.1
  }
  observed experts {
    figure = step_time, model = experts, runs = 10, models = 2, low = 0.75, high = 3
  }
  observed memory { figure = memory, runs = 12, models = 6, low = 0.95, high = 1.2 }
}
"""


def evaluate_text(text: str) -> Report:
    (scenario,) = parcost.load_text(text)
    return scenario.evaluate()


def factors(text: str, name: str = "step_time") -> tuple[float, float]:
    result = evaluate_text(text).result
    interval = result.interval(name)
    assert interval is not None
    value = result.figure(name)
    assert interval.coverage == 0.9
    return float(interval.low / value), float(interval.high / value)


def test_an_interval_is_the_prediction_times_the_factors_of_like_runs() -> None:
    assert factors(STUDY + ERRORS) == pytest.approx((0.8, 1.25))
    assert factors(STUDY + ERRORS, "memory") == pytest.approx((0.95, 1.2))


def test_the_narrowest_kind_of_runs_counts() -> None:
    nemo = "use catalog.frameworks.nemo\n" + STUDY + ERRORS
    assert factors(nemo) == pytest.approx((0.9, 1.1))
    other = "use catalog.frameworks.maxtext\n" + STUDY + ERRORS
    assert factors(other) == pytest.approx((0.8, 1.25))
    ampere = (STUDY + ERRORS).replace("devices.h100_sxm", "devices.a100_sxm_80g")
    known = ampere.replace("v100 h100_sxm", "v100 a100_sxm_80g")
    assert factors(known) == pytest.approx((0.5, 2.0))


def test_a_mixture_of_experts_has_factors_of_its_own() -> None:
    text = (STUDY + ERRORS).replace("llama3_8b", "mixtral_8x7b")
    text = text.replace("devices = 16", "devices = 64").replace("tp = 2", "tp = 8")
    assert factors(text) == pytest.approx((0.75, 3.0))


def test_a_device_without_runs_is_less_certain_by_the_spread_of_its_family() -> None:
    text = (STUDY + ERRORS).replace("v100 h100_sxm", "v100 b200")
    width = sqrt(log(1.25) ** 2 + log(1.12) ** 2)  # hopper has 12 %
    assert factors(text) == pytest.approx((exp(-width), exp(width)))
    assert factors(text, "memory") == pytest.approx((0.95, 1.2))


def test_a_device_without_family_is_one_of_the_others() -> None:
    own = "device ours extends h100_sxm { family = widely }\n"
    text = (STUDY + ERRORS).replace("cluster {", f"{own}cluster {{ device = ours, ")
    low, high = (sqrt(log(factor) ** 2 + log(1.3) ** 2) for factor in (0.5, 2.0))
    assert factors(text) == pytest.approx((exp(-low), exp(high)))
    bare = """
use catalog.attention_tables.h100_kernels
device ours {
  memory = 80 GiB, memory_bandwidth = 3 TB/s, bf16 = 900 TFLOPS dense, multiprocessors = 100
  matmul_efficiency = 80 %, memory_efficiency = 90 %, attention = h100_kernels
}
"""
    text = bare + (STUDY + ERRORS).replace("use catalog.devices.h100_sxm\n", "")
    assert factors(text) == pytest.approx((exp(-low), exp(high)))


@pytest.mark.slow
def test_an_interval_of_a_sweep_has_ends_for_each_point() -> None:
    swept = (STUDY + ERRORS).replace("16 sequences", "[16, 32, 64] sequences")
    result = evaluate_text(swept).result
    interval = result.interval("step_time")
    assert interval is not None
    assert interval.low == pytest.approx(0.8 * result.figure("step_time"))
    assert interval.high.shape == (3,)
    assert result.figure("step_time_high") == pytest.approx(interval.high)
    rows = evaluate_text(swept).rows(["step_time", "step_time_low"])
    assert [row["step_time_low"] / row["step_time"] for row in rows] == pytest.approx([0.8] * 3)


def test_every_formula_gives_the_ends() -> None:
    for text in (
        STUDY + ERRORS,
        (STUDY + ERRORS).replace("v100 h100_sxm", "v100 b200"),
    ):
        interval = evaluate_text(text).result.interval("step_time")
        assert interval is not None
        for formula, end in ((interval.formula, interval.low), (interval.upper, interval.high)):
            known = {name: value for name, (value, _) in formula.inputs.items()}
            spelled = formula.text.replace("^", "**").replace("T ", "T * ")
            found = eval(spelled, {"sqrt": sqrt, "ln": log, "exp": exp, **known})
            assert found == pytest.approx(end)


def test_a_range_whose_ends_are_swapped_is_refused() -> None:
    result = evaluate_text(
        STUDY + ERRORS.replace("low = 0.8, high = 1.25", "low = 1.25, high = 0.8")
    ).result
    assert not result.legal
    (found,) = result.diagnostics
    assert found.id == "no-range"
    assert (
        found.message
        == "measured / predicted of `hopper`: `low` is 1.25, which is above `high`, 0.8"
    )


# --- claims -------------------------------------------------------------------------------


def claims(text: str) -> list[bool]:
    return [bool(claim.holds) for claim in evaluate_text(text).result.expectations]


@pytest.mark.slow
def test_a_measured_value_is_claimed_to_lie_in_the_interval() -> None:
    step = float(evaluate_text(STUDY + ERRORS).result.figure("step_time"))
    measured = [0.79 * step, 0.81 * step, 1.24 * step, 1.26 * step]
    said = "".join(f"  step_time = {1e3 * seconds!r} ms within interval\n" for seconds in measured)
    assert claims(f"{STUDY}{ERRORS}expect {{\n{said}}}") == [False, True, True, False]


def test_the_ends_of_an_interval_are_figures() -> None:
    step = float(evaluate_text(STUDY + ERRORS).result.figure("step_time"))
    said = f"expect {{ step_time_high <= {1251 * step!r} ms, step_time_low >= {801 * step!r} ms }}"
    assert claims(STUDY + ERRORS + said) == [True, False]


def test_a_sweep_says_where_the_claim_holds() -> None:
    step = float(evaluate_text(STUDY + ERRORS).result.figure("step_time"))
    said = f"expect {{ step_time = {1e3 * step!r} ms within interval }}"
    swept = (STUDY + ERRORS + said).replace("16 sequences", "[16, 256] sequences")
    (claim,) = evaluate_text(swept).result.expectations
    assert list(claim.holds) == [True, False]


@pytest.mark.parametrize(
    ("claim", "id", "help"),
    [
        ("mfu = 41 % within interval", "no-interval", "`step_time` and `memory` have one"),
        (
            "step_time = 2 s within intervals",
            "missing-tolerance",
            "`step_time = 2 s within interval`",
        ),
        ("step_time = 2 GB within interval", "wrong-dimension", ""),
    ],
)
def test_a_claim_about_no_interval_is_named(claim: str, id: str, help: str) -> None:
    with pytest.raises(SpecError) as raised:
        evaluate_text(f"{STUDY}expect {{ {claim} }}")
    (found,) = raised.value.diagnostics
    assert found.id == id
    assert help in (found.help or "")


# --- what is printed ----------------------------------------------------------------------

Run = Callable[..., Any]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("COLUMNS", raising=False)

    def do(*arguments: str, text: str = STUDY + ERRORS) -> SimpleNamespace:
        (tmp_path / "a.par").write_text(text, encoding="utf-8")
        code = main([arguments[0], "a.par", *arguments[1:]])
        out, err = capsys.readouterr()
        return SimpleNamespace(code=code, out=out, err=err)

    return do


@pytest.mark.slow
def test_the_screen_has_the_interval_beside_the_figure(run: Run) -> None:
    text = STUDY + ERRORS.replace("coverage = 90 %", "coverage = 80 %")
    found = run("eval", text=text)
    step = float(evaluate_text(text).result.figure("step_time"))
    assert f"({800 * step:.0f} to {1250 * step:.0f} ms, 80 %)" in found.out
    assert len(found.out.splitlines()) <= 44
    assert " ".join(found.out.split()).count(", 80 %)") == 2


@pytest.mark.slow
def test_the_whole_report_says_how_it_comes_about(run: Run) -> None:
    said = " ".join(run("eval", "--full").out.split())
    assert "Intervals" in said
    assert " x 0.8 to " in said
    said = " ".join(run("explain", "step_time").out.split())
    assert "low end T low = " in said
    assert "high end T high = " in said
    assert "source measured / predicted of 20 runs of 5 models: dense, hopper" in said


@pytest.mark.slow
def test_json_and_csv_have_both_ends(run: Run) -> None:
    document = json.loads(run("eval", "--format", "json").out)
    figures = document["reports"][0]["results"][0]["figures"]
    step = figures["step_time_seconds"]
    assert step["interval"] == pytest.approx([0.8 * step["value"], 1.25 * step["value"]])
    assert step["coverage"] == 0.9
    assert step["interval_formula"]["inputs"]["low"]["value"] == 0.8
    assert "interval" not in figures["mfu_fraction"]
    head, line = run("eval", "--format", "csv").out.splitlines()
    cells = dict(zip(head.split(","), line.split(","), strict=True))
    assert float(cells["step_time_low_seconds"]) == pytest.approx(step["interval"][0])
    assert float(cells["memory_high_bytes"]) == pytest.approx(
        figures["memory_bytes"]["interval"][1]
    )


@pytest.mark.slow
def test_without_the_plugin_there_is_none(run: Run) -> None:
    found = run("eval", "--without", "analysis.intervals")
    assert found.code == 0
    assert "90 %)" not in found.out


# --- a plugin of a third party ------------------------------------------------------------


def result_with(*intervals: Any) -> Any:
    plugin = SimpleNamespace(figures=hookimpl(lambda: list(intervals)))
    (scenario,) = parcost.load_text(STUDY, plugins=load(("mine", plugin)))
    return scenario.evaluate().result


def interval_of(name: str, **changes: Any) -> Interval:
    given: dict[str, Any] = {"low": 0.3, "high": 0.5, "coverage": 0.5} | changes
    return Interval(name=name, formula=Formula(text="guessed"), **given)


def test_a_plugin_may_say_how_far_its_figure_is_off() -> None:
    result = result_with(interval_of("mfu"))
    assert result.figure("mfu_high") == 0.5
    assert not result.faults


@pytest.mark.parametrize(
    ("interval", "said"),
    mark_most(
        [
            (interval_of("speed"), "there is no such figure"),
            (interval_of("mfu", low="none"), "low = 'none'"),
            (interval_of("mfu", high=float("nan")), "high = nan"),
            (interval_of("mfu", coverage=3.0), "coverage = 3.0"),
            ("mfu", "returned str where Figure or Interval or MissingFigure is expected"),
        ]
    ),
)
def test_a_wrong_interval_is_left_out_and_named(interval: Any, said: str) -> None:
    result = result_with(interval)
    assert any(said in str(fault) for fault in result.faults), result.faults
    assert result.interval("mfu") is None
    assert result.interval("step_time") is not None


# --- edges --------------------------------------------------------------------------------


def test_a_range_may_be_one_number() -> None:
    result = evaluate_text(
        STUDY + ERRORS.replace("low = 0.8, high = 1.25", "low = 1, high = 1")
    ).result
    assert result.legal
    assert factors(STUDY + ERRORS.replace("low = 0.8, high = 1.25", "low = 1, high = 1")) == (1, 1)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("models", "runs", "said"),
    [(1, 3, "3 runs of 1 model: "), (2, 1234, "1,234 runs of 2 models: ")],
)
def test_a_source_counts_models(models: int, runs: int, said: str) -> None:
    counted = ERRORS.replace("runs = 20, models = 5", f"runs = {runs}, models = {models}")
    interval = evaluate_text(STUDY + counted).result.interval("step_time")
    assert interval is not None
    assert interval.formula.source == f"measured / predicted of {said}dense, hopper"


@pytest.mark.parametrize(("experts", "high"), [(0, 1.25), (1, 1.25), (2, 3.0)])
def test_one_expert_is_no_mixture(experts: int, high: float) -> None:
    model = f"model own extends llama3_8b {{ experts = {experts}, top_k = 1, expert_ffn = 4096 }}"
    if not experts:
        model = "model own extends llama3_8b { }"
    text = (STUDY + ERRORS).replace("training {", f"{model}\ntraining {{ model = own,")
    assert factors(text)[1] == pytest.approx(high)


def test_memory_under_a_known_framework_lies_within_twelve_percent() -> None:
    """The page on accuracy, which `validate` writes, says how many of the open runs hold."""
    page = (Path(__file__).parents[2] / "docs" / "accuracy.md").read_text(encoding="utf-8")
    row = r"^\| all rows \|.*\| 96 \| ([\d.]+) % \| ([\d.]+) % \|$"
    ((held, width),) = re.findall(row, page, re.MULTILINE)
    assert float(width) == 12.0
    known = STUDY.replace("cluster {", "use catalog.frameworks.megatron_core\ncluster {")
    (scenario,) = parcost.load_text(known)
    result = scenario.evaluate().result
    assert result.outcome is not None
    memory = float(result.outcome.memory_bytes)
    (interval,) = [one for _, one in result.intervals if one.name == "memory"]
    assert float(interval.low) == pytest.approx(0.88 * memory)
    assert float(interval.high) == pytest.approx(1.12 * memory)
    assert interval.coverage == pytest.approx(float(held) / 100, abs=0.005)
