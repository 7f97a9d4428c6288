"""The looks of pictures: units of axes, labels that fit, and one color for each cause."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

import parcost
from parcost import Chart
from parcost.contract.charts import PointFigure, PointTable
from parcost.contract.entries import ChartData
from parcost.contract.outcome import BUBBLE
from parcost.contract.outcome import OTHER as REST
from parcost.report.charts import chart_data
from parcost_formats.html.drawing import svg
from parcost_formats.html.specification import legend_entry_width, legend_style
from parcost_formats.pictures.points import charts as point_charts
from parcost_plugins.vocabulary import causes
from parcost_plugins.vocabulary.axes import cause_scale

Rows = Callable[..., Sequence[Mapping[str, Any]]]


def texts(chart: Chart) -> list[str]:
    """Return the texts of a drawing."""
    return [text for _, text in colored_texts(chart)]


def colored_texts(chart: Chart) -> list[tuple[str, str]]:
    """Return the texts of a drawing, each with its color."""
    drawn = re.sub("<title>.*?</title>", "", svg([("study", drawable(chart))]))
    return re.findall(r'<text[^>]*fill="(#\w+)"[^>]*>([^<]*)</text>', drawn)


def drawable(chart: Chart) -> ChartData:
    return ChartData(**chart_data(chart))


@pytest.mark.slow
def test_sizes_are_labeled_in_powers_of_1024(charts: Mapping[str, Chart]) -> None:
    drawn = texts(charts["collectives"])
    assert {"4 KiB", "256 KiB", "16 MiB", "1 GiB"} <= set(drawn)
    assert {"100 µs", "1 ms", "10 ms"} <= set(drawn)
    assert not [text for text in drawn if re.fullmatch(r"[\d.]+[kMGµ]", text)]


@pytest.mark.slow
def test_a_bar_of_the_step_has_its_time_and_share(charts: Mapping[str, Chart], rows: Rows) -> None:
    drawn = texts(charts["step"])
    sums = {row["cause"]: row["seconds"][0] for row in rows("step", part="sum")}
    total = sum(sums.values())
    assert total == pytest.approx(sum(row["seconds"][0] for row in rows("step", part="exposed")))
    share = f"{100 * sums['compute'] / total:.4g} %"
    assert any(text.endswith(f", {share}") for text in drawn)


@pytest.mark.slow
def test_bars_of_the_step_stand_beside_their_labels(charts: Mapping[str, Chart]) -> None:
    encodings = [layer["encoding"] for layer in charts["step"].spec["layer"]]
    assert {"x", "y"} <= set().union(*encodings)
    assert all("yOffset" not in encoding for encoding in encodings)


@pytest.mark.slow
def test_a_roofline_names_its_products_and_its_limits(charts: Mapping[str, Chart]) -> None:
    """An H100: 989 TFLOP/s, 3.35 TB/s, so that the ridge is at 295 FLOP/B."""
    drawn = set(texts(charts["roofline"]))
    assert {"989 TFLOP/s", "3.35 TB/s", "295.2 FLOP/B"} <= drawn
    named = {row["called"] for row in charts["roofline"].rows if row["kind"] == "product"}
    assert len(named & drawn) >= 3


@pytest.mark.slow
def test_names_on_a_roofline_meet_no_other_name(rows: Rows) -> None:
    named = rows("roofline", kind="name")
    assert len({row["label"] for row in named}) == len(named)
    places = [(row["side"], round(row["at"], 6), row["tera"]) for row in named]
    assert len(set(places)) == len(places)


@pytest.mark.slow
@pytest.mark.parametrize(("micro_batches", "shown"), [(8, 8), (60, 0)])
def test_numbers_stand_only_in_passes_with_room(micro_batches: int, shown: int) -> None:
    """60 micro-batches take 63 slots of 3 s on 760 px: a forward pass has 4 px."""
    text = f"pipeline deep {{ stages = 4, micro_batches = {micro_batches} }}"
    (scenario,) = parcost.load_text(text)
    ((_, chart),) = scenario.evaluate().result.timeline_charts
    numbers = {text for color, text in colored_texts(chart) if color == "#ffffff"}
    assert len(numbers) == shown


def test_a_title_is_escaped() -> None:
    """A file of another tool names its study, and a name of a file may hold a mark of direction."""
    chart = Chart(name="a", title="na\u200fme\n", spec={}, columns={}, rows=[])
    assert chart.title == r"na\u200fme\n"


def test_pipelines_of_one_file_have_different_titles() -> None:
    (scenario,) = parcost.load_text(
        "pipeline a { stages = 2, micro_batches = 2 }\npipeline b extends a { stages = 4 }"
    )
    titles = [chart.title for _, chart in scenario.evaluate().result.timeline_charts]
    assert titles == ["Passes of each device over time: a", "Passes of each device over time: b"]


def table(rows: Sequence[Mapping[str, Any]], *axes: str) -> PointTable:
    figures = {"step_time": PointFigure(title="step time", unit="s")}
    able = [{**row, "feasible": True, "reason": ""} for row in rows]
    return PointTable(kind="sweep", axes=dict.fromkeys(axes, ""), figures=figures, rows=able)


@pytest.mark.slow
def test_text_on_a_bright_cell_is_dark_and_on_a_dark_cell_white() -> None:
    rows = [{"a.tp": tp, "a.pp": pp, "step_time": float(tp * pp)} for tp in (1, 2) for pp in (1, 4)]
    (chart,) = [one for one in point_charts(table(rows, "a.tp", "a.pp")) if one.name == "map"]
    inks = {text: color for color, text in reversed(colored_texts(chart))}
    assert inks["1"] == inks["2"] == inks["4"] == "#1b1f24"
    assert inks["8"] == "#ffffff"  # the slowest, dark blue
    cells = {row["label"]: row["brightness"] for row in chart.rows}
    assert cells == {"1": 1.0, "2": pytest.approx(6 / 7), "4": pytest.approx(4 / 7), "8": 0.0}


@pytest.mark.slow
def test_an_axis_of_counts_has_whole_numbers() -> None:
    rows = [{"a.sequence": n, "step_time": float(n)} for n in (4096, 131072, 1048576)]
    charts = list(point_charts(table(rows, "a.sequence")))
    assert {"4,096", "131,072", "1,048,576"} <= set(texts(charts[0]))


@pytest.mark.slow
def test_a_legend_takes_as_many_columns_as_its_entries_fit(charts: Mapping[str, Chart]) -> None:
    entry = legend_entry_width(drawable(charts["memory"]))
    longest = max(len(cause) for cause in {row["cause"] for row in charts["memory"].rows})
    assert entry >= 6 * longest
    for width in (320, 500, 760):
        look = legend_style(entry, width)
        assert look["columns"] * entry <= max(width, entry)
        assert look["labelLimit"] >= 6 * longest


def test_each_cause_has_one_color_in_every_picture(charts: Mapping[str, Chart]) -> None:
    times = [v for n, v in vars(causes).items() if n.isupper() and isinstance(v, parcost.Cause)]
    assert len(times) > 15
    assert all(re.fullmatch("#[0-9A-F]{6}", cause.color) for cause in (*times, BUBBLE, REST))
    assert causes.OTHER == REST
    assert causes.OTHER.color == REST.color
    bars = charts["step"].spec["layer"][0]["encoding"]["color"]["scale"]
    colors = dict(zip(bars["domain"], bars["range"], strict=True))
    assert colors["compute"] == causes.COMPUTE.color
    assert colors["pipeline bubble"] == BUBBLE.color
    held = charts["memory"].spec["layer"][0]["encoding"]["color"]["scale"]
    assert dict(zip(held["domain"], held["range"], strict=True))["activations"] == (
        causes.ACTIVATIONS.color
    )


def test_a_cause_without_a_color_is_drawn_as_other() -> None:
    assert cause_scale(["stall"]) == {"domain": ["other"], "range": [REST.color]}
