"""The shipped runs and examples evaluate, and what they expect holds."""

from __future__ import annotations

from pathlib import Path

import pytest

import parcost
from parcost import Outcome, Report
from parcost.numeric import all_of

from ..rows import mark_most
from ..studies import names_of, scenario_of, scenarios_in

SPECS = Path(__file__).parents[2] / "specs"


def outcome_of(report: Report) -> Outcome:
    assert report.result.outcome is not None
    return report.result.outcome


@pytest.mark.slow
@pytest.mark.parametrize("name", mark_most(names_of(SPECS / "runs")))
def test_a_published_run_is_predicted_within_its_tolerance(name: str) -> None:
    report = scenario_of(SPECS / "runs", name).evaluate()
    assert not outcome_of(report).faults
    missed = [e.text for e in report.result.expectations if not all_of(e.holds)]
    assert missed == []
    assert report.result.expectations


@pytest.mark.parametrize("name", mark_most(names_of(SPECS / "examples"), 6))
def test_a_worked_example_evaluates(name: str) -> None:
    report = scenario_of(SPECS / "examples", name).evaluate()
    for result in report.results:
        assert result.legal
        assert not result.faults
        assert (result.outcome is not None) == result.study.trains
        assert result.figures
        assert all(all_of(e.holds) for e in result.expectations)
    assert report.exit_code == 0


@pytest.mark.slow
@pytest.mark.parametrize("folder", ["runs", "examples"])
def test_every_shipped_study_is_among_these(folder: str) -> None:
    assert scenarios_in(SPECS / folder)


# --- Llama 3 70B on 64 H100, worked out by hand --------------------------------------------


@pytest.fixture(scope="module")
def worked() -> Report:
    simple, _ = parcost.load(SPECS / "runs" / "llama3_70b_64_h100.par")
    return simple.evaluate()


@pytest.mark.parametrize(
    ("figure", "value"),
    [("step_time", 4.434451), ("mfu", 0.41955), ("tokens_per_second", 262_144 / 4.434451)],
)
def test_the_worked_step_is_reproduced_to_a_thousandth(
    worked: Report, figure: str, value: float
) -> None:
    assert worked.result.figure(figure) == pytest.approx(value, rel=1e-3)


def test_the_worked_pipeline_is_reproduced(worked: Report) -> None:
    assert outcome_of(worked).makespan_seconds == pytest.approx(4.271106, rel=1e-6)


def test_the_worked_state_of_stage_0_is_reproduced(worked: Report) -> None:
    lines = outcome_of(worked).memory_lines
    kept = ("weights", "gradients", "optimizer state")
    state = sum(line.bytes_ for line in lines if line.name.startswith(kept))
    assert outcome_of(worked).memory_device == 0
    assert state == pytest.approx(2_270_756_864 * (2 + 4 + 12 / 2), rel=1e-9)
    assert state == pytest.approx(27.25e9, rel=1e-3)


def test_the_worked_activations_of_stage_0_are_reproduced(worked: Report) -> None:
    lines = outcome_of(worked).memory_lines
    alive = sum(line.bytes_ for line in lines if line.term.per_micro_batch)
    # Four micro-batches, 20 layers, 281,280,512 bytes of a layer; and the token ids.
    assert alive == pytest.approx(4 * 20 * 281_280_512, rel=1e-4)
    assert alive == pytest.approx(22.50e9, rel=1e-3)


# --- activations as the papers count them ---------------------------------------------------

# Korthikanti et al. 2022, figure 1: s b h 34 / t bytes of a layer, in GiB on the first stage.
ACTIVATIONS = {"gpt_22b_selective": 9.5625, "gpt_1t_selective": 26.5625}


@pytest.mark.slow
@pytest.mark.parametrize("study", ACTIVATIONS)
def test_activations_are_what_the_paper_counts_and_the_ends_of_the_model(study: str) -> None:
    found = parcost.load(SPECS / "runs" / "korthikanti_2022_a100.par")
    (scenario,) = (s for s in found if s.name == study)
    lines = outcome_of(scenario.evaluate()).memory_lines
    alive = sum(line.bytes_ for line in lines if line.term.per_micro_batch) / 2**30
    assert ACTIVATIONS[study] < alive < 1.03 * ACTIVATIONS[study]
