"""Anchors in a study: which count, what they change, and that nothing else does."""

from __future__ import annotations

from collections.abc import Callable
from math import exp, log
from pathlib import Path
from typing import Any

import pytest

import parcost
from parcost import Report, Session
from parcost.contract.importers import ImportOptions
from parcost_plugins.physics.anchor_causes import step_parts
from parcost_plugins.physics.anchoring import Comparison, _other_job, find_anchoring

STUDY = """
use catalog.devices.h100_sxm
use catalog.devices.a100_sxm_80g
use catalog.fabrics.hgx_h100
use catalog.models.llama3_8b
use catalog.precisions.bf16
use catalog.families.other
cluster { devices = 16, device = h100_sxm }
layout { tp = 2, zero = 1, sequence_parallel = on }
training { sequence = 2048, global_batch = 16 sequences, recompute = full }
accuracy ours {
  coverage = 90 %, others = other
  job_spread dense { model = dense, jobs = 9, layouts = 40, between = 0.3, within = 0.1, margin = 2 }
}
"""
FOUR = {"layout.tp": "4"}


def evaluate(text: str, settings: dict[str, str] | None = None) -> Report:
    (scenario,) = parcost.load_text(STUDY + text)
    return scenario.replace(settings or {}).evaluate()


def compare(text: str, settings: dict[str, str] | None = None) -> list[Comparison]:
    found = find_anchoring(evaluate(text, settings).result.study)
    assert found is not None
    return [*found.compared]


def seconds(settings: dict[str, str] | None = None) -> float:
    return float(evaluate("", settings).result.figure("step_time"))


def anchor(ratio: float, settings: str = "", name: str = "a", **run: str) -> str:
    """Return an anchor whose run took *ratio* times what is predicted of it."""
    measured = ratio * seconds({path.replace("_", ".", 1): value for path, value in run.items()})
    return f'anchor {name} {{ step_time = {measured!r} s, settings = "{settings}" }}\n'


@pytest.mark.slow
def test_an_anchor_moves_another_layout_by_its_weight_and_not_the_catalogue() -> None:
    result = evaluate(anchor(1.2), FOUR).result
    catalogue = seconds(FOUR)
    assert result.figure("step_time") == catalogue
    # w = 0.09 / (0.09 + 0.01) = 0.9
    assert result.figure("anchored_step_time") == pytest.approx(catalogue * exp(0.9 * log(1.2)))
    interval = result.interval("anchored_step_time")
    assert interval is not None
    assert interval.coverage == 0.9
    sd = (0.01 + 0.01 * 0.09 / 0.1) ** 0.5
    assert interval.high / catalogue == pytest.approx(exp(0.9 * log(1.2) + 2 * sd))


@pytest.mark.slow
def test_figures_of_the_step_time_say_that_they_are_not_anchored() -> None:
    run = "run { tokens = 1e12 }\nprice { device_hour = 2 USD/h }\n"
    said = "at the step time from the catalogue"
    for text, is_said in ((run + anchor(1.2), True), (run, False)):
        result = evaluate(text, FOUR).result
        notes = {one.name: one.brief or one.note for _, one in result.figures}
        speeds = ["flops_per_device", "tokens_per_second", "tokens_per_second_per_device"]
        for name in ["days", "cost", "mfu", "hfu", *speeds]:
            assert (said in notes[name]) == is_said, name
        step = result.figure("step_time")
        assert result.figure("tokens_per_second") == pytest.approx(16 * 2048 / step)


@pytest.mark.slow
def test_values_from_outside_do_not_change_what_an_anchor_is_compared_with() -> None:
    text = anchor(1.2)
    (written,) = compare(text)
    (changed,) = compare(text, {"layout.tp": "4", "training.recompute": "none"})
    assert written == changed
    assert written.predicted == seconds()


def test_without_anchors_no_figure_is_anchored() -> None:
    result = evaluate("").result
    assert "anchored_step_time" not in {figure.name for _, figure in result.figures}


@pytest.mark.slow
def test_repeats_of_one_layout_are_one_anchor() -> None:
    once = evaluate(anchor(1.2)).result.figure("anchored_step_time")
    twice = anchor(1.19, name="a") + anchor(1.21, "layout.tp = 2", name="b") + anchor(1.2, name="c")
    assert evaluate(twice).result.figure("anchored_step_time") == pytest.approx(once, rel=1e-9)


@pytest.mark.slow
def test_anchors_of_two_layouts_count_as_two() -> None:
    text = anchor(1.2) + anchor(1.1, "layout.tp = 4", "b", layout_tp="4")
    found = find_anchoring(evaluate(text).result.study)
    assert found is not None
    assert found.step.layouts == 2
    assert found.step.weight == pytest.approx(0.18 / 0.19)


@pytest.mark.parametrize(
    ("text", "settings", "reason"),
    [
        ("anchor { step_time = 0.3 s }", {"cluster.device": "a100_sxm_80g"}, "of another device"),
        ("anchor { step_time = 0.3 s }", {"llama3_8b.layers": "16"}, "of another model: `layers`"),
        ('anchor { step_time = 0.3 s, job = "model.layers = 40" }', {}, "`model.layers` was 40"),
        ('anchor { step_time = 0.3 s, job = "device = b200" }', {}, "`device` was b200"),
        ('anchor { step_time = 0.3 s, job = "size = 4" }', {}, "`job` has `size`"),
        ("anchor { step_time = 0.01 s }", {}, "is an MFU of"),
        ("anchor { step_time = 300 s }", {}, "times the prediction of"),
        ("anchor { tokens_per_second_per_device = 1e6 }", {}, "is an MFU of"),
        ('anchor { step_time = 0.3 s, settings = "layout.tp = 3" }', {}, "the run is invalid: "),
        ('anchor { step_time = 0.3 s, settings = "layout.tp" }', {}, "is not `NAME = VALUE`"),
        ('anchor { step_time = 0.3 s, settings = "layout.tq = 3" }', {}, "no attribute"),
        ("anchor { step_time = 0.3 s, predicted = 0.2 s }", {}, "by its own spec"),
    ],
)
def test_an_anchor_of_another_job_weighs_nothing(
    text: str, settings: dict[str, str], reason: str
) -> None:
    result = evaluate(text, settings).result
    found = find_anchoring(result.study)
    assert found is not None
    (only,) = found.compared
    assert reason in only.reason
    assert found.step.weight == 0.0
    assert result.figure("anchored_step_time") == result.figure("step_time")
    assert result.interval("anchored_step_time") is None


@pytest.mark.slow
def test_repeats_that_contradict_each_other_weigh_nothing() -> None:
    first, second = compare(anchor(1.0) + anchor(1.4, name="b"))
    assert "one layout took" in first.reason
    assert first.reason == second.reason


@pytest.mark.slow
def test_layouts_that_contradict_each_other_weigh_nothing() -> None:
    text = anchor(0.7) + anchor(1.5, "layout.tp = 4", "b", layout_tp="4")
    assert all("is 0.70 to 1.50" in one.reason for one in compare(text))
    text += anchor(0.72, "layout.tp = 1", "c", layout_tp="1")
    reasons = [one.reason for one in compare(text)]
    assert reasons[0] == reasons[2] == ""
    assert "2.08 times the value of the others" in reasons[1]


@pytest.mark.slow
def test_layouts_that_differ_in_their_mix_get_a_factor_by_cause() -> None:
    runs = {tp: {"layout.tp": tp} for tp in ("1", "2", "4", "8")}
    slow_network = {}
    for tp, settings in runs.items():
        outcome = evaluate("", settings).result.outcome
        assert outcome is not None
        parts = {name: float(part) for name, part in step_parts(outcome).items()}
        assert sum(parts.values()) == pytest.approx(float(outcome.step_seconds))
        slow_network[tp] = parts["compute"] + 2 * parts["network"] + parts["host"]
    text = "".join(
        f'anchor tp{tp} {{ step_time = {slow_network[tp]!r} s, settings = "layout.tp = {tp}" }}\n'
        for tp in ("1", "2", "4")
    )
    result = evaluate(text, runs["8"]).result
    found = find_anchoring(result.study)
    assert found is not None
    assert found.causes is not None
    assert found.causes.factors["network"] > 1.25
    assert found.causes.factors["compute"] == pytest.approx(1.0, abs=0.15)
    by_cause = result.figure("anchored_step_time")
    one_factor = result.figure("step_time") * exp(found.step.shift)
    assert abs(by_cause - slow_network["8"]) < 0.8 * abs(one_factor - slow_network["8"])
    interval = result.interval("anchored_step_time")
    assert interval is not None
    assert interval.low < slow_network["8"] < interval.high


def test_memory_is_anchored_by_what_was_reserved_beyond_the_prediction() -> None:
    plain = evaluate("").result
    reserved = plain.figure("reserved_memory")
    text = f"anchor {{ reserved = {reserved + 2e9} B, allocated = {20e9} B }}"
    result = evaluate(text, FOUR).result
    other = evaluate("", FOUR).result
    assert result.figure("anchored_reserved") == pytest.approx(
        other.figure("reserved_memory") + 2e9
    )
    offset = 20e9 - plain.figure("allocated_memory")
    expected = other.figure("allocated_memory") + offset
    assert result.figure("anchored_allocated") == pytest.approx(expected)


def test_tokens_per_second_are_a_step_time() -> None:
    text = "anchor { tokens_per_second_per_device = 5000 }"
    (only,) = compare(text)
    assert only.seconds == pytest.approx(16 * 2048 / (16 * 5000))


def test_an_accuracy_without_spreads_lets_no_anchor_count() -> None:
    text = STUDY[: STUDY.index("  job_spread")] + "}\nanchor { step_time = 0.3 s }"
    (scenario,) = parcost.load_text(text)
    found = find_anchoring(scenario.evaluate().result.study)
    assert found is not None
    assert found.compared[0].reason == "`ours` has no `job_spread`"


@pytest.mark.slow
def test_the_command_line_adds_anchors_and_is_part_of_the_command(tmp_path: Path) -> None:
    spec = tmp_path / "job.par"
    spec.write_text(STUDY, encoding="utf-8")
    given = ("step_time = 0.3 s", 'step_time = 0.4 s, settings = "layout.tp = 4"')
    (scenario,) = Session().load(spec, reading=ImportOptions(anchors=given))
    found = find_anchoring(scenario.evaluate().result.study)
    assert found is not None
    assert [one.name for one in found.compared] == ["given_1", "given_2"]
    assert "--anchor 'step_time = 0.3 s'" in scenario.command()


def test_a_text_that_is_too_long_for_a_name_is_no_file(run_command: Callable[..., Any]) -> None:
    done = run_command("eval", "job.par", "--anchor", "a" * 20_000 + " = 3", job=STUDY)
    assert done.code == 2
    assert "`anchor` has no attribute" in done.err


def test_a_session_reads_a_log_again_when_it_changes(tmp_path: Path) -> None:
    """The live page loads the same spec with the same log at each change of the form."""
    spec, log_ = tmp_path / "job.par", tmp_path / "train.log"
    spec.write_text(STUDY, encoding="utf-8")
    session = Session()

    def read_seconds(milliseconds: int) -> float | None:
        line = " iteration {}/ 100 | elapsed time per iteration (ms): {}.0 |\n"
        text = "".join(line.format(i, milliseconds) for i in range(1, 31 + milliseconds % 7))
        log_.write_text(text, encoding="utf-8")
        for _ in range(2):
            (scenario,) = session.load(spec, reading=ImportOptions(anchors=(str(log_),)))
        found = find_anchoring(scenario.first)
        assert found is not None
        return found.compared[0].seconds

    assert read_seconds(300) == 0.3
    assert read_seconds(310) == 0.31


@pytest.mark.slow
def test_a_spec_with_an_anchor_anchors_another_spec_of_the_job(tmp_path: Path) -> None:
    old, new = tmp_path / "old.par", tmp_path / "new.par"
    old.write_text(STUDY + anchor(1.2), encoding="utf-8")
    text = STUDY.replace("tp = 2", "tp = 4").replace("recompute = full", "recompute = none")
    new.write_text(text, encoding="utf-8")
    (scenario,) = Session().load(new, reading=ImportOptions(anchors=(str(old),)))
    found = find_anchoring(scenario.evaluate().result.study)
    assert found is not None
    assert [(one.name, one.reason) for one in found.compared] == [("old_a", "")]
    assert found.step.mean == pytest.approx(log(1.2), rel=1e-6)
    other = text + "kernels { gemm_efficiency = 50 % }"
    new.write_text(other, encoding="utf-8")
    (scenario,) = Session().load(new, reading=ImportOptions(anchors=(str(old),)))
    found = find_anchoring(scenario.evaluate().result.study)
    assert found is not None
    assert "differs in more than `settings`" in found.compared[0].reason


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ("predicted = [2 s, 1 s]", "an anchor describes one run, but `predicted` is swept"),
        ('job = "\u6f22 \u202e"', "`\u6f22 \\u202e` is not `NAME = VALUE`"),
    ],
)
def test_an_anchor_that_is_swept_or_not_printable_has_a_reason(more: str, reason: str) -> None:
    (scenario,) = parcost.load_text(f"{STUDY}anchor a {{ step_time = 1 s, {more} }}\n")
    report = scenario.evaluate()
    assert report.exit_code == 0
    notes = [
        figure.note
        for result in report.results
        for _, figure in result.figures
        if figure.name == "anchored_step_time"
    ]
    assert notes
    assert all(note == f"not used: {reason}" for note in notes)


def test_a_run_with_adapters_is_another_job_than_full_training() -> None:
    full = evaluate("").result.study
    adapters = evaluate("adapters { rank = 8 }", {"layout.tp": "1"}).result.study
    assert "trains adapters" in _other_job(full, adapters)
    assert "trains adapters" in _other_job(adapters, full)
    assert not _other_job(full, full)
    assert not _other_job(adapters, adapters)
    thick = evaluate("adapters { rank = 64 }", {"layout.tp": "1"}).result.study
    assert "`adapters.rank` was 8, and is 64 here" in _other_job(thick, adapters)
