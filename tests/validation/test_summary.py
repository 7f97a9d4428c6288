"""Scores, groups and pages of a few rows, worked out by hand; nothing is predicted here."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from attrs import evolve

import parcost
from parcost.contract.page import Heading, Table
from parcost_measured.validation import documents, pages
from parcost_measured.validation.evaluation import Prediction, RowResult
from parcost_measured.validation.intervals import Coverage, Range, Ranges
from parcost_measured.validation.rows import Flaw, PlacedRow, RunRow
from parcost_measured.validation.scores import chance, quantile
from parcost_measured.validation.study import StudyText
from parcost_measured.validation.summary import (
    DIMENSIONS,
    Ranking,
    Summary,
    excess,
    half_width,
    memory_basis,
    ranges_of,
    summarize,
)
from parcost_plugins.vocabulary import Framework

from ..rows import try_each

Make = Callable[..., RunRow]
GB = 10**9


def case(row: RunRow, seconds: float | None, line: int = 1, **more: Any) -> RowResult:
    """Return a row of which a step of *seconds* is predicted, or none."""
    placed = PlacedRow(row=row, file="runs.jsonl", line=line)
    written = StudyText(text="", assumptions=[], framework=more.pop("framework", "x"))
    if seconds is None:
        return RowResult(placed=placed, written=written, reason="it has no step")
    known = {"memory": 0.0, "fits": True, "model_flops": seconds * 1e14, "peak": 3e14, **more}
    return RowResult(
        placed=placed, written=written, prediction=Prediction(step_time=seconds, **known)
    )


@pytest.fixture(scope="module")
def summary(row: Make) -> Summary:
    """Return three rows with errors of -20, +10 and +30 %, and one that could not be modelled."""
    ten = {"measured": {"step_time_s": 10.0}}
    a = row(id="a", source_key="one", core=True, measured={"step_time_s": 10.0, "memory_gb": 50})
    b = row(id="b", source_key="one", **ten)
    c = row(id="c", source_key="two", measured={"step_time_s": 10.0, "memory_gb": 20})
    return summarize(
        [
            # 3 s wide of 8 s, and the measured value is the end of it; 19 GB wide of 40 GB
            case(
                a, 8.0, memory=40.0 * GB,
                step_interval=(7.0, 10.0), memory_interval=(30.0 * GB, 49.0 * GB),
            ),
            case(b, 11.0, step_interval=(10.0, 14.0)),
            case(
                c, 13.0, memory=25.0 * GB, memory_interval=(10.0 * GB, 20.0 * GB),
                fits=False, framework="y",
            ),
            case(row(id="d"), None, line=4),
        ],
        [Flaw(file="runs.jsonl", line=9, id="", kind="unreadable", reason="no JSON")],
        {"colour": 2},
    )  # fmt: skip


def test_the_error_of_a_row(summary: Summary) -> None:
    a, b, c = summary.rows
    assert [one.error for one in (a, b, c)] == pytest.approx([-0.2, 0.1, 0.3])
    assert [one.ratio for one in (a, b, c)] == pytest.approx([10 / 8, 10 / 11, 10 / 13])
    assert [one.memory_error for one in (a, c)] == pytest.approx([-0.2, 0.25], rel=1e-12)
    assert [one.memory_ratio for one in (a, c)] == pytest.approx([1.25, 0.8], rel=1e-12)
    assert (b.memory_error, b.memory_ratio, b.memory_held) == (None, None, None)
    assert [one.step_in_interval for one in (a, b, c)] == [True, True, None]
    assert (a.memory_held, c.memory_held) == (False, True)
    # 80, 110 and 130 TFLOP/s were measured: at the median of them steps take 8, 11, 13 / 1.1
    assert [one.baseline for one in (a, b, c)] == pytest.approx([8 / 1.1, 10.0, 13 / 1.1])
    assert b.baseline_error == pytest.approx(0.0)
    assert c.baseline_error == pytest.approx(2 / 11)


def test_every_figure_of_a_group(summary: Summary) -> None:
    """Of two half-widths, 3 / 2 / 8 and 4 / 2 / 11, the median is the mean."""
    half = (3 / 2 / 8 + 4 / 2 / 11) / 2
    expected = {
        ("step", "mape", "all"): 0.2,
        ("step", "mean", "all"): 0.2 / 3,
        ("step", "p90", "all"): 0.28,
        ("step", "median", "one"): 0.15,
        ("step", "rejected", "all"): 1 / 3,
        ("step", "rejected", "one"): 0.0,
        ("step", "coverage", "all"): 1.0,
        ("step", "coverage", "two"): None,
        ("step", "half-width", "all"): half,
        ("memory", "mape", "all"): 0.225,
        ("memory", "mean", "all"): 0.025,
        ("memory", "mape", "y"): 0.25,
        ("memory", "coverage", "all"): 0.5,
        ("memory", "half-width", "all"): (19 / 2 / 40 + 10 / 2 / 25) / 2,
        ("memory", "half-width", "two"): 10 / 2 / 25,
        ("step", "mape", "nobody"): None,
        ("step", "regret", "all"): None,
        ("step", "pairs", "all"): None,
    }
    found = {asked: summary.value(*asked) for asked in expected}
    assert found == {asked: value and pytest.approx(value) for asked, value in expected.items()}
    # the baseline is off by 3 / 11 and nothing in the one, by 2 / 11 in the other
    assert summary.mean_over("source") == pytest.approx((0.225, (1.5 / 11 + 2 / 11) / 2))
    assert summary.mean_over("none") is None


def test_groups_and_what_is_left_out(summary: Summary) -> None:
    assert [(g.dimension, g.name, g.step.n) for g in summary.groups] == [
        ("all", "all", 3),
        ("once", "once", 3),
        ("core", "core", 1),
        ("source", "one", 2),
        ("source", "two", 1),
        ("device", "A100-80GB", 3),
        ("nodes", "2 to 8", 3),
        ("model", "dense", 3),
        ("precision", "fp16", 3),
        ("framework", "x", 2),
        ("framework", "y", 1),
    ]
    assert summary.all is not None
    assert summary.all.worst == ["c", "a", "b"]
    assert [(basis, s.n) for basis, s in summary.memory] == [("not stated", 2)]
    assert [(f.line, f.kind, f.reason) for f in (*summary.unmodelled, *summary.flaws)] == [
        (4, "unmodelled", "it has no step"),
        (9, "unreadable", "no JSON"),
    ]


def test_the_worst_rows_are_as_many_of_each_source(row: Make) -> None:
    """Errors of 50, -40, 30 and 30 % in the one, 10 and -20 % in the other."""
    errors = {"a": 0.5, "b": -0.4, "d": 0.3, "c": 0.3, "x": 0.1, "y": -0.2}
    cases = [
        case(
            row(id=id, source_key="one" if id < "x" else "two", measured={"step_time_s": 1.0}),
            1.0 + error,
        )
        for id, error in errors.items()
    ]
    both, one = summarize(cases, [], {}), summarize(cases[:4], [], {})
    ids = {n: "".join(found.row.id for found in both.worst(n)) for n in range(7)}
    assert ids == {0: "", 1: "a", 2: "ay", 3: "aby", 4: "abyx", 5: "abcyx", 6: "abcyx"}
    assert "".join(found.row.id for found in one.worst(3)) == "abc"
    assert summarize([], [], {}).worst(2) == []


def test_a_configuration_that_was_measured_twice_counts_once(row: Make) -> None:
    """Errors of 40 % twice and 10 % once: 30 % of all, and 25 % with a half for each of the two."""
    second = {"measured": {"step_time_s": 1.0, "memory_gb": 2}}
    cases = [
        case(row(id="a", extra={"dup_group": "x"}, **second), 1.4),
        case(row(id="b", extra={"dup_group": "x"}, **second), 1.4),
        case(row(id="c", **second), 1.1),
    ]
    summary = summarize(cases, [], {})
    found = {group.name: group.step.mape for group in summary.groups}
    assert (found["all"], found["once"]) == pytest.approx((0.3, 0.25))
    assert [one.memory_ratio for one in summary.rows] == [None] * 3  # of a prediction of none


def test_nodes_by_how_many_there_are(row: Make) -> None:
    nodes = {1: "1", 2: "2 to 8", 8: "2 to 8", 9: "9 to 64", 64: "9 to 64", 65: "65 to 512"}
    nodes |= {512: "65 to 512", 513: "over 512"}
    for count, name in nodes.items():
        assert DIMENSIONS["nodes"](row(hardware__gpus=8 * count), "") == name
    assert DIMENSIONS["nodes"](row(hardware__gpus_per_node=None), "") == "not stated"


@try_each("numbers, factor", [("bf16", 1), ("fp8", 2), ("mxfp8", 2), ("nvfp4", 4), ("mxfp4", 4)])
def test_nothing_computes_beyond_its_peak(numbers: str, factor: int, row: Make) -> None:
    """800 TFLOP in 2 s are 400 TFLOP/s, and a narrower type is that much faster."""
    one = row(precision_class=numbers, measured={"step_time_s": 2.0})
    assert excess(case(one, 8.0, peak=4e14 / factor)) == ""
    assert excess(case(one, 8.0, peak=0.0)) == ""
    assert excess(case(one, 8.0, peak=2e14 / factor)) == (
        "a step of 2 s is an MFU of 200 %: 400 TFLOP/s of a peak of 200"
    )
    summary = summarize([case(one, 8.0, peak=3.9e14 / factor)], [], {})
    assert (len(summary.rows), [flaw.kind for flaw in summary.flaws]) == (0, ["absurd"])


def test_a_ranking_is_of_layouts_whose_repeats_agree(row: Make) -> None:
    """Layouts by the micro-batch. One measured in 3.0 and 3.06 s counts with 3.03 s.

    Another in 4.0 and 4.2 s is left out. The first two are 1 % apart and no pair.
    """
    measured = [(3.0, 3.06), (3.0,), (4.0, 4.2), (5.0,), (6.0,)]
    predicted = [1.0, 2.0, 3.0, 5.0, 4.0]

    def run(i: int, seconds: float, recompute: str = "none") -> RowResult:
        one = row(
            id=f"{recompute}{i}{seconds}",
            batch__micro=i + 1,
            recompute=recompute,
            measured={"step_time_s": seconds},
        )
        return case(one, predicted[i])

    cases = [run(i, seconds) for i, times in enumerate(measured) for seconds in times]
    few = [run(i, seconds, "full") for i, (seconds, *_) in enumerate(measured[:2])]
    (found,) = summarize([*cases, *few], [], {}).rankings
    assert found.layouts == 4
    assert found.regret == pytest.approx(0.01)  # 3.03 s where 3 s were possible
    assert found.chance == pytest.approx((3.03 + 3 + 5 + 6) / 4 / 3 - 1)
    assert (found.ordered, found.pairs) == (4, 5)  # 5 before 6 s is wrong


def test_composed_rows_are_in_a_group_of_their_own(row: Make) -> None:
    rows = [case(row(id="a", measured={"step_time_s": 10.0}), 11.0)]
    rows += [case(row(id="b", synthetic=True, measured={"step_time_s": 10.0}), 19.0)]
    summary = summarize(rows, [], {})
    assert [one.row.id for one in summary.rows] == ["a"]
    (composed,) = summary.groups_by("composed")
    assert composed.step.mape == pytest.approx(0.9)
    assert summary.all is not None
    assert summary.all.step.mape == pytest.approx(0.1)
    found, _ = tables(summary, 2)
    assert [line[:3] for line in found if line[0].startswith("composed")] == [
        ["composed step times (not above)", "1", "90.0 %"]
    ]
    groups = json.loads(documents.to_json(summary))["groups"]
    assert groups["composed"]["composed"]["n"] == 1


def test_rows_with_adapters_are_in_no_other_group(row: Make) -> None:
    tuning = {"kind": "lora", "rank": 8, "targets": "q, v"}
    rows = [case(row(id="a", measured={"step_time_s": 10.0}), 11.0)]
    rows += [case(row(id="b", tuning=tuning, measured={"step_time_s": 10.0}), 15.0)]
    summary = summarize(rows, [], {})
    assert [[one.row.id for one in part] for part in (summary.rows, summary.adapters)] == [
        ["a"],
        ["b"],
    ]
    assert summary.all is not None
    assert summary.all.step.mape == pytest.approx(0.1)
    assert {group.name: group.step.n for group in summary.groups_by("adapters")} == {
        "adapters": 1,
        "A100-80GB": 1,
    }
    found, _ = tables(summary, 2)
    assert ["adapters on frozen weights (not above)", "1", "50.0 %"] in [line[:3] for line in found]
    document = json.loads(documents.to_json(summary))
    assert [one["id"] for one in document["adapters"]] == ["b"]
    assert documents.to_csv(summary).count("\n") == 3


def test_a_group_of_eight_that_a_constant_rate_beats_is_listed(row: Make) -> None:
    """All eight rows run at one rate, and predictions are 10 % off."""
    slow = [
        case(row(id=f"{i}", measured={"step_time_s": 10.0}), 11.0, model_flops=1e15)
        for i in range(8)
    ]
    worse = {(group.dimension, group.name) for group in summarize(slow, [], {}).worse}
    assert {("all", "all"), ("device", "A100-80GB"), ("framework", "x")} <= worse
    assert summarize(slow[:7], [], {}).worse == []
    found, _ = tables(summarize(slow, [], {}), 0)
    assert ["all", "all rows", "8", "10.0 %", "0.0 %"] in found


def test_rows_that_are_younger_than_their_profile_are_counted(row: Make) -> None:
    """The profile is of 2024 and 2025; a container of 26.02 counts as 2026, whatever the source."""
    framework = parcost.load_text(
        'framework x { issue = 9 us, first_year = 2024, last_year = 2025, checked = "a" }\n'
    )[0].first.all(Framework)[-1]
    rows = [row(id="a", year=2025), row(id="b", year=2026)]
    rows.append(row(id="c", year=2025, extra={"release": "26.02"}))
    found = summarize([case(one, 1.0) for one in rows], [], {}, None, {"x": framework})
    (age,) = found.profiles
    assert (age.rows, age.newer, age.checked) == (3, 2, "a")
    assert age.warning == "`x` describes releases up to 2025, and 2 of its 3 rows are newer"
    tables_, _ = tables(found, 0)
    assert ["x", "2024 to 2025", "3", "2", "16.7 %", "a"] in tables_
    assert json.loads(documents.to_json(found))["profiles"][0]["newer"] == 2


def test_what_a_memory_is_of(row: Make) -> None:
    for changes, basis in (
        ({"extra": {"memory_basis": "torch"}, "notes": "nvidia-smi"}, "torch"),
        ({"notes": "NVIDIA-SMI, reserved"}, "device"),
        ({"extra": {"peak_memory_gib": 3.0}}, "reserved"),
        ({"notes": "Peak reserved, allocated"}, "reserved"),
        ({"notes": "Peak allocated"}, "allocated"),
        ({}, "not stated"),
    ):
        assert memory_basis(row(**changes)) == basis


def test_runs_are_of_kinds_by_model_device_and_framework(row: Make) -> None:
    """Runs of two folds of models: 12 of GPT 0 to 11, measured / predicted from 1.00 to 1.11."""
    rows = summarize(
        [
            case(
                row(
                    id=f"{i}",
                    model__name=f"GPT {i}",
                    measured={"step_time_s": 1.0 + i / 100, "memory_gb": 2.0},
                ),
                1.0,
                memory=GB * 1.0,
            )
            for i in range(12)
        ],
        [],
        {},
    ).rows
    found = ranges_of(rows, {"a100_sxm_80g": "ampere"})
    assert set(found["step_time"].by_kind) == {
        ("dense", "", ""), ("dense", "ampere", ""), ("dense", "ampere", "x")
    }  # fmt: skip
    (memory,) = found["memory"].by_kind.values()
    assert (memory.runs, memory.models, memory.low) == (12, 12, 1.0)
    assert memory.high == pytest.approx(2.0)
    assert set(ranges_of(rows, {})["step_time"].by_kind) == {("dense", "", ""), ("dense", "", "x")}


# --- pages and documents ------------------------------------------------------------------


def ranking(name: str, regret: float, chance: float, ordered: int, pairs: int) -> Ranking:
    return Ranking(
        source=name.partition(", ")[0],
        name=name,
        layouts=9,
        regret=regret,
        chance=chance,
        ordered=ordered,
        pairs=pairs,
    )


RANKINGS = [
    ranking("one, GPT", 0.04, 0.2, 30, 36),
    ranking("one, BERT", 0.01, 0.5, 9, 14),
    ranking("two, GPT", 0.10, 0.5, 0, 0),
]


@pytest.fixture(scope="module")
def ranked_summary(summary: Summary) -> Summary:
    """Return the rows with three rankings, and intervals by models left out."""
    whole = Range(kind=("any", "", ""), runs=3, models=3, low=0.5, high=1.5)
    left_out = Coverage(n=1234, share=0.75, half_width=0.125)
    ranges = Ranges(share=0.9, by_kind={whole.kind: whole}, left_out=left_out)
    return Summary(
        rows=summary.rows,
        groups=summary.groups,
        rankings=RANKINGS,
        memory=summary.memory,
        left_out={"step_time": ranges},
        unmodelled=summary.unmodelled,
        flaws=summary.flaws,
        unknown=summary.unknown,
    )


def test_the_ranking_is_the_mean_of_its_groups(ranked_summary: Summary) -> None:
    assert ranked_summary.regret == pytest.approx(0.05)
    assert ranked_summary.chance == pytest.approx(0.4)
    assert ranked_summary.pairs == pytest.approx(39 / 50)
    assert ranked_summary.value("step", "regret", "all") == pytest.approx(0.05)
    assert ranked_summary.value("step", "pairs", "all") == pytest.approx(0.78)


PAGE = """
| rows | n | MAPE | median | signed | p90 | const. MFU | rejected |
| all rows | 3 | 20.0 % | 20.0 % | +6.7 % | 28.0 % | 15.2 % * | 1 |
| each configuration once | 3 | 20.0 % | 20.0 % | +6.7 % | 28.0 % | 15.2 % * | 1 |
| at most 2 per source, device and model | 1 | 20.0 % | 20.0 % | -20.0 % | 20.0 % | 27.3 % | 0 |
| mean over sources | | 22.5 % | | | | 15.9 % | |
| error | rows | |
| -20 to -10 % | 1 | ======================================== |
| -10 to 0 % | 0 | |
| 0 to +10 % | 0 | |
| +10 to +20 % | 1 | ======================================== |
| +20 to +30 % | 0 | |
| +30 to +40 % | 1 | ======================================== |
| source | n | MAPE | median | signed | p90 | const. MFU | rejected |
| one | 2 | 15.0 % | 15.0 % | -5.0 % | 19.0 % | 13.6 % * | 0 |
| two | 1 | 30.0 % | 30.0 % | +30.0 % | 30.0 % | 18.2 % * | 1 |
| source | groups | layouts | regret | by chance | pairs | right order |
| one | 2 | 18 | 2.5 % | 35.0 % | 50 | 78.0 % |
| two | 1 | 9 | 10.0 % | 50.0 % | 0 | |
| all | 3 | 27 | 5.0 % | 40.0 % | 50 | 78.0 % |
| measured | n | MAPE | median | signed | p90 |
| not stated | 2 | 22.5 % | 22.5 % | +2.5 % | 24.5 % |
| all | 2 | 22.5 % | 22.5 % | +2.5 % | 24.5 % |
| rows | n | coverage | half-width | n (memory) | coverage | half-width |
| all rows | 2 | 100.0 % | 18.5 % | 2 | 50.0 % | 21.9 % |
| row | measured | predicted | error |
| c | 10 s | 13 s | +30.0 % |
| a | 10 s | 8 s | -20.0 % |
| row | reason |
| d | it has no step |
| line 9 | no JSON |
"""


def tables(summary: Summary, worst: int) -> tuple[list[list[str]], str]:
    """Return the rows of all tables of a page, those of titles among them, and its text."""
    items = [*pages.page(summary, worst)]
    rows: list[list[str]] = []
    for item in items:
        if isinstance(item, Table):
            rows += [[c.title for c in item.columns], *([*line.cells] for line in item.rows)]
    return rows, "\n".join(item.text for item in items if not isinstance(item, Table))


def test_the_page_has_every_figure(ranked_summary: Summary) -> None:
    found, text = tables(ranked_summary, 2)
    rows = [[cell.strip() for cell in line[1:-1].split("|")] for line in PAGE.split("\n")]
    assert [row for row in rows if row != [""] and row not in found] == []
    levels = {
        item.text: item.level for item in pages.page(ranked_summary, 2) if isinstance(item, Heading)
    }
    assert levels["Predicted against measured: 3 runs of 2 sources"] == 1
    assert (levels["Step time"], levels["Predicted over measured"]) == (2, 3)
    assert ranked_summary.all is not None
    alike = pages._row(evolve(ranked_summary.all, baseline=ranked_summary.all.step))
    assert alike.cells[-2] == "20.0 %"  # no star
    for sentence in (
        "A group has 3 or more layouts",
        "In no group of 8 or more rows.",
        "step time hold 75.0 % of 1,234 rows, with a half-width of 12.5 %.",
        "90 % intervals",
        "Unknown fields (ignored): `colour` (2).",
        "1 row that cannot be modeled:",
    ):
        assert sentence in text


def test_the_picture_has_a_dot_for_each_row(ranked_summary: Summary) -> None:
    entry = pages.to_entry(ranked_summary, 2)
    (chart,) = entry.charts()
    assert chart.title == "Predicted over measured"
    assert [row["id"] for row in chart.rows if row["kind"] == "run"] == [
        one.row.id for one in ranked_summary.rows
    ]
    assert any("10 s" in row.cells for item in entry.page() for row in getattr(item, "rows", ()))


def test_names_and_reasons_may_take_several_lines(ranked_summary: Summary) -> None:
    flexible = [
        column.title
        for item in pages.page(ranked_summary, 2)
        if isinstance(item, Table)
        for column in item.columns
        if column.flexible
    ]
    assert flexible == ["row", "reason", "reason"]  # of the worst, and of two kinds left out


def test_a_page_of_nothing() -> None:
    _, text = tables(summarize([], [], {}), 3)
    for line in (
        "No job was measured in 3 layouts or more.",
        "No selected row has measured memory.",
        "Predictions have no intervals.",
        "No row was left out, and no field was unknown.",
    ):
        assert line in text
    many = [Flaw(file="f", line=n, id=f"r{n}", kind="absurd", reason="x") for n in range(1, 23)]
    for flaws, last in ((many[:20], "r20"), (many[:21], "and 1 more"), (many, "and 2 more")):
        rows, _ = tables(summarize([], flaws, {}), 0)
        assert rows[-1][0] == last


def test_half_a_width_is_of_the_prediction() -> None:
    assert half_width((2.0, 6.0), 4.0) == 0.5


def test_the_document_has_every_figure(ranked_summary: Summary) -> None:
    text = documents.to_json(evolve(ranked_summary, unknown={"Größe": 2}))
    assert text.startswith('{\n "rows": 3,\n')
    assert '"Größe": 2' in text
    document = json.loads(text)
    assert document["mean_over_sources"] == {"mape": 22.5, "baseline": 15.9091}
    assert document["rejected"] == ["c"]
    assert document["intervals_left_out"] == {
        "step_time": {"n": 1234, "coverage": 75.0, "half_width": 12.5}
    }
    assert document["ranking"]["regret"] == 5.0
    assert document["ranking"]["by_group"][2] == {
        "name": "two, GPT", "layouts": 9, "regret": 10.0, "chance": 50.0, "ordered": 0, "pairs": 0
    }  # fmt: skip
    one = document["groups"]["all"]["all"]
    assert one["memory"] == {"n": 2, "mape": 22.5, "median": 22.5, "mean": 2.5, "p90": 24.5}
    assert one["memory_interval"] == {"n": 2, "coverage": 50.0, "half_width": 21.875}
    first = {
        "measured_seconds": 10.0, "predicted_seconds": 8.0, "error_percent": -20.0,
        "predicted_seconds_low": 7.0, "predicted_seconds_high": 10.0, "held": True,
        "measured_memory_bytes": 5e10, "predicted_memory_bytes": 4e10,
        "predicted_memory_low_bytes": 3e10, "predicted_memory_high_bytes": 4.9e10,
        "memory_held": False, "memory_error_percent": -20.0, "memory_basis": "not stated",
        "fits": True, "core": True, "devices": 16,
    }  # fmt: skip
    assert {name: document["runs"][0][name] for name in first} == first
    lines = [line.split(",") for line in documents.to_csv(ranked_summary).splitlines()[:3:2]]
    second = dict(zip(*lines, strict=True))
    assert (second["held"], second["measured_memory_bytes"], second["fits"]) == ("yes", "", "yes")


# --- scores -------------------------------------------------------------------------------


def test_a_weighted_quantile_stands_at_the_middle_of_its_weight() -> None:
    """Weights 1, 3 and 1: middles at 0, 2 and 4, of which a quarter is halfway to the second."""
    weights = [1.0, 3.0, 1.0]
    for share, value in ((0.0, 10.0), (0.25, 15.0), (0.5, 20.0), (0.75, 40.0), (1.0, 60.0)):
        assert quantile([60.0, 20.0, 10.0], share, [1.0, 3.0, 1.0]) == pytest.approx(value)
    assert quantile([7.0], 0.9, weights[:1]) == 7.0


def test_a_layout_by_chance_takes_the_mean() -> None:
    assert chance([5.0, 10.0, 6.0]) == pytest.approx(0.4)


@try_each(
    "basis, measured, error, held",
    [
        ("device", 50.0, -0.2, True),  # 40 GB, in 30 to 60
        ("reserved", 40.0, -0.25, True),  # 30 GB, in 22.5 to 45
        ("reserved", 46.0, 30 / 46 - 1, False),
        ("allocated (peak, rank 0)", 25.0, -0.2, True),  # 20 GB, in 15 to 30
        ("not stated", 50.0, -0.2, True),
    ],
)
def test_memory_is_compared_by_the_counter_that_was_read(
    row: Make, basis: str, measured: float, error: float, held: bool
) -> None:
    counters = {"reserved": 30.0 * GB, "allocated": 20.0 * GB}
    one = row(measured={"step_time_s": 10.0, "memory_gb": measured}, extra={"memory_basis": basis})
    predicted = case(
        one, 10.0, memory=40.0 * GB, counters=counters, memory_interval=(30.0 * GB, 60.0 * GB)
    )
    (found,) = summarize([predicted], (), ()).rows
    assert found.memory_error == pytest.approx(error)
    assert found.memory_held is held
