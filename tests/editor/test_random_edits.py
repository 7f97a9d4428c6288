"""Specs that are edited at random: no lost server, and the diagnostics of `parcost check`."""

from __future__ import annotations

import json
import random
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path

import pytest
from editor_client import Editor
from lsprotocol import types as lsp
from pygls.exceptions import JsonRpcException

from parcost.language.escapes import escape_lines
from parcost_apps.cli import main
from parcost_apps.editor.positions import Lines

SPECS = sorted((Path(__file__).parents[2] / "specs").rglob("*.par"))
BITS = [
    *("{", "}", "=", "[", "]", "(", ")", '"', "\n", "\r\n", "\r", " ", "#", ".", "..", "/", "\x0c"),
    *("\u2028", "\x00", "\U0001f680", "é", "1e400", "99999999999999999", "8", "GB/s", "extends"),
    *("let q = 1\n", "tp = 8\n", 'use "x.par"\n', "study a {", '@vendor("x")', "<<<<<<< HEAD\n"),
    *("expect { mfu > 1 % }", "use catalog.devices.b200 as z\n", "auto"),
]  # fmt: skip
ROUNDS = 25
EDITS = 6


def check(path: Path, text: str) -> list[tuple[str, str, tuple[int, int] | None]]:
    """Return what the command finds in a file of *text*: id, message and place."""
    path.write_text(text, encoding="utf-8", newline="")
    out = StringIO()
    with redirect_stdout(out), redirect_stderr(StringIO()):
        main(["check", "--format", "json", str(path)])
    lines = Lines(text)
    starts = [0, *(at + 1 for at, character in enumerate(text) if character == "\n")]
    found = []
    for problem in json.loads(out.getvalue())["diagnostics"]:
        label = next(iter(problem["labels"]), None)
        place = None
        if label is not None and label["file"] == str(path):
            place = lines.position(starts[label["line"] - 1] + label["column"] - 1)
        remark = f": {label['text']}" if label and label["text"] else ""
        message = escape_lines(problem["message"] + remark)
        found.append((problem["id"], message, place and tuple(place)))
    return found  # type: ignore[return-value]  # a position is a pair


def shown_problems(editor: Editor, uri: str) -> list[tuple[str, str, tuple[int, int]]]:
    return [
        (str(d.code), d.message.split("\n")[0], (d.range.start.line, d.range.start.character))
        for d in editor.published[uri].diagnostics
    ]


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_random_edits_find_what_the_command_finds(editor: Editor, folder: Path, seed: int) -> None:
    rng = random.Random(seed)
    path = folder / "edited.par"
    for _ in range(ROUNDS):
        text = rng.choice(SPECS).read_text(encoding="utf-8")
        uri = editor.open("edited.par", text)
        for number in range(EDITS):
            start = rng.randrange(len(text) + 1)
            end = min(len(text), start + rng.choice([0, 0, 1, 3, 10, 80]))
            copied = rng.randrange(len(text)) if text else 0
            new = rng.choice([*BITS, text[copied : copied + rng.randrange(60)]])
            lines = Lines(text)
            where = lines.range(start, end)
            text = lines.replace(where, new)
            waits = number % 3 == 2
            change = lsp.Range(lsp.Position(*where.start), lsp.Position(*where.end))
            editor.change(uri, (change, new), wait=waits)
            ask(editor, uri, Lines(text).position(rng.randrange(len(text) + 1)))
            if waits:
                expected, found = check(path, text), shown_problems(editor, uri)
                assert sorted((i, m) for i, m, _ in found) == sorted(
                    (i, m.split("\n")[0]) for i, m, _ in expected
                )
                assert {e for e in expected if e[2] is not None} <= set(found)
        editor.close(uri)


def ask(editor: Editor, uri: str, place: tuple[int, int]) -> None:
    """Ask everything that an editor asks at a place."""
    place = (place[0], place[1])
    for name in ("hover", "definition", "completion", "references"):
        editor.request(name, uri, place)
    for name in ("code_lens", "document_symbol", "folding_range", "formatting"):
        editor.request(name, uri)
    whole = lsp.Range(lsp.Position(0, 0), lsp.Position(9999, 0))
    editor.request("code_action", uri, whole)
    try:
        editor.request("rename", uri, place, "fresh")
    except JsonRpcException as error:
        assert str(error)  # noqa: PT017  rejecting is an answer


@pytest.mark.slow
def test_a_file_of_ten_thousand_lines_is_answered(editor: Editor) -> None:
    block = "fabric f{0} {{\n  level n {{\n    size = 8 devices\n  }}\n}}\nlet v{0} = {0}\n"
    text = "".join(map(block.format, range(1700)))
    assert text.count("\n") > 10_000
    uri = editor.open("large.par", text)
    assert ("missing-attribute", "`n` lacks `bandwidth`, `latency`") in editor.problems(uri)
    for line in (0, 5000, 10_000):
        editor.change(uri, (lsp.Range(lsp.Position(line, 0), lsp.Position(line, 0)), "# x\n"))
    editor.change(uri, "cluster { }\n")
    assert len(editor.problems(uri)) < 10
