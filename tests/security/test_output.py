"""Names, paths and arguments act on no terminal, no spreadsheet and no workflow."""

from __future__ import annotations

import csv
import io
import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from parcost.language.diagnostics import Diagnostic
from parcost.language.escapes import escape_line, escape_lines
from parcost_apps.cli import streams
from parcost_formats.rendering.diagnostics import as_data
from parcost_formats.rendering.escapes import csv_cell, escape_json
from parcost_formats.reports.ci_formats import github

pytestmark = pytest.mark.slow

SPEC = """\
use catalog.devices.h100_sxm
use catalog.fabrics.hgx_h100
use catalog.models.llama3_8b
use catalog.precisions.bf16
cluster  { devices = 16 }
layout   { tp = 2, zero = 1, sequence_parallel = on }
training { sequence = 8192, global_batch = 32 sequences }
"""
Run = Callable[..., Any]

# ESC, one-byte CSI, bell, backspace, bidirectional override, isolate, zero width, a line of Unicode
ODD = "a\x1b[2J\x9b2J\x07\x08\u202e\u2066\u200b\u2028\x7fz"
ACTS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2066-\u2069]")
STUDIES = f'{SPEC}study "{ODD}" {{ layout {{ tp = 1 }} }}\n'
COMMANDS = {
    "show": ("show", "SPEC"),
    "show --ranks": ("show", "SPEC", "--ranks=0"),
    "show --stages json": ("show", "SPEC", "--stages", "--format", "json"),
    "fmt --diff": ("fmt", "--diff", "SPEC"),
    "fmt --check": ("fmt", "--check", "SPEC"),
    "check": ("check", "SPEC", "ODD"),
    "check github": ("check", "--format", "github", "ODD"),
    "check json": ("check", "--format", "json", "ODD"),
    "explain": ("explain", "SPEC", "mfu"),
    "figures": ("figures", "SPEC"),
    "timeline": ("timeline", "SPEC"),
    "timeline json": ("timeline", "SPEC", "--format", "json"),
    "search": ("search", "SPEC", "--over", "tp=1,2"),
    "usage": ("eval", ODD),
    "usage of an option": ("eval", "SPEC", f"--{ODD}"),
    "format": ("eval", "SPEC", "--format", ODD),
    "command": (ODD,),
    "set": ("eval", "SPEC", "--set", f"{ODD}=1"),
    "study": ("eval", "SPEC", "--study", ODD + "x"),
    "plugin": ("eval", "SPEC", "--plugin", ODD),
    "without": ("eval", "SPEC", "--without", ODD),
    "executor": ("eval", "SPEC", "--executor", f"{ODD}://x"),
    "calibrate": ("calibrate", ODD),
    "merge": ("merge", f"{ODD}.jsonl"),
    "out": ("eval", "SPEC", "--out", f"no/{ODD}"),
    "catalog": ("catalog", ODD),
    **{f: ("eval", "SPEC", "ODD", "--format", f) for f in ("table", "md", "json", "jsonl", "csv")},
}


@pytest.mark.parametrize("command", COMMANDS)
def test_nothing_acts_on_a_terminal(run: Run, command: str) -> None:
    good, bad = Path(f"{ODD}.par"), Path(f"{ODD}bad.par")
    good.write_text(f"# {ODD}\n{STUDIES}\n\n\n\n")
    bad.write_text(f'cluster {{ devices = "{ODD}" }} # {ODD}\nnothing {ODD}\n')
    names = {"SPEC": str(good), "ODD": str(bad)}
    done = run(*(names.get(word, word) for word in COMMANDS[command]))
    assert done.text
    assert not ACTS.findall(done.text)


@pytest.mark.parametrize("format_", ["json", "jsonl"])
def test_data_is_what_it_was(run: Run, format_: str) -> None:
    path = f"{ODD}.par"
    Path(path).write_text(STUDIES)
    out = run("eval", path, "--format", format_).out
    read = json.loads(out)
    (report,) = read["reports"] if format_ == "json" else [read]
    assert (report["path"], report["name"]) == (path, ODD)


def test_colours_are_all_that_acts_on_a_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    streams.put("\x1b[1mstep\x1b[0m\x1b]0;title\x07\n")
    assert capsys.readouterr().out == "\x1b[1mstep\x1b[0m\\x1b]0;title\\x07\n"


@pytest.mark.parametrize("first", ["=", "+", "-", "@"])
def test_no_cell_is_a_formula(run: Run, first: str) -> None:
    name = f"{first}HYPERLINK(0)"
    folder = Path(name)
    folder.mkdir()
    (folder / "a.par").write_text(SPEC + f'study "{name}" {{ }}\n')
    (folder / "b.par").write_text(SPEC.replace("tp = 2", "tp = 3"))
    done = run("eval", f"./{name}", name if first != "-" else f"./{name}/a.par", "--format", "csv")
    rows = list(csv.reader(io.StringIO(done.out)))
    cells = [cell for row in rows for cell in row]
    assert f"'{name}" in cells
    for cell in cells:
        assert not cell.startswith(("=", "@", "\t", "\r"))
        if cell.startswith(("+", "-")):
            float(cell)


def test_a_number_is_no_formula() -> None:
    assert csv_cell("-") == "'-"
    assert csv_cell("'=1") == "'=1"


def test_shards_with_such_names_are_joined_as_they_were(run: Run) -> None:
    Path("specs").mkdir()
    for i in range(2):
        text = SPEC.replace("8192", str(4096 * (i + 1)))
        Path(f"specs/={i}{ODD}.par").write_text(text + f'study "={ODD}" {{ }}\n')
    for format_ in ("csv", "json", "jsonl"):
        whole = run("eval", "specs", "--format", format_).out
        for part in (1, 2):
            arguments = ("--shard", f"{part}/2", "--format", format_, "--out", f"{part}.jsonl")
            assert run("eval", "specs", *arguments).code == 0
        assert run("merge", "1.jsonl", "2.jsonl").out == whole


def test_a_workflow_command_contains_only_the_problem() -> None:
    found = Diagnostic("x", "a\n::set-output name=a::b\r%0A\x1b[2J", place="a,b:c\n::error::.par")
    line = github(as_data(found))
    assert "\n" not in line
    assert "\r" not in line
    assert line.startswith("::error file=a%2Cb%3Ac")
    assert "\x1b" not in line


def test_each_way_out_spells_in_its_notation() -> None:
    assert escape_line("a\tb\u202e\n") == "a\\tb\\u202e\\n"
    assert escape_lines("a\tb\u202e\n") == "a\tb\\u202e\n"
    assert json.loads(escape_json(json.dumps({"a": ODD + "\U000e0001é"}, ensure_ascii=False))) == {
        "a": ODD + "\U000e0001é"
    }
