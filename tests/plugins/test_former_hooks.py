"""Pictures and intervals of plugins: what their hooks name, and hooks of version 3 of the contract."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

from parcost import (
    Chart,
    Figure,
    Formula,
    Interval,
    Memory,
    Outcome,
    Result,
    Study,
    hookimpl,
    load_text,
)
from parcost.contract.charts import PassTimeline, PointTable
from parcost.plugins.discovery import load

SPEC = """
use catalog.devices.h100_sxm
use catalog.fabrics.hgx_h100
use catalog.models.llama3_8b
use catalog.precisions.bf16
cluster { devices = 16 }
layout { tp = 2, zero = 1 }
training { sequence = 2048, global_batch = 16 sequences, recompute = full }
"""


def picture(name: str) -> list[Chart]:
    rows = [{"seconds": (1.0, "s"), "formula": Formula(text="1 s")}]
    columns = {"seconds": "time", "formula": "formula"}
    return [Chart(name=name, title=name, spec={"mark": "bar"}, columns=columns, rows=rows)]


def of_step(study: Study, outcome: Outcome) -> list[Chart]:
    assert study.trains
    return picture("step") if outcome.step_seconds > 0 else []


def of_calculations(study: Study) -> list[Chart]:
    return picture("calculations") if study.trains else []


def of_timeline(timeline: PassTimeline) -> list[Chart]:
    return picture("timeline") if timeline.seconds > 0 else []


def of_points(points: PointTable) -> list[Chart]:
    return picture("points") if points.rows else []


def figures(study: Study, outcome: Outcome) -> list[Figure]:
    assert study.trains
    seconds = outcome.step_seconds * 0 + 2
    return [Figure(name="mine", title="mine", value=seconds, unit="s", formula=Formula(text="2 s"))]


def intervals(study: Study, outcome: Outcome) -> list[Interval]:
    assert study.trains
    assert outcome.step_seconds > 0
    ends = {"formula": Formula(text="1 s"), "upper": Formula(text="3 s")}
    return [Interval(name="mine", low=1.0, high=3.0, coverage=0.9, **ends)]


def evaluate(version: int | None = None, **hooks: Callable[..., Any]) -> Result:
    module = ModuleType("mine")
    vars(module).update({name: hookimpl(do) for name, do in hooks.items()})
    if version is not None:
        vars(module)["PARCOST_API"] = version
    (scenario,) = load_text(SPEC, plugins=load(("mine", module)))
    return scenario.evaluate().result


def own_charts(result: Result) -> set[str]:
    assert not result.faults
    drawn = (*result.charts, *result.timeline_charts)
    return {chart.name for owner, chart in drawn if owner.name == "mine"}


@pytest.mark.slow
@pytest.mark.parametrize("version", [3, None])
def test_hooks_of_version_3_are_called_as_before(version: int | None) -> None:
    pictures = {"calculation_charts": of_calculations, "timeline_charts": of_timeline}
    pictures |= {"charts": of_step, "point_charts": of_points}
    result = evaluate(version, figures=figures, intervals=intervals, **pictures)
    found = {figure.name: figure.value for owner, figure in result.figures if owner.name == "mine"}
    assert found == {"mine": 2.0, "mine_low": 1.0, "mine_high": 3.0}
    assert own_charts(result) == {"step", "calculations", "timeline"}


@pytest.mark.parametrize(("version", "held"), [(2, True), (3, True), (None, False)])
def test_memory_of_backward_is_held_to_its_end_in_former_versions(
    version: int | None, held: bool
) -> None:
    term = Memory(name="mine", bytes_=1e9, formula=Formula(text="1 GB"), moments=("backward",))
    result = evaluate(version, memory=lambda study: [term])  # noqa: ARG005
    assert not result.faults
    outcome = result.outcome
    assert outcome is not None
    (moments,) = outcome.memory_by_moment()
    assert ("mine" in {line.name for line in moments["end_of_backward"]}) is held
    assert "mine" in {line.name for line in moments["backward"]}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("function", "drawn"),
    [
        (of_step, {"step"}),
        (of_calculations, {"calculations"}),
        (of_timeline, {"timeline"}),
        (of_points, set()),
    ],
)
def test_charts_draw_what_their_arguments_name(
    function: Callable[..., Any], drawn: set[str]
) -> None:
    assert own_charts(evaluate(charts=function)) == drawn


def test_an_interval_of_no_figure_is_a_fault() -> None:
    (fault,) = evaluate(figures=intervals).faults
    assert str(fault) == (
        "plugin `mine` failed in `figures`: gave an interval of `mine`, and no figure is called "
        "that"
    )
