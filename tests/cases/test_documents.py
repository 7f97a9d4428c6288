"""The documents' case studies evaluate, come out as they claim, and are laid out canonically."""

from __future__ import annotations

from pathlib import Path

import pytest

import parcost
from parcost.numeric import all_of
from parcost_apps.cli import main

from ..rows import mark_most

FILES = sorted((Path(__file__).parents[2] / "specs" / "documents").glob("*.par"))
SCENARIOS = [scenario for path in FILES for scenario in parcost.load(path)]


@pytest.mark.parametrize(
    "scenario", mark_most(SCENARIOS), ids=lambda s: f"{Path(s.path).stem}.{s.name}"
)
def test_a_case_study_comes_out_as_it_claims(scenario: parcost.Scenario) -> None:
    report = scenario.evaluate()
    assert report.exit_code == 0
    for result in report.results:
        assert [claim.text for claim in result.expectations if not all_of(claim.holds)] == []


@pytest.mark.slow
def test_case_studies_claim_something() -> None:
    claims = [c for s in SCENARIOS if not s.axes for c in s.evaluate().result.expectations]
    assert len(claims) > 100


def test_case_studies_are_canonical() -> None:
    assert main(["fmt", "--check", *map(str, FILES)]) == 0
