"""How a problem looks: the text to the last blank, and the data."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parcost.language.diagnostic_text import WIDEST, render
from parcost.language.diagnostics import Diagnostic, Label, Severity, problem
from parcost.language.escapes import escape_line
from parcost.language.parse import parse
from parcost.language.text import Source, Span
from parcost_formats.rendering.diagnostics import as_data

from ..rows import try_each


def rendered_text(text: str) -> str:
    found = parse(Source("net.par", text))[1]
    return "\n\n".join(render(diagnostic) for diagnostic in found)


def span_of(source: Source, piece: str) -> Span:
    start = source.text.index(piece)
    return Span(source, start, start + len(piece))


def test_the_subject_is_underlined_and_what_belongs_to_it_too() -> None:
    source = Source("net.par", "a {\n  latency = 1 us\n\n\n  latency = 2 us\n}\n")
    first = span_of(source, "latency")
    again = Span(source, 25, 32)
    diagnostic = problem(
        "duplicate",
        "`latency` is given twice",
        again,
        "again here",
        help="remove one of them",
        notes=["blocks hold an attribute once"],
        also=[(first, "first here")],
    )
    assert (
        render(diagnostic)
        == """\
error[duplicate]: `latency` is given twice
 --> net.par:5:3
  |
2 |   latency = 1 us
  |   ------- first here
...
5 |   latency = 2 us
  |   ^^^^^^^ again here
  |
  = note: blocks hold an attribute once
  = help: remove one of them"""
    )


def test_line_numbers_of_several_digits_widen_the_margin() -> None:
    assert (
        rendered_text("a = 1\n" * 9 + "b =\nc = ;")
        == """\
error[syntax]: unexpected end of line
  --> net.par:10:4
   |
10 | b =
   |    ^ expected a value

error[syntax]: unexpected character `;`
  --> net.par:11:5
   |
11 | c = ;
   |     ^ this character is not part of the language
   |
   = help: items end with a new line or a comma"""
    )


def test_two_labels_on_a_line_are_printed_in_sequence() -> None:
    assert (
        rendered_text("a = (1]")
        == """\
error[syntax]: `]` does not close `(`
 --> net.par:1:7
  |
1 | a = (1]
  |     - opened here
  |       ^ expected `)`"""
    )


def test_labels_in_two_files_have_a_snippet_each() -> None:
    here, there = Source("a.par", "use x\n"), Source("b.par", "\nblock x {}\n")
    diagnostic = problem(
        "duplicate",
        "`x` is two things",
        span_of(here, "x"),
        "used",
        also=[(span_of(there, "x"), "this one")],
    )
    assert (
        render(diagnostic)
        == """\
error[duplicate]: `x` is two things
 --> a.par:1:5
  |
1 | use x
  |     ^ used
 ::: b.par:2:7
  |
2 | block x {}
  |       - this one"""
    )


def test_a_problem_without_text_names_its_place() -> None:
    diagnostic = Diagnostic(
        "missing-file",
        "there is no file `a.par`",
        help="did you mean `b.par`?",
        severity=Severity.WARNING,
        place="a.par",
    )
    assert (
        render(diagnostic)
        == """\
warning[missing-file]: there is no file `a.par`
 --> a.par
  = help: did you mean `b.par`?"""
    )


def test_a_problem_without_a_file_has_no_arrow() -> None:
    assert render(Diagnostic("nothing-to-draw", "no study has a step")) == (
        "error[nothing-to-draw]: no study has a step"
    )


def test_the_end_of_the_file_is_after_its_last_character() -> None:
    assert (
        rendered_text("model gpt3 {\n  layers = 96\n\n")
        == """\
error[syntax]: this block is never closed
 --> net.par:1:12
  |
1 | model gpt3 {
  |            ^ opened here
2 |   layers = 96
  |              - expected `}` before the end"""
    )


def test_tabs_and_wide_characters_take_the_room_that_they_take() -> None:
    assert (
        rendered_text('\ta =\t"漢字e\u0301" 日')
        == """\
error[syntax]: unexpected character `日` (U+65E5, cjk unified ideograph-65e5)
 --> net.par:1:13
  |
1 |     a =    "漢字e\u0301" 日
  |                    ^^ this character is not part of the language
  |
  = help: names are made of the letters a to z, digits and `_`"""
    )


def test_a_long_line_is_cut_around_its_subject() -> None:
    before, after = "1 + " * 100, " + 2" * 100
    _, place, _, line, mark = rendered_text(f"a = {before}@{after}").split("\n")
    assert place == " --> net.par:1:405"
    assert line == f"1 | ...{('a = ' + before)[-60:]}@{after[:59]}..."
    assert mark == f"  | {' ' * 63}^ expected a value"
    assert len(line) == WIDEST + len("1 | ......")


def test_a_label_beyond_the_cut_is_shown_at_its_edge() -> None:
    lines = rendered_text("a = (" + "1 + " * 100 + "1]").split("\n")
    assert lines[3].startswith("1 | ...")
    assert lines[4] == "  | - opened here"
    assert lines[5].endswith("^ expected `)`")


def test_a_span_over_several_lines_shows_its_first() -> None:
    source = Source("net.par", "a {\n b = 1\n}\n")
    assert render(problem("x", "m", Span(source, 0, 12), "here")).split("\n")[3:] == [
        "1 | a {",
        "  | ^^^ here",
    ]


def test_lines_of_other_systems_end_where_they_end() -> None:
    assert rendered_text("a = 1\r\nb = \r\n").split("\n")[3:] == [
        "2 | b =",
        "  |     ^ expected a value",
    ]


def test_no_file_reaches_the_terminal() -> None:
    source = Source("\x1b]0;owned\x07.par", 'a = "\x1b[2J\u202e\ud800" b\n')
    text = render(problem("x", "bad \x1b[31m", span_of(source, "b\n"), "\x07", help="\n\x1b[H"))
    assert text == (
        "error[x]: bad \\x1b[31m\n"
        " --> \\x1b]0;owned\\x07.par:1:14\n"
        "  |\n"
        '1 | a = "\\x1b[2J\\u202e\\ud800" b\n'
        f"  | {' ' * 26}^ \\x07\n"
        "  |\n"
        "  = help: \\n\\x1b[H"
    )


def test_colour_changes_nothing_but_the_colour() -> None:
    diagnostic = parse(Source("net.par", "a = (1]\n"))[1][0]
    coloured = render(diagnostic, color=True)
    assert coloured.startswith("\x1b[1;31merror[syntax]\x1b[0m")
    plain = coloured
    for code in ("\x1b[1;31m", "\x1b[1;34m", "\x1b[1m", "\x1b[0m"):
        plain = plain.replace(code, "")
    assert plain == render(diagnostic)


def test_a_diagnostic_is_data() -> None:
    diagnostic = parse(Source("net.par", "\n b = (1]\n"))[1][0]
    data = as_data(diagnostic)
    assert data == {
        "id": "syntax",
        "severity": "error",
        "message": "`]` does not close `(`",
        "file": "net.par",
        "line": 2,
        "column": 8,
        "end_line": 2,
        "end_column": 9,
        "labels": [
            {
                "file": "net.par",
                "line": 2,
                "column": 8,
                "end_line": 2,
                "end_column": 9,
                "text": "expected `)`",
            },
            {
                "file": "net.par",
                "line": 2,
                "column": 6,
                "end_line": 2,
                "end_column": 7,
                "text": "opened here",
            },
        ],
        "notes": [],
        "help": None,
    }
    assert json.loads(json.dumps(data)) == data


def test_data_without_text_has_a_place_and_no_position() -> None:
    data = as_data(Diagnostic("missing-file", "there is no file", place="a.par"))
    assert (data["file"], data["line"], data["labels"]) == ("a.par", None, [])


@try_each("offset", [0, 3, 4, 5, 100])
def test_a_span_beyond_the_text_is_shown_at_its_end(offset: int) -> None:
    source = Source("net.par", "abc\n")
    assert "^" in render(Diagnostic("x", "m", (Label(Span(source, offset, offset + 2)),)))


@pytest.mark.slow
@given(st.text(max_size=200), st.integers(0, 200), st.integers(0, 200), st.text(max_size=10))
def test_anything_can_be_shown(text: str, start: int, length: int, label: str) -> None:
    source = Source("net.par", text)
    spans = [Span(source, start, start + length), Span(source, length, length + start)]
    diagnostic = problem("x", label, spans[0], label, also=[(spans[1], label)], notes=[label])
    for line in render(diagnostic).split("\n"):
        assert line == escape_line(line)
    assert json.dumps(as_data(diagnostic))
