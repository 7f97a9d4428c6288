"""``parcost timeline``: what every device does when."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from parcost import Op
from parcost.contract.pipelines import Activity
from parcost_apps.cli import main
from parcost_formats.traces.drawing import draw

pytestmark = pytest.mark.slow

SPEC = """
use catalog.devices.h100_sxm
use catalog.fabrics.hgx_h100
use catalog.models.llama3_70b
use catalog.precisions.bf16
cluster  {{ devices = 32 }}
layout   {{ tp = 8, pp = 4, zero = 1, sequence_parallel = on }}
training {{ sequence = 8192, global_batch = 8 sequences }}
schedule {{ {schedule} }}
"""


def spec(folder: Path, schedule: str) -> str:
    path = folder / "pipeline.par"
    path.write_text(SPEC.format(schedule=schedule), encoding="utf-8")
    return str(path)


def phases(printed: str) -> list[list[str]]:
    """Return the rows of the table of phases."""
    rows = [line.split("  ") for line in printed.splitlines()]
    found = [[cell.strip() for cell in row if cell.strip()] for row in rows]
    return [row for row in found if len(row) == 7 and row[0].isdigit()]


def test_1f1b_warms_up_runs_in_pairs_and_drains(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["timeline", spec(tmp_path, "kind = one_f_one_b")]) == 0
    rows = phases(capsys.readouterr().out)
    # p - 1 - s forward passes, pairs of the rest, as many backward passes as at the start.
    assert [row[2:5] for row in rows] == [
        [str(3 - s), str(2 * (8 - 3 + s)), str(3 - s)] for s in range(4)
    ]
    assert [row[6] for row in rows] == ["4", "3", "2", "1"]


def test_gpipe_has_no_steady_state(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["timeline", spec(tmp_path, "kind = gpipe")]) == 0
    rows = phases(capsys.readouterr().out)
    assert [row[2:5] for row in rows] == [["8", "0", "8"]] * 4
    assert [row[6] for row in rows] == ["8"] * 4


def test_interleaving_deals_chunks_round(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["timeline", spec(tmp_path, "kind = interleaved, chunks = 2")]) == 0
    rows = phases(capsys.readouterr().out)
    assert [row[1] for row in rows] == ["0, 4", "1, 5", "2, 6", "3, 7"]


@pytest.mark.parametrize("width", [40, 80, 200])
def test_no_line_is_wider_than_the_page(
    width: int, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    for schedule in ("kind = dualpipe", "kind = zb_v, chunks = 2", "kind = chimera"):
        assert main(["timeline", spec(tmp_path, schedule)]) == 0
        printed = capsys.readouterr().out
        drawn = [line for line in printed.splitlines() if re.match("  device [0-9]", line)]
        assert len(drawn) == 4
        assert all(len(line) <= width for line in drawn)


def test_every_schedule_of_a_sweep_is_drawn(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["timeline", spec(tmp_path, "kind = [gpipe, one_f_one_b]")]) == 0
    printed = capsys.readouterr().out
    assert "gpipe on 4 pipeline devices" in printed
    assert "one_f_one_b on 4 pipeline devices" in printed


def test_a_sweep_in_arrays_has_no_timeline(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = spec(tmp_path, "overlap = [50 %, 100 %]")
    assert main(["timeline", path]) == 2
    assert "sweeps `schedule.overlap`, so it has no single timeline" in capsys.readouterr().err
    assert main(["timeline", path, "--set", "schedule.overlap=50 %"]) == 0


def test_a_study_that_cannot_run_has_a_reason(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["timeline", spec(tmp_path, "kind = zb_v")]) == 1
    assert "chunks = 2" in capsys.readouterr().err


def test_json_has_every_pass(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["timeline", spec(tmp_path, "kind = dualpipe"), "--format", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    (study,) = document["studies"]
    assert document["schema_version"] == 1
    passes = [
        (p["kind"], p["micro_batch"], p["stage"])
        for device in study["devices"]
        for activity in device
        for p in activity["passes"]
    ]
    assert len(passes) == len(set(passes))
    assert {p for p in passes if p[0] == "F"} == {("F", j, x) for j in range(8) for x in range(4)}
    for device in study["devices"]:
        ends = [0.0]
        for activity in device:
            assert activity["start_seconds"] >= ends[-1] - 1e-9
            ends.append(activity["end_seconds"])


def test_passes_are_as_wide_as_they_are_long_and_idle_time_is_dots() -> None:
    first = [Activity(Op("F", 0, 0), 0.0, 1.0), Activity(Op("BW", 0, 0), 4.0, 6.0)]
    last = [Activity(Op("F", 0, 1), 1.0, 2.0), Activity(Op("BW", 0, 1), 2.0, 4.0)]
    assert list(draw([first, last], 80)) == [
        "device 0  F0 .........B0---",
        "device 1  ...F0 B0--- ......",
    ]


@pytest.mark.parametrize(("stages", "each"), [(64, 4), (100, 7)])
def test_devices_of_a_deep_pipeline_are_drawn_in_groups(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], stages: int, each: int
) -> None:
    """Each line was dots. Stage s begins after s seconds, and ends its last pass 2 s seconds
    before the end, of 3 (m + p - 1) seconds."""
    path = tmp_path / "a.par"
    path.write_text(
        f"pipeline q {{ stages = {stages}, micro_batches = 128, forward = 1 s, backward = 2 s }}"
    )
    assert main(["timeline", str(path)]) == 0
    out = capsys.readouterr().out
    lines = [line.strip() for line in out.splitlines() if line.startswith("  devices ")]
    assert len(lines) == -(-stages // each)
    columns = 78 - len(lines[-1].split("  ")[0]) - 2
    end = 3 * (128 + stages - 1)
    for group, line in enumerate(lines):
        name, _, drawn = line.partition("  ")
        last = min((group + 1) * each, stages) - 1
        assert name == f"devices {group * each}-{last}"
        drawn = drawn.strip().rstrip(".")
        assert {"F", "B"} & set(drawn)
        first = next(i for i, sign in enumerate(drawn) if sign != ".") * end / columns
        assert group * each - end / columns <= first
        assert len(drawn) * end / columns <= end - 2 * group * each + end / columns
    assert f"leaves {stages - len(lines)} of {stages} devices and" in out
    assert out.count(" %") == len(lines)


def test_passes_without_any_time_are_drawn_as_nothing() -> None:
    device = [Activity(Op("F", 0, 0), 0.0, 0.0), Activity(Op("BW", 0, 0), 0.0, 0.0)]
    assert list(draw([device], 80)) == ["device 0  "]


def test_a_pipeline_block_is_drawn(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "a.par"
    text = "pipeline q { stages = 4, micro_batches = 4, forward = 1 s, backward = 2 s }\n"
    path.write_text(text, encoding="utf-8")
    assert main(["timeline", str(path)]) == 0
    out = capsys.readouterr().out
    assert "one_f_one_b on 4 pipeline devices, 4 micro-batches: 21 s" in out  # (p - 1 + m) (F + B)
    assert main(["timeline", str(path), "--format", "json"]) == 0
    (drawn,) = json.loads(capsys.readouterr().out)["studies"]
    assert drawn["pipeline"] == "q"
    last = drawn["devices"][3]
    assert last[0]["start_seconds"] == 3.0  # three forward passes before it
    assert [len(device) for device in drawn["devices"]] == [8] * 4


def test_a_pipeline_block_that_is_swept_has_no_single_timeline(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "a.par"
    text = "pipeline q { stages = 4, micro_batches = 4, forward = [1 s, 2 s] }\n"
    path.write_text(text, encoding="utf-8")
    assert main(["timeline", str(path)]) == 1
    assert "no timeline" in capsys.readouterr().err
