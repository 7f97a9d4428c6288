"""Pictures of a step: what is drawn is what the report says, and what can be worked out by hand."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

import parcost
from parcost import Chart, Report
from parcost_plugins.vocabulary import Cluster

Rows = Callable[..., Sequence[Mapping[str, Any]]]


def test_a_step_has_the_six_pictures(charts: Mapping[str, Chart]) -> None:
    names = {"step", "memory", "pipeline", "roofline", "levers", "collectives"}
    assert set(charts) == names
    assert [chart.problem() for chart in charts.values()] == [""] * 6


def test_exposed_bars_add_up_to_the_step(report: Report, rows: Rows) -> None:
    exposed = sum(row["seconds"][0] for row in rows("step", part="exposed"))
    assert exposed == pytest.approx(report.result.figure("step_time"), rel=1e-12)
    compute = sum(row["seconds"][0] for row in rows("step", part="exposed", cause="compute"))
    assert report.result.outcome is not None
    assert compute == pytest.approx(report.result.outcome.seconds_by_cause["compute"])
    assert rows("step", part="hidden")


def test_the_tallest_bar_of_memory_is_the_memory_of_the_report(report: Report, rows: Rows) -> None:
    bars: dict[tuple[int, str], float] = {}
    for row in rows("memory", kind="held"):
        bar = (row["stage"], row["moment"])
        bars[bar] = bars.get(bar, 0.0) + row["size"][0]
    assert max(bars.values()) == pytest.approx(report.result.figure("memory"), rel=1e-12)
    totals = {(row["stage"], row["moment"]): row["size"][0] for row in rows("memory", kind="total")}
    assert totals == pytest.approx(bars)
    assert len(bars) == 4 * 6  # stages and moments


def test_the_line_above_memory_is_what_the_device_has(rows: Rows) -> None:
    (capacity,) = rows("memory", kind="limit", cause="capacity")
    assert capacity["limit"] == 81_559 / 1024  # GiB of an H100, as its driver has it


def test_1f1b_is_drawn_as_it_runs(rows: Rows) -> None:
    """Eight micro-batches on four devices: device 3 runs F and B in turn from the start."""
    passes = rows("pipeline")
    assert len(passes) == 4 * 2 * 8
    last = [row["called"] for row in passes if row["device"] == 3]
    assert last == ["forward", "backward"] * 8
    first = [row["called"] for row in passes if row["device"] == 0]
    assert first[:4] == ["forward"] * 4
    assert first[4] == "backward"
    for row in passes:
        assert row["formula"].value == pytest.approx(row["seconds"][0], rel=1e-9)
        assert row["end"] - row["start"][0] == pytest.approx(row["seconds"][0])


def test_products_stand_below_the_roof_of_an_h100(rows: Rows) -> None:
    """989.4 TFLOP/s dense bf16 over 3.35 TB/s: the ridge is at 295 FLOP/B."""
    roofs = [(row["intensity"][0], row["rate"][0]) for row in rows("roofline", kind="roof")]
    assert any(
        intensity == pytest.approx(989.4e12 / 3.35e12, rel=0.002)
        and rate == pytest.approx(989.4e12, rel=0.002)
        for intensity, rate in roofs
    )
    products = rows("roofline", kind="product")
    assert products
    for row in products:
        roof = min(989.4e12, row["intensity"][0] * 3.35e12)
        assert row["rate"][0] <= roof * 1.002
        assert row["formula"].value == row["rate"][0]


def test_collectives_take_no_less_than_their_bytes(rows: Rows) -> None:
    """Two ranks of a node send half of the buffer twice, at 450 GB/s in one direction at most."""
    curves: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows("collectives"):
        curves.setdefault(row["curve"], []).append(row)
    assert "all_reduce, tp (2 ranks)" in curves
    for row in curves["all_reduce, tp (2 ranks)"]:
        assert row["seconds"][0] >= 2 * 0.5 * row["size"][0] / 450e9
    for curve in curves.values():
        times = [row["seconds"][0] for row in curve]
        assert times == sorted(times)
        assert len({row["size"] for row in curve}) == len(curve)


def test_a_lever_is_the_step_of_the_study_with_the_change(report: Report, rows: Rows) -> None:
    (lever,) = rows("levers", title="bf16 peak x 2")
    study = report.result.study
    peak = study[Cluster].device.bf16
    outcome = study.replace({"h100_sxm.bf16": 2.0 * peak}).evaluate()
    assert lever["seconds"][0] == pytest.approx(outcome.step_seconds, rel=1e-9)
    changes = [row["percent"] for row in rows("levers")]
    assert changes == sorted(changes)


PIPELINE = "pipeline deep { stages = 2, micro_batches = 2, forward = 1 s, backward = 2 s }"


def test_a_pipeline_by_itself_is_drawn() -> None:
    """Two stages, F of 1 s and B of 2 s: 1F1B ends after 9 s, by hand."""
    (scenario,) = parcost.load_text(PIPELINE)
    (chart,) = [chart for _, chart in scenario.evaluate().result.timeline_charts]
    drawn = [
        (row["device"], row["called"], row["micro_batch"], row["start"][0], row["end"])
        for row in chart.rows
    ]
    assert sorted(drawn) == [
        (0, "backward", "0", 4.0, 6.0),
        (0, "backward", "1", 7.0, 9.0),
        (0, "forward", "0", 0.0, 1.0),
        (0, "forward", "1", 1.0, 2.0),
        (1, "backward", "0", 2.0, 4.0),
        (1, "backward", "1", 5.0, 7.0),
        (1, "forward", "0", 1.0, 2.0),
        (1, "forward", "1", 4.0, 5.0),
    ]


@pytest.mark.slow
def test_a_pipeline_too_long_to_draw_says_what_it_leaves_out() -> None:
    text = "pipeline deep { stages = 8, micro_batches = 400, forward = 1 s, backward = 2 s }"
    (scenario,) = parcost.load_text(text)
    (chart,) = [chart for _, chart in scenario.evaluate().result.timeline_charts]
    assert len(chart.rows) == 2000
    assert any("The first 2,000 of 6,400 passes" in note for note in chart.notes)
