"""The shipped runs and examples evaluate, and what they expect holds."""

from __future__ import annotations

from pathlib import Path

import pytest

import parcost
from parcost import Report, Scenario
from parcost.numeric import all_of

SPECS = Path(__file__).parents[2] / "specs"


def scenarios(folder: str) -> list[Scenario]:
    files = sorted((SPECS / folder).glob("*.par"))
    return [s for path in files for s in parcost.load(path)]


def named(scenario: Scenario) -> str:
    return f"{Path(scenario.path).stem}.{scenario.name}"


@pytest.mark.parametrize("scenario", scenarios("runs"), ids=named)
def test_a_published_run_is_predicted_within_its_tolerance(scenario: Scenario) -> None:
    report = scenario.evaluate()
    (result,) = report.results
    assert not result.outcome.faults
    missed = [e.text for e in result.expectations if not all_of(e.holds)]
    assert missed == []
    assert result.expectations


@pytest.mark.parametrize("scenario", scenarios("examples"), ids=named)
def test_a_worked_example_evaluates(scenario: Scenario) -> None:
    report = scenario.evaluate()
    for result in report.results:
        assert result.outcome is not None
        assert not result.outcome.faults
        assert all(all_of(e.holds) for e in result.expectations)


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


def test_the_worked_state_and_activations_of_stage_0_are_reproduced(worked: Report) -> None:
    terms = worked.result.outcome.memory
    state = sum(t.bytes_ for t in terms if t.kind in {"weights", "gradients", "optimizer"})
    assert state == pytest.approx(27.25e9, rel=1e-3)
