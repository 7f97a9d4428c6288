"""Pictures of many points: each equals an evaluation by itself, and the front beats all others."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

import parcost
from parcost import Chart
from parcost.contract.charts import PointFigure, PointTable
from parcost.report.charts import report_charts
from parcost_formats.pictures.points import charts as point_charts

from ..rows import try_each


@pytest.fixture(scope="module")
def text(spec: str) -> str:
    swept = spec.replace("tp = 2, pp = 4", "tp = [1, 2, 4, 64], pp = [1, 2, 4]")
    return swept.replace("schedule { kind = one_f_one_b }", "")


@pytest.fixture(scope="module")
def swept(text: str) -> Mapping[str, Chart]:
    (scenario,) = parcost.load_text(text)
    report = scenario.evaluate()
    drawn = report_charts(report.axes, report.results, report.units)
    return {chart.name: chart for chart in drawn}


def evaluate_point(text: str, tp: float, pp: float) -> Any:
    one = text.replace("[1, 2, 4, 64]", f"{tp:g}").replace("[1, 2, 4]", f"{pp:g}")
    (scenario,) = parcost.load_text(one)
    return scenario.evaluate().result


@pytest.mark.slow
def test_a_cell_of_the_map_is_an_evaluation_by_itself(
    text: str, swept: Mapping[str, Chart]
) -> None:
    chart = swept["map"]
    assert chart.problem() == ""
    assert len(chart.rows) == 4 * 3
    for row in chart.rows:
        result = evaluate_point(text, row["down"], row["across"])
        if row["kind"] == "runs":
            assert row["value"][0] == pytest.approx(result.figure("step_time"), rel=1e-12)
        else:
            assert result.outcome is None or not result.feasible
            assert row["reason"]
    assert {row["down"] for row in chart.rows if row["kind"] == "none"} >= {64.0}


@pytest.mark.slow
def test_curves_go_through_the_points(text: str, swept: Mapping[str, Chart]) -> None:
    chart = swept["curve_step_time"]
    for row in chart.rows:
        pp = float(row["curve"].removeprefix("layout.pp = "))
        assert row["value"][0] == pytest.approx(
            evaluate_point(text, row["at"][0], pp).figure("step_time")
        )


def table(*points: tuple[float, float], **more: Any) -> PointTable:
    figures = {
        "step_time": PointFigure(title="step time", unit="s"),
        "memory": PointFigure(title="memory", unit="GiB"),
    }
    rows = [
        {"layout.tp": 2.0**n, "step_time": s, "memory": b, "feasible": True, "reason": "", **more}
        for n, (s, b) in enumerate(points)
    ]
    return PointTable(kind="search", axes={"layout.tp": ""}, figures=figures, rows=rows)


def front(points: PointTable) -> list[tuple[float, float]]:
    (chart,) = [chart for chart in point_charts(points) if chart.name == "front"]
    on = [row for row in chart.rows if row["kind"] == "on the front"]
    return [(row["seconds"][0], row["memory"][0]) for row in on]


def test_the_front_has_the_points_that_none_beats() -> None:
    points = [(1.0, 9.0), (2.0, 5.0), (3.0, 6.0), (4.0, 1.0), (5.0, 1.0), (2.5, 5.0)]
    by_hand = [
        (s, b)
        for s, b in points
        if not any(o != (s, b) and o[0] <= s and o[1] <= b for o in points)
    ]
    assert front(table(*points)) == sorted(by_hand) == [(1.0, 9.0), (2.0, 5.0), (4.0, 1.0)]


def test_a_bound_is_on_no_front() -> None:
    assert front(table((1.0, 9.0), (2.0, 5.0), bound="from below")) == []


def test_words_are_drawn_as_bars() -> None:
    figures = {"step_time": PointFigure(title="step time", unit="s")}
    rows = [
        {"schedule.kind": kind, "step_time": s, "feasible": s < 9, "reason": ""}
        for kind, s in (("gpipe", 2.0), ("one_f_one_b", 1.0), ("zb_h1", 9.0))
    ]
    found = PointTable(kind="sweep", axes={"schedule.kind": ""}, figures=figures, rows=rows)
    (chart,) = point_charts(found)
    assert chart.problem() == ""
    assert [(row["point"], row["value"]) for row in chart.rows] == [
        ("schedule.kind = gpipe", (2.0, "s")),
        ("schedule.kind = one_f_one_b", (1.0, "s")),
    ]


@pytest.mark.slow
def test_the_map_of_a_search_is_the_best_of_all_layouts(spec: str) -> None:
    """Every layout of a small space, by brute force."""
    from parcost.search.charts import search_charts

    (scenario,) = parcost.load_text(spec.replace("tp = 2, pp = 4", "tp = 1"))
    given = {
        "layout.tp": [1, 2, 4],
        "layout.pp": [1, 2, 4],
        "training.micro_batch": [1, 2],
        "schedule.kind": ["gpipe", "one_f_one_b"],
    }
    found = parcost.search_layouts(scenario, over=given, axes=list(given), every=True)
    charts = {chart.name: chart for chart in search_charts(found)}
    best: dict[tuple[int, int], float] = {}
    for tp in given["layout.tp"]:
        for pp in given["layout.pp"]:
            for micro_batch in given["training.micro_batch"]:
                for kind in given["schedule.kind"]:
                    values = {
                        "layout.tp": tp,
                        "layout.pp": pp,
                        "training.micro_batch": micro_batch,
                        "schedule.kind": kind,
                    }
                    result = scenario.replace(values).evaluate().result
                    if result.outcome is not None and result.feasible:
                        seconds = float(result.outcome.step_seconds)
                        best[tp, pp] = min(best.get((tp, pp), seconds), seconds)
    cells = {(r["down"], r["across"]): r["value"][0] for r in charts["map"].rows if "value" in r}
    assert cells == pytest.approx(best, rel=1e-9)
    assert "front" in charts


@try_each(
    "down, across, shape",
    [(30, 50, (20, 20)), (2, 900, (2, 200)), (500, 3, (133, 3)), (20, 20, (20, 20))],
)
def test_a_map_of_too_many_cells_has_the_best_values_and_says_so(
    down: int, across: int, shape: tuple[int, int]
) -> None:
    """The best cells are in the middle of both axes."""
    table = PointTable(
        kind="search",
        axes={"a.down": "", "a.across": ""},
        figures={"seconds": PointFigure(title="time", unit="s")},
        rows=[
            {
                "a.down": y,
                "a.across": x,
                "seconds": 1.0 + abs(y - down // 2) + abs(x - across // 2),
                "feasible": True,
                "reason": "",
            }
            for y in range(down)
            for x in range(across)
        ],
    )
    (chart,) = [one for one in point_charts(table) if one.name == "map"]
    title = chart.title
    ys, xs = ({row[way] for row in chart.rows} for way in ("down", "across"))
    given = {"a.down": (down, ys), "a.across": (across, xs)}
    if "by a.across and a.down" in title:
        given = {"a.across": (across, ys), "a.down": (down, xs)}
    assert tuple(len(given[axis][1]) for axis in ("a.down", "a.across")) == shape
    assert len(chart.rows) == shape[0] * shape[1]
    notes = " ".join(chart.notes)
    for axis, (count, kept) in given.items():
        best = sorted(range(count), key=lambda value: abs(value - count // 2))
        assert kept <= {float(value) for value in best[: len(kept) + 1]}
        assert (f"values of {axis} with the best time, of {count:,}" in notes) == (
            len(kept) < count
        )
