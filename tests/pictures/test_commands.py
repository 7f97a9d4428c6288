"""Commands that draw: those of the guide, and what is wrong with an option."""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from parcost_apps.cli import main

ROOT = Path(__file__).parents[2]
GUIDE = (ROOT / "docs" / "guide" / "pictures.md").read_text(encoding="utf-8")
TOP = GUIDE.partition("\n## ")[0]  # the commands behind it run elsewhere, in their own test
COMMANDS = re.findall(r"^parcost (.*)$", TOP, re.MULTILINE)


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_of_the_guide_draws(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    *arguments, name = shlex.split(command)
    target = tmp_path / name
    assert main([*arguments, str(target)]) == 0
    text = target.read_text(encoding="utf-8")
    if target.suffix == ".svg":
        root = ET.fromstring(text)
        marks = [e for e in root.iter() if e.get("role") == "graphics-symbol" and e.get("d")]
        assert len(marks) > 8
        assert all(mark.find("{*}title") is not None for mark in marks)
    else:
        assert text.count("<figure ") >= 2


def test_the_guide_lists_the_pictures_of_a_step(charts: Any) -> None:
    assert len(COMMANDS) == 5
    for name in charts:
        assert f"\n| `{name}` |" in GUIDE


@pytest.fixture
def file(spec: str, tmp_path: Path) -> str:
    path = tmp_path / "study.par"
    path.write_text(spec, encoding="utf-8")
    return str(path)


@pytest.mark.slow
def test_an_unknown_picture_is_bad_input_with_the_nearest_name(
    file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["eval", file, "--format", "svg", "--picture", "memroy"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert "no picture is called `memroy`; did you mean `memory`?" in err
    assert main(["eval", file, "--format", "svg", "--picture", "zzz"]) == 2
    assert "it has step, memory, pipeline, roofline, levers, collectives" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["eval", "--picture", "memory"], "`--format table`, which draws no pictures"),
        (["eval", "--format", "png"], "`--format png` writes files: add --out FILE"),
        (["timeline", "--format", "png"], "`--format png` writes files: add --out FILE"),
        (["timeline", "--format", "svg", "--ranks", "0"], "`--ranks` has no effect"),
        (["search", "--format", "html", "--sample", "3"], "pictures show all"),
        (["search", "--format", "png"], "`--format png` writes files: add --out FILE"),
        (["search", "--format", "svgg"], "a search has no format `svgg`; did you mean `svg`?"),
        (["search", "--format", "zzz"], "formats are html, json, png, svg, table"),
        (["search", "--rank", "2"], "`--rank` selects the layout that `--emit TOOL` writes"),
        (["search", "--emit", "megatron", "--format", "json"], "with `--out FILE`"),
        (["search", "--emit", "megatron", "--format", "svg"], "`--format svg` writes pictures"),
        (["timeline", "--format", "svgg"], "a timeline has no format `svgg`; did you mean `svg`?"),
        (["timeline", "--format", "zzz"], "json, perfetto, png, svg, table"),
    ],
)
def test_options_that_contradict_are_refused(
    file: str, arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    command, *options = arguments
    assert main([command, file, *options]) == 2
    assert says in capsys.readouterr().err


STRIP = """
from parcost import Exporter, hookimpl

class Strip(Exporter):
    name = "strip"
    reads = "charts"

    def write(self, entries, paper):
        for entry in entries:
            yield " ".join(chart.name for chart in entry.charts())

@hookimpl
def exporters():
    return [Strip()]
"""


@pytest.mark.slow
def test_a_format_of_a_plugin_draws_wherever_pictures_are_drawn(
    file: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plugin = tmp_path / "strip.py"
    plugin.write_text(STRIP, encoding="utf-8")
    own = ("--plugin", str(plugin), "--format", "strip")
    assert main(["timeline", file, *own]) == 0
    assert capsys.readouterr().out == "pipeline"
    over = ("--axes", "layout.tp,layout.pp")
    assert main(["search", file, *over, *own]) == 0
    assert capsys.readouterr().out == "map front"
    assert main(["search", file, *own, "--without", "html", "--rank", "1"]) == 2


@pytest.mark.slow
def test_nothing_to_draw_is_bad_input(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["eval", file, "--format", "svg", "--set", "layout.tp=7"]) == 2
    out, err = capsys.readouterr()
    assert (out, "error[nothing-to-draw]: there is nothing to draw" in err) == ("", True)


@pytest.mark.slow
@pytest.mark.parametrize(("format_", "library"), [("html", "jinja2"), ("svg", "vl_convert")])
def test_a_library_that_is_not_installed_is_named(
    file: str,
    format_: str,
    library: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    assert main(["eval", file, "--format", format_, "--picture", "step"]) == 2
    err = capsys.readouterr().err
    assert "pip install 'parcost[pictures]'" in err
    assert "Traceback" not in err


@pytest.mark.slow
def test_png_is_an_image_of_the_picture(file: str, tmp_path: Path) -> None:
    target = tmp_path / "step.png"
    assert main(["eval", file, "--format", "png", "--picture", "step", "--out", str(target)]) == 0
    data = target.read_bytes()
    assert data.startswith(b"\x89PNG\r\n\x1a\n")
    width, height = (int.from_bytes(data[at : at + 4]) for at in (16, 20))
    assert width > 1500  # at two pixels for each of a drawing of 760
    assert height > 300


@pytest.mark.slow
def test_a_sweep_has_no_timeline_to_draw(
    spec: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "swept.par"
    path.write_text(spec.replace("tp = 2", "tp = [1, 2]"), encoding="utf-8")
    assert main(["timeline", str(path), "--format", "svg"]) == 2
    assert "sweeps `layout.tp`, so it has no single timeline" in capsys.readouterr().err
