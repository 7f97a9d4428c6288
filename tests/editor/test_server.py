"""`parcost lsp` as an editor meets it: over stdin and stdout, while someone types."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from editor_client import START, Editor
from lsprotocol import types as lsp
from pygls.exceptions import JsonRpcException
from spec_text import SPEC, place_of

from parcost_apps.cli import main
from parcost_apps.editor import command


def span(start: tuple[int, int], end: tuple[int, int]) -> lsp.Range:
    return lsp.Range(lsp.Position(*start), lsp.Position(*end))


def locate(text: str, part: str, delta: int = 0) -> tuple[int, int]:
    return place_of(text, part, delta)


def lens_texts(editor: Editor, uri: str) -> list[str]:
    return [lens.command.title for lens in editor.request("code_lens", uri)]


@pytest.mark.slow
def test_a_spec_is_answered_while_it_is_typed(editor: Editor) -> None:
    uri = editor.open("typed.par", SPEC)
    assert editor.problems(uri) == []
    good = lens_texts(editor, uri)
    assert [text.startswith("step time ") for text in good] == [True, True]
    where = locate(SPEC, "zero = 1", 7)
    editor.change(uri, (span(where, (where[0], where[1] + 1)), ""))  # `zero = `
    assert [id for id, _ in editor.problems(uri)] == ["syntax"]
    assert lens_texts(editor, uri) == [
        f"{text} (of the last version without errors)" for text in good
    ]
    shown = editor.request("hover", uri, locate(SPEC, "devices = nodes", 1))
    assert "Value: `16`" in shown.contents.value
    editor.change(uri, (span(where, where), "2"))
    assert editor.problems(uri) == []
    assert [text.startswith("step time ") for text in lens_texts(editor, uri)] == [True, True]
    editor.close(uri)
    editor.wait_for(lambda: not editor.published[uri].diagnostics)


@pytest.mark.slow
def test_columns_are_units_of_utf_16(editor: Editor) -> None:
    text = 'let a = "\U0001f680é" ;\n# \U0001f680\n' + SPEC
    uri = editor.open("wide.par", text)
    found = next(d for d in editor.published[uri].diagnostics if d.code == "syntax")
    assert found.range.start.character == len('let a = "..é" ')
    assert found.range.end.character - found.range.start.character == 1
    editor.change(uri, (span((0, 13), (0, 15)), ""), (span((1, 4), (1, 4)), "\U0001f680 "))
    assert "syntax" not in [id for id, _ in editor.problems(uri)]
    editor.change(uri, (span((1, 6), (1, 6)), "\nlet b = ;\n# "))
    (found,) = [d for d in editor.published[uri].diagnostics if d.code == "syntax"]
    assert (found.range.start.line, found.range.start.character) == (2, 8)
    editor.close(uri)


@pytest.mark.slow
@pytest.mark.parametrize(("encoding", "width"), [("utf-8", 6), ("utf-32", 2)])
def test_columns_are_units_of_the_encoding_of_the_editor(
    folder: Path, encoding: str, width: int
) -> None:
    other = Editor(folder, encoding=encoding)
    assert other.initialized.capabilities.position_encoding == encoding
    uri = other.open("units.par", '"\U0001f680é" ;\n')
    found = other.published[uri].diagnostics[-1]
    assert found.range.start.character == len('"" ') + width
    assert other.stop() == 0


SLEEP = "import time\nfrom parcost import hookimpl\n@hookimpl\ndef checks(study):\n    time.sleep(600)\n    return []\n"


@pytest.mark.slow
def test_an_evaluation_that_takes_too_long_is_given_up(folder: Path) -> None:
    plugin = folder / "sleep.py"
    plugin.write_text(SLEEP, encoding="utf-8")
    limit = "from parcost_apps.editor import server; server.LIMIT_SECONDS = 0.5; "
    other = Editor(folder, "--plugin", str(plugin), start=limit + START)
    uri = other.uri("late.par")
    item = lsp.TextDocumentItem(uri, "parcost", 1, SPEC)
    other.client.text_document_did_open(lsp.DidOpenTextDocumentParams(item))
    other.wait_for(lambda: other.refreshes > 0)
    assert [text[:13] for text in lens_texts(other, uri)] == ["not evaluated"] * 2
    other.versions[uri] = 1
    other.change(uri, SPEC.replace("zero = 1", "zero = "), wait=False)
    other.wait_for(lambda: other.counts[uri, 2] > 0)
    assert [id for id, _ in other.problems(uri)] == ["syntax"]
    assert other.stop() == 0  # although a thread sleeps on


@pytest.mark.slow
@pytest.mark.parametrize("end", ["\r\n", "\n"])
def test_line_ends_are_no_matter(editor: Editor, end: str) -> None:
    uri = editor.open("ends.par", SPEC.replace("\n", end).replace("tp   = 2", "tq   = 2"))
    (found,) = editor.published[uri].diagnostics
    start = locate(SPEC, "tp   = 2")
    assert (found.range.start.line, found.range.start.character) == start
    editor.change(uri, (span(start, (start[0], start[1] + 2)), "tp"))
    assert editor.problems(uri) == []
    editor.close(uri)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "text", "id"),
    [
        ("binary", "\x00\x01PNG\x85\u2028\x0c{{{" * 200, "syntax"),
        ("conflict", SPEC.replace("layout {\n  tp   = 2", "<<<<<<< a\nlayout {\n=======\nlayout {\n>>>>>>> b\n tp = 2"), "syntax"),
        ("missing", f'use "nothing.par"\n{SPEC}', "missing-file"),
        ("outside", f'use "../../etc.par"\n{SPEC}', "import-escapes"),
        ("deep", "let a = " + "(" * 5000, "nesting-too-deep"),
        ("long", "a " * 100_001, "file-too-large"),
        ("half", 'let a = "\ud83d"\ncluster { devices = 1 }', "missing-block"),
    ],
)  # fmt: skip
def test_bad_text_gets_diagnostics(editor: Editor, name: str, text: str, id: str) -> None:
    uri = editor.open(f"{name}.par", text)
    assert id in [found for found, _ in editor.problems(uri)]
    for request in ("code_lens", "document_symbol", "folding_range", "formatting"):
        editor.request(request, uri)
    for request in ("hover", "completion", "definition"):
        editor.request(request, uri, (0, 5))
    editor.close(uri)


@pytest.mark.slow
def test_inlay_hints_are_those_of_the_lines_that_are_shown(editor: Editor) -> None:
    uri = editor.open("hints.par", SPEC)
    line, _ = locate(SPEC, "layout {\n  tp   = 2")
    (hint,) = editor.request("inlay_hint", uri, span((line, 0), (line + 1, 0)))
    assert (hint.position.line, hint.label) == (line, "dp = 4")
    editor.close(uri)


@pytest.mark.slow
def test_an_import_of_an_open_document_is_its_unsaved_text(editor: Editor) -> None:
    site = editor.open("site.par", "let width = 2\n")
    text = SPEC.replace("micro_batch = 1", "micro_batch = site.width")
    job = editor.open("job.par", f'use "site.par" as site\n{text}')
    assert editor.problems(job) == []
    before = editor.counts[job, 1]
    editor.change(site, "let width = 1 GB\n")
    editor.wait_for(lambda: editor.counts[job, 1] > before)
    assert [id for id, _ in editor.problems(job)] == ["wrong-dimension"]
    found = editor.request(
        "definition", job, locate(f'use "site.par" as site\n{text}', "site.width", 6)
    )
    assert (found.uri, found.range.start.character) == (site, 4)
    made = editor.request("rename", site, (0, 5), "reach")
    assert {uri: len(edits) for uri, edits in made.changes.items()} == {site: 1, job: 1}
    for uri in (job, site):
        editor.close(uri)


@pytest.mark.slow
def test_two_documents_import_one_another(editor: Editor) -> None:
    editor.open("first.par", 'use "second.par"\n')
    second = editor.open("second.par", 'use "first.par"\n')
    editor.wait_for(
        lambda: "circular-import" in [id for id, _ in editor.problems(editor.uri("first.par"))]
    )
    assert [id for id, _ in editor.problems(second)] == ["circular-import"]
    for name in ("first.par", "second.par"):
        editor.close(editor.uri(name))


@pytest.mark.slow
def test_completion_is_an_edit_with_its_import(editor: Editor) -> None:
    text = SPEC.replace("devices = nodes * 8", "devices = nodes * 8, device = b2")
    uri = editor.open("complete.par", text)
    found = editor.request("completion", uri, locate(text, "device = b2", 11))
    (item,) = [item for item in found.items if item.label == "b200"]
    assert item.text_edit.range == span(
        locate(text, "device = b2", 9), locate(text, "device = b2", 11)
    )
    (also,) = item.additional_text_edits
    editor.change(uri, (item.text_edit.range, item.text_edit.new_text), (also.range, also.new_text))
    assert "unknown-name" not in [id for id, _ in editor.problems(uri)]
    assert editor.request("hover", uri, (4, 22)).contents.value.startswith(
        "**catalog.devices.b200**".replace(".b200", ".b200")
    )
    editor.close(uri)


@pytest.mark.slow
def test_a_definition_in_the_catalogue_is_a_file(editor: Editor) -> None:
    uri = editor.open("defined.par", SPEC)
    found = editor.request("definition", uri, locate(SPEC, "h100_sxm"))
    path = Path(found.uri.removeprefix("file://"))
    line = path.read_text(encoding="utf-8").splitlines()[found.range.start.line]
    assert line.startswith("device h100_sxm")
    editor.close(uri)


@pytest.mark.slow
def test_formatting_is_that_of_the_command(editor: Editor) -> None:
    text = SPEC.replace("tp   = 2", "tp=2").replace("\n", "\r\n")
    uri = editor.open("format.par", text)
    (edit,) = editor.request("formatting", uri)
    editor.change(uri, (edit.range, edit.new_text))
    assert edit.new_text == SPEC
    assert not editor.request("formatting", uri)
    editor.close(uri)


@pytest.mark.slow
def test_a_refusal_to_rename_is_a_message(editor: Editor) -> None:
    uri = editor.open("rejected.par", SPEC)
    with pytest.raises(JsonRpcException, match="a name of the catalogue"):
        editor.request("rename", uri, locate(SPEC, "h100_sxm"), "mine")
    with pytest.raises(JsonRpcException, match="no name that can be renamed is at this position"):
        editor.request("prepare_rename", uri, locate(SPEC, "= nodes"))
    editor.close(uri)


@pytest.mark.slow
def test_a_quick_fix_mends_the_spec(editor: Editor) -> None:
    text = SPEC.replace("zero = 1", "zeros = 1")
    uri = editor.open("fix.par", text)
    (action,) = editor.request(
        "code_action", uri, span(locate(text, "zeros"), locate(text, "zeros"))
    )
    (edit,) = action.edit.changes[uri]
    editor.change(uri, (edit.range, edit.new_text))
    assert editor.problems(uri) == []
    editor.close(uri)


# --- the process --------------------------------------------------------------------------


def message(**content: Any) -> bytes:
    data = json.dumps({"jsonrpc": "2.0", **content}).encode()
    return b"Content-Length: %d\r\n\r\n%s" % (len(data), data)


INITIALIZE = message(id=1, method="initialize", params={"capabilities": {}, "processId": None})


@pytest.fixture
def plugin(tmp_path: Path) -> Path:
    path = tmp_path / "loud.py"
    path.write_text(
        "import os\nfrom parcost import hookimpl\nprint('out', flush=True); os.system('echo child')\n"
        "@hookimpl\ndef blocks():\n    print('asked')\n    return []\n"
    )
    return path


@pytest.mark.slow
def test_nothing_but_the_protocol_is_on_stdout(plugin: Path) -> None:
    requests = INITIALIZE + message(id=2, method="shutdown") + message(method="exit")
    arguments = [sys.executable, "-c", START, "lsp", "--plugin", str(plugin)]
    done = subprocess.run(arguments, input=requests, capture_output=True, check=False)
    assert done.returncode == 0
    left, bodies = done.stdout, []
    while left:
        head, _, left = left.partition(b"\r\n\r\n")
        size = int(head.partition(b"Content-Length: ")[2].split(b"\r\n")[0])
        bodies.append(json.loads(left[:size]))
        left = left[size:]
    assert [body["id"] for body in bodies] == [1, 2]
    assert b"out" in done.stderr
    assert b"child" in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    ("requests", "code"),
    [(INITIALIZE, 0), (b"", 0), (INITIALIZE + message(method="exit"), 1), (b"\x00\xff{{{\r\n", 0)],
)
def test_the_server_ends_with_its_editor(requests: bytes, code: int) -> None:
    arguments = [sys.executable, "-c", START, "lsp"]
    done = subprocess.run(arguments, input=requests, capture_output=True, check=False, timeout=60)
    assert done.returncode == code, done.stderr
    assert b"Traceback" not in done.stderr


@pytest.fixture
def usage(capfd: pytest.CaptureFixture[str]) -> Iterator[Any]:
    def run(*arguments: str) -> str:
        assert main(["lsp", *arguments]) == 2
        out, err = capfd.readouterr()
        assert not out
        return err

    return run


def test_the_library_of_the_protocol_may_be_missing(
    usage: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "find_spec", lambda _: None)
    assert "pip install 'parcost[lsp]'" in usage()


@pytest.mark.parametrize(
    "address", ["0.0.0.0:2087", "example.org:1", "localhost", "127.0.0.1:0", ":1"]
)
def test_only_this_machine_is_served(usage: Any, address: str) -> None:
    assert f"`--tcp {address}`" in usage("--tcp", address)
