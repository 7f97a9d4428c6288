"""A search asks plugins under every choice, and never proves what one of them did not answer."""

from __future__ import annotations

from math import inf
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import parcost
from parcost import Collective, Formula, Objective, SpecError, Study, Work, hookimpl
from parcost.contract.page import Line
from parcost.engine.scenario import Scenario
from parcost.plugins.discovery import load
from parcost.search.best_first import SearchRequest, search
from parcost.search.result import SearchResult
from parcost.search.space import space
from parcost_apps.search.report import rank_layouts, search_page
from parcost_plugins.vocabulary import Layout

pytestmark = pytest.mark.slow

TEXT = """
use catalog.devices.h100_sxm
use catalog.fabrics.hgx_h100
use catalog.models.llama3_8b
use catalog.precisions.bf16
cluster { devices = 16 }
layout { tp = 4 }
training { sequence = 4096, global_batch = 32 sequences }
"""
EVERYTHING = SearchRequest(keep=3, budget_seconds=1e9)


def scenario(text: str = TEXT, **hooks: Any) -> Scenario:
    plugins = load(("odd", SimpleNamespace(**hooks))) if hooks else None
    (found,) = parcost.load_text(text, plugins=plugins)
    return found


def run_search(axes: dict[str, list[Any]], text: str = TEXT, **hooks: Any) -> SearchResult:
    return search(space(scenario(text, **hooks), axes, list(axes)), EVERYTHING)


def nuisance(seconds: float) -> Work:
    formula = Formula(text="seconds", inputs={})
    return Work(name="nuisance", seconds=seconds, pass_="F", formula=formula)


class Moody(Collective):
    """An all-reduce that is nearly free, but only without sequence parallelism."""

    name = "moody"
    operations = ("all_reduce", "reduce_scatter", "all_gather")

    def __init__(self, seconds: float = 0.0) -> None:
        self._seconds = seconds

    def for_study(self, study: Study) -> Moody:
        return Moody(10.0 if study[Layout].sequence_parallel else 1e-9)

    def seconds(self, _: str, n: Any, *__: Any) -> Any:
        return self._seconds + 0.0 * n

    source = "none"


@hookimpl
def collectives() -> list[Moody]:
    return [Moody()]


def test_the_price_of_a_collective_is_that_of_the_choice_that_it_reads() -> None:
    axes: dict[str, list[Any]] = {
        "layout.sequence_parallel": ["on", "off"],
        "layout.zero": [0, 1],
    }
    text = TEXT + "collectives { tensor = moody }\n"
    steps = [
        float(
            scenario(text, collectives=collectives)
            .replace({"layout.sequence_parallel": sp, "layout.zero": zero})
            .evaluate()
            .result.figure("step_time")
        )
        for sp in ("on", "off")
        for zero in (0, 1)
    ]
    best = run_search(axes, text, collectives=collectives).best[0]
    assert best.values["layout.sequence_parallel"] == "off"
    assert best.seconds == min(steps)
    assert max(steps) > 10 * min(steps)


@hookimpl
def rooms(study: Study) -> list[float]:
    return [1e15 if study[Layout].sequence_parallel else 1.0]


def test_room_by_a_choice_is_that_of_each_layout() -> None:
    result = run_search({"layout.sequence_parallel": ["off", "on"]}, capacities=rooms)
    assert (result.legal, result.large) == (2, 1)
    assert [x.values["layout.sequence_parallel"] for x in result.best] == ["on"]


@hookimpl
def rooms_at_zero_2(study: Study) -> list[float]:
    layout = study[Layout]
    return [1e15 if layout.zero < 2 or layout.sequence_parallel else 1.0]


def test_room_by_a_choice_under_a_condition_is_refused() -> None:
    axes: dict[str, list[Any]] = {
        "layout.sequence_parallel": ["on", "off"],
        "layout.zero": [1, 2],
    }
    text = TEXT.replace("tp = 4", "tp = 4, zero = 1, sequence_parallel = on")
    with pytest.raises(SpecError, match="depends on `layout") as error:
        run_search(axes, text, capacities=rooms_at_zero_2)
    assert error.value.diagnostics[0].id == "depends-on-choice"


@hookimpl
def fails_at_zero_2(study: Study) -> list[Work]:
    if study[Layout].zero == 2:
        raise RuntimeError("not today")
    return [nuisance(0.1)]


def test_a_failing_plugin_is_a_fault_and_nothing_is_proven() -> None:
    result = run_search({"layout.zero": [0, 1, 2]}, terms=fails_at_zero_2)
    assert not result.proven
    assert any("odd" in fault and "not today" in fault for fault in result.faults)
    whole = space(scenario(TEXT, terms=fails_at_zero_2), {"layout.zero": [0, 1, 2]}, [])
    said = [
        item.text
        for item in search_page(whole, result, rank_layouts(result))
        if isinstance(item, Line)
    ]
    assert "A plugin failed, so there is no proof." in said
    assert not any(text.startswith("No other layout") for text in said)
    assert run_search({"layout.zero": [0, 1]}, terms=fails_at_zero_2).proven


def test_a_condition_on_another_axis_is_seen() -> None:
    """ZeRO matters only with two stages, and nothing shows that at the first point."""
    term = "term x { seconds = layout.pp > 1 ? (layout.zero > 1 ? 0 s : 1 s) : 2 s }\n"
    axes: dict[str, list[Any]] = {"layout.pp": [1, 2], "layout.zero": [1, 2]}
    text = TEXT.replace("layout { tp = 4 }", "layout { tp = 4, sequence_parallel = on }") + term
    steps = {
        (pp, zero): float(
            scenario(text)
            .replace({"layout.pp": pp, "layout.zero": zero})
            .evaluate()
            .result.figure("step_time")
        )
        for pp in (1, 2)
        for zero in (1, 2)
    }
    best = run_search(axes, text).best[0]
    assert best.seconds == min(steps.values())
    assert (best.values["layout.pp"], best.values["layout.zero"]) == min(
        steps, key=lambda k: steps[k]
    )


def test_an_interrupted_replay_loses_no_layout(monkeypatch: pytest.MonkeyPatch) -> None:
    from parcost.search import queue

    calls, usual = [], queue.replay_layouts

    def once(*arguments: Any) -> Any:
        calls.append(1)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return usual(*arguments)

    axes: dict[str, list[Any]] = {
        "layout.tp": [1, 2, 4],
        "schedule.kind": ["one_f_one_b", "zb_h1", "gpipe"],
        "layout.pp": [2, 4],
        "training.recompute": ["none", "full"],
    }
    monkeypatch.setattr(queue, "replay_layouts", once)
    result = run_search(axes)
    assert result.interrupted
    assert not result.proven
    monkeypatch.setattr(queue, "replay_layouts", usual)
    assert run_search(axes).best[0].seconds <= result.best[0].seconds


def test_limits_that_only_a_replay_breaks_are_named() -> None:
    axes: dict[str, list[Any]] = {"schedule.kind": ["zb_h1"]}
    text = TEXT.replace("layout { tp = 4 }", "layout { tp = 2, pp = 4 }")
    step = run_search(axes, text).best[0].seconds
    limit = f"search {{ longest_step = {step * 0.9999} s }}\n"
    with pytest.raises(SpecError) as error:
        run_search(axes, text + limit)
    assert error.value.diagnostics[0].id == "nothing-within-limits"


def test_bounds_alone_show_without_time_that_nothing_is_within_a_limit() -> None:
    text = TEXT + "search { longest_step = 1 ms }\n"
    whole = space(scenario(text), {}, [])
    with pytest.raises(SpecError) as error:
        search(whole, SearchRequest(budget_seconds=0.0))
    assert error.value.diagnostics[0].id == "nothing-within-limits"


def test_groups_of_an_interleaved_schedule_are_an_axis() -> None:
    text = TEXT.replace("layout { tp = 4 }", "layout { tp = 1, pp = 4 }")
    text += "schedule { kind = interleaved, chunks = 2 }\n"
    groups = [4, 8]
    result = run_search({"schedule.group": groups}, text)
    single = [scenario(text).replace({"schedule.group": g}).evaluate().result for g in groups]
    steps = {g: float(r.figure("step_time")) for g, r in zip(groups, single, strict=True)}
    assert {x.values["schedule.group"]: x.seconds for x in result.best} == steps
    assert result.best[0].seconds == min(steps.values())


@pytest.mark.parametrize("where", ["everywhere", "somewhere"])
def test_what_never_ends_is_counted_as_an_evaluation_calls_it(where: str) -> None:
    def terms(study: Study) -> list[Work]:
        tp = study[Layout].tp
        return [
            nuisance(float("inf") * tp if where == "everywhere" else np.where(tp == 4, inf, 0.0))
        ]

    axes: dict[str, list[Any]] = {"layout.tp": [2, 4, 8], "layout.zero": [1, 3]}
    if where == "everywhere":
        with pytest.raises(SpecError, match="has an outcome that `cannot-run` accepts"):
            run_search(axes, terms=hookimpl(terms))
        return
    result = run_search(axes, terms=hookimpl(terms))
    assert {one.values["layout.tp"] for one in result.best} == {2, 8}
    assert result.rejected == {"cannot-run": 2}


def test_a_cost_below_zero_is_proven_like_any_other() -> None:
    def objectives() -> list[Objective]:
        own = {"title": "own", "unit": "", "cost": lambda s: s - 100.0, "value": lambda c: c}
        return [Objective(name="own", **own)]

    chosen = space(scenario(objectives=hookimpl(objectives)), {"layout.tp": [2, 4]}, ["layout.tp"])
    result = search(chosen, SearchRequest(objective="own"))
    assert result.proven
    assert result.gap == 0
    steps = [one.seconds for one in result.best]
    assert steps == sorted(steps)
