"""``parcost.search_layouts``: the search of the command line, for scripts and notebooks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import parcost
from parcost import SpecError
from parcost_apps.cli import main

SPEC = """
use catalog.devices.h100_sxm
use catalog.fabrics.hgx_h100
use catalog.models.llama3_8b
use catalog.precisions.bf16
cluster { devices = 16 }
layout { tp = 2, zero = 1 }
training { sequence = 4096, micro_batch = 1, global_batch = 32 sequences }
"""
OVER = {"layout.tp": [1, 2, 4], "layout.pp": [1, 2]}


@pytest.fixture(scope="module")
def found() -> parcost.SearchResult:
    (scenario,) = parcost.load_text(SPEC, "<b>.par")
    return parcost.search_layouts(scenario, over=OVER, axes=list(OVER), top=3)


@pytest.mark.slow
def test_the_best_are_those_of_single_evaluations(found: parcost.SearchResult) -> None:
    by_hand = []
    for tp in OVER["layout.tp"]:
        for pp in OVER["layout.pp"]:
            values = {"layout.tp": tp, "layout.pp": pp}
            (scenario,) = parcost.load_text(SPEC, overrides=values)
            report = scenario.evaluate()
            if report.exit_code == 0:
                by_hand.append((report.result.figure("step_time"), values))
    by_hand.sort(key=lambda one: one[0])
    assert [one.seconds for one in found.best] == pytest.approx([t for t, _ in by_hand[:3]])
    for layout, (_, values) in zip(found.best, by_hand, strict=False):
        assert {name: layout.values[name] for name in values} == values


@pytest.mark.slow
def test_rows_and_frames_have_the_ranking(found: parcost.SearchResult) -> None:
    rows = found.rows()
    assert [row["rank"] for row in rows] == [1, 2, 3]
    assert [row["step_time_seconds"] for row in rows] == sorted(x.seconds for x in found.best)
    frame = found.to_pandas()
    assert frame.to_dict("records") == [dict(row) for row in rows]


def test_a_search_result_is_short_and_a_table_in_a_notebook(found: parcost.SearchResult) -> None:
    assert repr(found).startswith(f"<SearchResult of {found.legal} legal layouts, proven: ")
    assert len(repr(found)) < 200
    html = found._repr_html_()
    assert html.count("<tr>") == 4
    assert "<th>layout.tp</th>" in html
    assert "<script" not in html


def test_an_objective_beside_the_step_time_has_a_column() -> None:
    (scenario,) = parcost.load_text(SPEC)
    found = parcost.search_layouts(scenario, over=OVER, axes=list(OVER), objective="mfu", top=2)
    assert [row["mfu"] for row in found.rows()] == [x.value for x in found.best]
    assert found.best[0].value > found.best[1].value
    assert "<th>" + found.objective.title + "</th>" in found._repr_html_()


@pytest.mark.slow
@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"objective": "mfuu"}, "mfuu"),
        ({"axes": ["layout.tpp"]}, "tpp"),
        ({"over": {"layout.tp": [3]}, "axes": ["layout.tp"]}, "heads-divide"),
    ],
)
def test_what_is_not_there_is_a_diagnostic(arguments: dict[str, Any], message: str) -> None:
    (scenario,) = parcost.load_text(SPEC)
    with pytest.raises(SpecError, match=message):
        parcost.search_layouts(scenario, **arguments)


@pytest.mark.slow
def test_samples_are_drawn_by_their_seed() -> None:
    (scenario,) = parcost.load_text(SPEC)
    draws = [
        parcost.search_layouts(scenario, over=OVER, samples=5, seed=seed) for seed in (1, 1, 2)
    ]
    values = [[dict(layout.values) for layout in found.best] for found in draws]
    assert values[0] == values[1] != values[2]
    assert all(found.legal == 5 <= found.sampled for found in draws)


@pytest.mark.slow
def test_the_command_line_has_the_same_ranking(
    found: parcost.SearchResult, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "a.par"
    path.write_text(SPEC, encoding="utf-8")
    over = ("--over", "layout.tp=1,2,4", "--over", "layout.pp=1,2", "--axes", "layout.tp,layout.pp")
    assert main(["search", str(path), *over, "--top", "3", "--format", "json"]) == 0
    layouts = json.loads(capsys.readouterr().out)["best"]
    assert [one["step_seconds"] for one in layouts] == [x.seconds for x in found.best]
