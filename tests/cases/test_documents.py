"""The documents' case studies evaluate, come out as they claim, and are laid out canonically."""

from __future__ import annotations

from pathlib import Path

import pytest

from parcost.numeric import all_of
from parcost_apps.cli import main

from ..rows import mark_most
from ..studies import names_of, scenario_of, scenarios_in

DOCUMENTS = Path(__file__).parents[2] / "specs" / "documents"


@pytest.mark.parametrize("name", mark_most(names_of(DOCUMENTS)))
def test_a_case_study_comes_out_as_it_claims(name: str) -> None:
    report = scenario_of(DOCUMENTS, name).evaluate()
    assert report.exit_code == 0
    for result in report.results:
        assert [claim.text for claim in result.expectations if not all_of(claim.holds)] == []


@pytest.mark.slow
def test_case_studies_claim_something() -> None:
    claims = [
        c for s in scenarios_in(DOCUMENTS) if not s.axes for c in s.evaluate().result.expectations
    ]
    assert len(claims) > 100


def test_case_studies_are_canonical() -> None:
    assert main(["fmt", "--check", str(DOCUMENTS)]) == 0
