"""What ``parcost show --ranks`` and ``--stages`` print of a placement."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from parcost_apps.cli import main

SPEC = """
use catalog.devices.h100_sxm
use catalog.fabrics.hgx_h100
use catalog.models.llama3_70b
use catalog.precisions.bf16
cluster { devices = 64 }
layout { tp = 8, pp = 4, sequence_parallel = on }
training { sequence = 8192, global_batch = 32 sequences }
"""


Show = Callable[..., Any]


@pytest.fixture
def show(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Show:
    monkeypatch.setenv("COLUMNS", "200")

    def run(path: Path, *options: str, code: int = 0) -> Any:
        assert main(["show", str(path), *options]) == code
        out, err = capsys.readouterr()
        return err if code else json.loads(out) if "json" in options else out

    return run


@pytest.fixture
def spec(tmp_path: Path) -> Path:
    path = tmp_path / "job.par"
    path.write_text(SPEC, encoding="utf-8")
    return path


def test_ranks_are_shown_with_their_coordinates_members_and_nodes(spec: Path, show: Show) -> None:
    text = show(spec, "--ranks", "--format", "json")
    (section,) = text["studies"][0]["sections"]
    rows = [dict(zip(section["columns"], row, strict=True)) for row in section["rows"]]
    assert len(rows) == 64
    for rank, row in enumerate(rows):
        tp, dp, pp = rank % 8, rank // 8 % 2, rank // 16
        assert (row["rank"], row["node"]) == (rank, rank // 8)
        assert (row["tp"], row["cp"], row["dp"], row["pp"]) == (tp, 0, dp, pp)
        assert row["tp group"] == [rank - tp + i for i in range(8)]
        assert row["dp group"] == [rank - 8 * dp, rank - 8 * dp + 8]
        assert row["pp group"] == [rank - 16 * pp + 16 * i for i in range(4)]


def test_ranks_may_be_picked_and_members_are_shortened(spec: Path, show: Show) -> None:
    lines = show(spec, "--ranks=5,62-63").splitlines()
    rows = [line.split() for line in lines if line.strip()[:1].isdigit()]
    assert [row[0] for row in rows] == ["5", "62", "63"]
    assert " ".join(rows[0]) == "5 5 0 0 0 0 0-7 5-53 by 16 5, 13"


def test_stages_are_shown_with_their_layers_and_nodes(spec: Path, show: Show) -> None:
    text = show(spec, "--stages", "--format", "json")
    stages, fabric = text["studies"][0]["sections"]
    rows = [dict(zip(stages["columns"], row, strict=True)) for row in stages["rows"]]
    assert [row["layers"] for row in rows] == [list(range(20 * i, 20 * i + 20)) for i in range(4)]
    assert [row["node"] for row in rows] == [[0], [2], [4], [6]]
    assert [row["other parts"] for row in rows] == ["embedding", "-", "-", "head"]
    assert [row["next stage over"] for row in rows] == ["network", "network", "network", "-"]
    assert [row[0].split()[-1] for row in fabric["rows"]] == ["network", "node"]


def test_uneven_stages_and_chunks_are_shown_as_they_are_dealt(tmp_path: Path, show: Show) -> None:
    path = tmp_path / "uneven.par"
    path.write_text(SPEC + "schedule { stages = [10, 24, 24, 22] }", encoding="utf-8")
    text = show(path, "--stages", "--format", "json")
    rows = text["studies"][0]["sections"][0]["rows"]
    assert [(row[1][0], row[1][-1]) for row in rows] == [(0, 9), (10, 33), (34, 57), (58, 79)]


@pytest.mark.slow
def test_a_rank_that_is_not_there_is_a_mistake(spec: Path, show: Show) -> None:
    said = show(spec, "--ranks=64", code=2)
    assert "there is no rank 64: they are 0 to 63" in said
    assert str(spec) in said


@pytest.mark.parametrize("text", ["1..5", ",", "", "3,", "4-", "-4"])
def test_a_list_that_is_none_is_a_usage_error(spec: Path, show: Show, text: str) -> None:
    said = show(spec, f"--ranks={text}", code=2)
    assert f"`--ranks={text}` is not a list of numbers; write --ranks=0,5,8-15" in said


def test_a_range_that_counts_down_is_a_usage_error(spec: Path, show: Show) -> None:
    assert "`5-2` of `--ranks=0,5-2` must ascend: 2-5" in show(spec, "--ranks=0,5-2", code=2)


@pytest.mark.parametrize(
    "numbers, limit",
    [
        ("0-1000000000000", "lists more than 1,000,000 numbers"),
        ("0-600000,0-600000", "lists more than 1,000,000 numbers"),
        ("9" * 5000, "5,000 digits, and the limit is 18"),
    ],
)
@pytest.mark.parametrize("option", ["--ranks", "--stages"])
def test_a_list_of_too_many_numbers_is_a_usage_error(
    spec: Path, show: Show, option: str, numbers: str, limit: str
) -> None:
    assert limit in show(spec, f"{option}={numbers}", code=2)


@pytest.mark.parametrize(
    "arguments", [["--ranks", "FILE"], ["FILE", "--ranks"], ["--ranks=all", "FILE"]]
)
def test_options_that_stand_alone_may_stand_before_the_file(
    spec: Path, capsys: pytest.CaptureFixture[str], arguments: list[str]
) -> None:
    assert main(["show", *(str(spec) if a == "FILE" else a for a in arguments)]) == 0
    assert "Process groups of the ranks" in capsys.readouterr().out


@pytest.mark.slow
def test_a_list_may_follow_its_option_after_a_space(
    spec: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["show", "--stages", "1-2", str(spec), "--format", "json"]) == 0
    stages, _ = json.loads(capsys.readouterr().out)["studies"][0]["sections"]
    assert [row[0] for row in stages["rows"]] == [1, 2]


def test_a_refused_layout_has_no_stages(tmp_path: Path, show: Show) -> None:
    """DualPipe mirrors its devices: three of them have no order that could be looked at."""
    path = tmp_path / "odd.par"
    odd = SPEC.replace("devices = 64", "devices = 48").replace("pp = 4", "pp = 3")
    path.write_text(odd + "schedule { kind = dualpipe }", encoding="utf-8")
    said = show(path, "--stages", code=1)
    assert "dualpipe" in said
    assert "plugin" not in said


def test_a_sweep_has_no_single_placement(tmp_path: Path, show: Show) -> None:
    path = tmp_path / "sweep.par"
    path.write_text(SPEC.replace("tp = 8", "tp = [4, 8]"), encoding="utf-8")
    assert "a sweep has several placements" in show(path, "--ranks", code=2)


def test_the_process_groups_of_a_job_are_counted(tmp_path: Path, show: Show) -> None:
    """128 ranks as tp 8, dp 4, pp 4: 16 groups of 8, and twice 32 of 4."""
    path = tmp_path / "groups.par"
    path.write_text(SPEC.replace("devices = 64", "devices = 128"), encoding="utf-8")
    said = " ".join(show(path, "--ranks=0").split())
    assert "process groups: 16 tp groups of 8, 32 pp groups of 4, 32 dp groups of 4; 80" in said


def test_a_unit_that_is_not_full_is_a_whole_one(tmp_path: Path, show: Show) -> None:
    """33 nodes are 1.03 leaves of 32: two, with the last one."""
    path = tmp_path / "job.par"
    text = SPEC.replace("hgx_h100", "superpod_h100").replace("devices = 64", "devices = 264")
    text = text.replace("tp = 8, pp = 4", "tp = 8, pp = 1").replace("32 seq", "33 seq")
    path.write_text(text, encoding="utf-8")
    document = show(path, "--stages", "--format", "json")
    fabric = document["studies"][0]["sections"][-1]
    assert fabric["rows"][0][1] == 2
