"""Pictures and intervals of plugins: their hooks get the arguments that they name."""

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


def evaluate(**hooks: Callable[..., Any]) -> Result:
    module = ModuleType("mine")
    vars(module).update({name: hookimpl(do) for name, do in hooks.items()})
    (scenario,) = load_text(SPEC, plugins=load(("mine", module)))
    return scenario.evaluate().result


def own_charts(result: Result) -> set[str]:
    assert not result.faults
    drawn = (*result.charts, *result.timeline_charts)
    return {chart.name for owner, chart in drawn if owner.name == "mine"}


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
        "plugin `mine` failed in `figures`: gave an interval of `mine`, but there is no such figure"
    )
