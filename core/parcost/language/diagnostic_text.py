"""Diagnostics as text, in the style of rustc.

The text of a spec is shown unchanged. Only control and formatting characters are escaped, so that a
file cannot control the terminal.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterator
from itertools import groupby

from parcost.language.diagnostics import Diagnostic, Label, Severity
from parcost.language.escapes import escape_line, screen_line
from parcost.language.text import Source
from parcost.records import frozen

WIDEST = 120  # characters of a line that are shown
_LONGEST_LABEL = 60  # that stands beside the line; others are notes, which are wrapped
_TAB = "    "
_CUT = "..."
_COLOURS = {Severity.ERROR: "\x1b[1;31m", Severity.WARNING: "\x1b[1;33m"}
_BOLD, _BLUE, _PLAIN = "\x1b[1m", "\x1b[1;34m", "\x1b[0m"

_Paint = Callable[[str, str], str]


def render(diagnostic: Diagnostic, *, color: bool = False) -> str:
    """Return *diagnostic* as text, with the lines that it points at."""

    def paint(text: str, hue: str) -> str:
        return f"{hue}{text}{_PLAIN}" if color else text

    hue = _COLOURS[diagnostic.severity]
    head = paint(f"{diagnostic.severity.value}[{diagnostic.id}]", hue)
    out = [head + paint(f": {screen_line(diagnostic.message)}", _BOLD)]
    marks = [_mark(label, label is diagnostic.labels[0]) for label in diagnostic.labels]
    gutter = " " * len(str(max((mark.line for mark in marks), default=0)))
    bar = paint(f"{gutter} |", _BLUE)
    if not marks and diagnostic.place:
        out.append(f"{gutter}{paint('-->', _BLUE)} {screen_line(diagnostic.place)}")
    for source in dict.fromkeys(mark.source for mark in marks):
        here = [mark for mark in marks if mark.source is source]
        arrow = paint("-->" if here[0].subject else ":::", _BLUE)
        out.append(f"{gutter}{arrow} {screen_line(source.name)}:{here[0].line}:{here[0].column}")
        out += [bar, *_snippet(here, gutter, hue, paint)]
    long = [mark.note for mark in marks if mark.note]
    notes = [f"note: {note}" for note in (*long, *map(screen_line, diagnostic.all_notes))]
    if diagnostic.help:
        notes.append(f"help: {screen_line(diagnostic.help)}")
    if notes and marks:
        out.append(bar)
    out += [f"{gutter} {paint('=', _BLUE)} {note}" for note in notes]
    return "\n".join(out)


@frozen
class _Mark:
    """A label and its place; for a span over several lines, its part on the first line."""

    source: Source
    line: int
    column: int
    length: int
    text: str
    note: str
    subject: bool


def _mark(label: Label, subject: bool) -> _Mark:
    source, start = label.span.source, label.span.start
    line, column = source.position(start)
    rest = len(source.line(line)) - column + 1
    length = max(min(label.span.end - start, rest), 1)
    text = screen_line(label.text)
    beside, note = (text, "") if len(text) <= _LONGEST_LABEL else ("", text)
    return _Mark(source, line, column, length, beside, note, subject)


def _snippet(marks: list[_Mark], gutter: str, hue: str, paint: _Paint) -> Iterator[str]:
    marks = sorted(marks, key=lambda mark: (mark.line, mark.column, not mark.subject))
    last = 0
    for number, on_line in groupby(marks, lambda mark: mark.line):
        if last and number > last + 1:
            yield _CUT
        last = number
        shown = list(on_line)
        around = next((mark for mark in shown if mark.subject), shown[0])
        text, first = _clip(around.source.line(number), around.column - 1)
        yield f"{paint(f'{number:>{len(gutter)}} |', _BLUE)} {_spread(text)}".rstrip()
        for mark in shown:
            at = min(max(mark.column - 1 - first, 0), len(text))
            length = min(mark.length, max(len(text) - at, 1))
            under = max(_width(_spread(text[at : at + length])), 1)
            sign = ("^" if mark.subject else "-") * under
            note = paint(f"{sign} {mark.text}".rstrip(), hue if mark.subject else _BLUE)
            yield f"{paint(f'{gutter} |', _BLUE)} {' ' * _width(_spread(text[:at]))}{note}"


def _clip(text: str, column: int) -> tuple[str, int]:
    """Return the part of a line around *column*, and the column of its start."""
    if len(text) <= WIDEST:
        return text, 0
    first = max(0, min(column - WIDEST // 2, len(text) - WIDEST))
    before = _CUT if first else ""
    after = _CUT if first + WIDEST < len(text) else ""
    return before + text[first : first + WIDEST] + after, first - len(before)


def _spread(text: str) -> str:
    return escape_line(text.replace("\t", _TAB))


def _width(text: str) -> int:
    """Return the number of terminal columns of *text*: East Asian wide characters take two."""
    return sum(
        0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1
        for c in text
    )
