"""``parcost timeline`` with formats, files and folders, and what it rejects."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from parcost.system import temporary
from parcost_apps.cli import main

PIPELINE = "pipeline q { stages = 2, micro_batches = 1, forward = 1 s, backward = 2 s, send_recv = 500 ms }\n"
STEP = """
use catalog.devices.h100_sxm
use catalog.fabrics.hgx_h100
use catalog.models.llama32_1b
use catalog.precisions.bf16
cluster  { devices = 4 }
layout   { pp = 2 }
training { sequence = 1024, global_batch = 4 sequences }
"""
FORMAT = """
from parcost import TimelineFileExporter, hookimpl


class Pickle(TimelineFileExporter):
    name = "odd"

    def save(self, traces, path):
        path.write_bytes(b"begun")
        raise ValueError("no \\x1b[31mjar")


@hookimpl
def timeline_exporters():
    return [Pickle()]
"""


def write(folder: Path, text: str) -> str:
    path = folder / "a.par"
    path.write_text(text, encoding="utf-8")
    return str(path)


@pytest.mark.slow
def test_a_pipeline_alone_is_traced(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["timeline", write(tmp_path, PIPELINE), "--format", "perfetto"]) == 0
    document = json.loads(capsys.readouterr().out)
    slices = [e for e in document["traceEvents"] if e["ph"] == "X"]
    sends = [e for e in slices if e["cat"] == "send_recv"]
    assert len(slices) - len(sends) == 4
    assert [(e["ts"], e["dur"]) for e in sends] == [(1e6, 0.5e6), (4.5e6, 0.5e6)]
    end = max(e["ts"] + e["dur"] for e in slices) / 1e6
    assert end == document["otherData"]["steps"][0]["step_seconds"] == 7.0  # 1 + 1 + 2 + 2, 2 hops


def test_a_pipeline_alone_has_no_ranks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spec, out = write(tmp_path, PIPELINE), tmp_path / "et"
    assert main(["timeline", spec, "--format", "chakra", "--out", str(out)]) == 2
    assert "pipeline `q` has no ranks or bytes" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["a.par"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--format", "perfeto"], "a timeline has no format `perfeto`; did you mean `perfetto`?"),
        (["--format", "chakra"], "`--format chakra` writes files: add --out FOLDER"),
        (["--ranks", "0"], "`--ranks` has no effect on `--format table`"),
        (["--format", "chakra", "--out", "x", "--ranks", "a"], "is not a list of numbers"),
        (["--format", "chakra", "--out", "{file}"], "is a file, but the format writes a folder"),
        (["--format", "chakra", "--out", "{folder}"], "is a folder that is not empty"),
        (["--format", "perfetto", "--out", "{folder}"], "Is a directory"),
    ],
)
def test_what_makes_no_sense_is_a_usage_error(
    options: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spec = write(tmp_path, PIPELINE)
    places = {"file": spec, "folder": str(tmp_path)}
    code = main(["timeline", spec, *(one.format(**places) for one in options)])
    assert code in (1, 2)
    assert message in " ".join(capsys.readouterr().err.split())
    assert [path.name for path in tmp_path.iterdir()] == ["a.par"]


def test_an_exporter_that_fails_is_named_and_leaves_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spec, out = write(tmp_path, PIPELINE), tmp_path / "x.odd"
    out.write_text("before", encoding="utf-8")
    plugin = tmp_path / "parcost_odd.py"
    plugin.write_text(FORMAT, encoding="utf-8")
    options = ["--plugin", str(plugin), "--format", "odd", "--out", str(out)]
    assert main(["timeline", spec, *options]) == 3
    err = capsys.readouterr().err
    assert "failed to write `odd`" in err
    assert "\x1b[31mjar" not in err
    assert out.read_text(encoding="utf-8") == "before"
    assert not list(tmp_path.glob(".x.odd*"))


@pytest.mark.slow
def test_a_folder_takes_the_place_of_an_empty_one(tmp_path: Path) -> None:
    spec, out = write(tmp_path, STEP), tmp_path / "et"
    out.mkdir()
    options = ["--format", "chakra", "--out", str(out), "--ranks", "0,3"]
    assert main(["timeline", spec, *options]) == 0
    assert sorted(path.name for path in out.iterdir()) == ["a.0.et", "a.3.et", "comm_group.json"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.par", "et"]
    groups: Any = json.loads((out / "comm_group.json").read_text(encoding="utf-8"))
    assert "0" not in groups


def test_several_steps_are_no_folder_of_traces(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spec, out = write(tmp_path, STEP), tmp_path / "et"
    options = ["--format", "chakra", "--out", str(out), "--set", "layout.pp=[1, 2]"]
    assert main(["timeline", spec, *options]) == 2
    err = capsys.readouterr().err
    assert "there are 2: `a` at layout.pp = 1, `a` at layout.pp = 2" in err
    assert not out.exists()


def test_a_folder_that_a_killed_run_left_is_removed(tmp_path: Path) -> None:
    left = tmp_path / ".et.abcd1234.part"
    left.mkdir()
    (left / "a.0.et").write_bytes(b"x")
    made = temporary.folder_beside(tmp_path / "et")
    assert not left.exists()
    made.replace(tmp_path / "et")
    assert (tmp_path / "et").is_dir()
