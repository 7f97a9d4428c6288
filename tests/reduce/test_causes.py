"""Causes: what a step is spent on, summed, as the terms say and never by their names."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import parcost
from parcost import Formula, Once, hookimpl
from parcost.plugins.discovery import load
from parcost_plugins.vocabulary import causes

from ..rows import mark_most

RUNS = Path(__file__).parents[2] / "specs" / "runs"
KNOWN = {value for name, value in vars(causes).items() if name.isupper()}


def test_seconds_are_summed_by_the_causes_of_terms(make: Any) -> None:
    found = make.step(
        make.work("a", 1.0, cause="compute"),
        make.work("b", 2.0, "B", cause="compute"),
        make.work("c", 0.5, "B", cause="tensor"),
        make.edge(0.25, cause="hops"),
        make.once("d", 3.0, "end"),
        p=2,
        m=4.0,
    )
    # One 1F1B pipeline of two stages: 5 rounds of 3.5 s, of which 4 are busy, and hops. The
    # way of a micro-batch there and back has two hops at each end of the pipeline.
    assert found.seconds_by_cause["compute"] == 12.0
    assert found.seconds_by_cause["tensor"] == 2.0
    assert found.seconds_by_cause["pipeline bubble"] == 3.5
    assert found.seconds_by_cause["other"] == 3.0
    assert sum(found.seconds_by_cause.values()) == pytest.approx(found.step_seconds, rel=1e-12)


def test_what_a_transfer_slows_down_has_the_cause_of_the_transfer(make: Any) -> None:
    found = make.step(
        make.work("product", 1.0, "B", cause="compute"),
        make.work("ring", 0.5, "B", cause="context", resource="net", window="", slowdown=0.2),
        make.once("gather", 0.5, "fill", cause="data", resource="net", beside=1.0, slowdown=0.1),
    )
    slower = {line.name: line.cause for line in found.ledger if line.kind == "slowdown"}
    assert slower["slowdown by ring"] == "context"


def test_memory_is_summed_by_the_causes_of_terms(make: Any) -> None:
    found = make.step(
        make.work("a", 1.0),
        make.memory("w", 3.0, cause="weights"),
        make.memory("copy of w", 2.0, cause="weights"),
        make.memory("x", 1.0),
    )
    assert found.memory_by_cause == {"weights": 5.0, "other": 1.0}


@pytest.mark.slow
@pytest.mark.parametrize("path", mark_most(sorted(RUNS.glob("*.par"))), ids=lambda path: path.stem)
def test_every_line_of_a_shipped_run_has_a_cause(path: Path) -> None:
    for scenario in parcost.load(path):
        for result in scenario.evaluate().results:
            outcome = result.outcome
            assert outcome is not None
            assert {line.cause for line in outcome.ledger} <= KNOWN | {"pipeline bubble"}
            assert {line.cause for line in outcome.memory_lines} <= KNOWN
            assert "other" not in outcome.seconds_by_cause


def test_a_cause_that_is_no_text_is_a_fault_of_its_plugin() -> None:
    @hookimpl
    def terms() -> list[Once]:
        wrong: Any = 3
        formula = Formula(text="?")
        return [Once(name="odd", cause=wrong, seconds=1.0, when="end", formula=formula)]

    plugins = load(("odd", SimpleNamespace(terms=terms)))
    (scenario,) = parcost.load(RUNS / "llama3_8b_one_node.par", plugins=plugins)
    (result,) = scenario.evaluate().results
    assert any("cause" in fault.message for fault in result.faults)
