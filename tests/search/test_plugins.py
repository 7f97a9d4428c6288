"""Plugins of others take part in a search like ours, in whatever order they are loaded."""

from __future__ import annotations

from itertools import product
from types import SimpleNamespace
from typing import Any

import pytest

import parcost
from parcost import Check, Formula, Outcome, SpecError, Study, Work, hookimpl
from parcost.plugins.discovery import Plugins, load
from parcost.search.best_first import SearchRequest, search
from parcost.search.result import SearchResult
from parcost.search.space import space
from parcost_plugins.vocabulary import Layout, Training

pytestmark = pytest.mark.slow

TEXT = """
use catalog.devices.h100_sxm
use catalog.fabrics.hgx_h100
use catalog.models.llama3_8b
use catalog.precisions.bf16
cluster { devices = 16 }
training { sequence = 4096, global_batch = 32 sequences }
"""
AXES: dict[str, list[Any]] = {
    "layout.tp": [1, 2, 4],
    "layout.zero": [0, 1, 3],
    "training.recompute": ["none", "selective", "full"],
}


def run_search(plugins: Plugins | None) -> SearchResult:
    (scenario,) = parcost.load_text(TEXT, plugins=plugins)
    return search(space(scenario, AXES, list(AXES)), SearchRequest(keep=3, budget_seconds=1e9))


@hookimpl
def slow_terms(study: Study) -> list[Work]:
    """Take a second for each micro-batch, but under full recomputation, and at tp 4."""
    if study[Training].recompute == "full":
        return []
    seconds = 1.0 * (study[Layout].tp != 4)
    formula = Formula(text="a second", inputs={})
    return [Work(name="nuisance", seconds=seconds, pass_="F", formula=formula)]


def test_the_terms_of_another_plugin_change_the_winner() -> None:
    without = run_search(None).best[0]
    assert (without.values["layout.tp"], without.values["training.recompute"]) != (4.0, "none")
    best = run_search(load(("nuisance", SimpleNamespace(terms=slow_terms)))).best
    for layout in best:
        avoided = layout.values["training.recompute"] == "full" or layout.values["layout.tp"] == 4.0
        assert avoided


def test_the_order_of_plugins_changes_no_bit() -> None:
    usual = load()
    reversed_ = Plugins(tuple(reversed(usual.plugins)))
    for one, other in zip(run_search(usual).best, run_search(reversed_).best, strict=True):
        assert (one.seconds, one.bytes_, one.values) == (other.seconds, other.bytes_, other.values)


@hookimpl
def choosy(study: Study, outcome: Outcome) -> list[Check]:
    """Let only slow steps of one ZeRO stage through."""
    return [
        Check(
            id="too-good",
            holds=(study[Layout].zero == 3) & (outcome.step_seconds > 0.7),
            subject="layout.zero",
            message="nobody believes this",
        )
    ]


@pytest.mark.parametrize("keep", [1, 3, 50])
def test_a_layout_refused_by_a_verdict_excludes_no_other(keep: int) -> None:
    """Outcomes are judged one by one, so the ranking is that of single evaluations."""
    plugins = load(("choosy", SimpleNamespace(outcome_checks=choosy)))
    (scenario,) = parcost.load_text(TEXT, plugins=plugins)
    expected = []
    for values in product(*AXES.values()):
        at = dict(zip(AXES, values, strict=True))
        result = scenario.replace(at).evaluate().result
        if result.outcome is not None and result.feasible:
            expected.append((float(result.outcome.step_seconds), at))
    assert expected
    by_degree = {
        at["layout.tp"]: seconds for seconds, at in sorted(expected, key=first_item, reverse=True)
    }
    result_ = search(
        space(scenario, AXES, list(AXES)), SearchRequest(keep=keep, budget_seconds=1e9)
    )
    assert [layout.seconds for layout in result_.best] == sorted(by_degree.values())[:keep]
    assert result_.proven
    assert result_.rejected["too-good"] >= 1


def test_where_a_verdict_refuses_everything_it_is_named() -> None:
    @hookimpl
    def never(study: Study) -> list[Check]:
        return [Check(id="never", holds=False, subject="layout.zero", message=f"{study.name}: no")]

    plugins = load(("never", SimpleNamespace(outcome_checks=never)))
    with pytest.raises(SpecError) as error:
        run_search(plugins)
    said = error.value.diagnostics[0]
    assert said.id == "nothing-within-limits"
    assert "`never`" in said.message


def first_item(pair: tuple[float, Any]) -> float:
    return pair[0]
