"""Diagnostics as people read them, in the manner of rustc, and as data."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Sequence
from typing import Any

from parcost.diagnostics import Diagnostic, Label, Severity
from parcost.text import Source

_WIDEST = 120  # columns of source that are shown; longer lines are clipped around the subject
_TAB = "    "
_COLOURS = {Severity.ERROR: "\x1b[1;31m", Severity.WARNING: "\x1b[1;33m"}
_BOLD, _BLUE, _PLAIN = "\x1b[1m", "\x1b[1;34m", "\x1b[0m"


def render(diagnostic: Diagnostic, *, color: bool = False) -> str:
    """Return *diagnostic* as text, with the lines that it points at."""
    paint = _paint if color else _leave
    hue = _COLOURS[diagnostic.severity]
    head = paint(f"{diagnostic.severity.value}[{diagnostic.id}]", hue)
    out = [head + paint(f": {visible(diagnostic.message)}", _BOLD)]
    labels = diagnostic.labels
    if not labels:
        out.append(f" {paint('-->', _BLUE)} {visible(diagnostic.place)}")
        gutter = " "
    else:
        last = max(label.span.source.position(label.span.start)[0] for label in labels)
        gutter = " " * len(str(last))
        for source in dict.fromkeys(label.span.source for label in labels):
            out += _snippet(source, labels, gutter, hue, paint)
    tail = [f"note: {visible(note)}" for note in diagnostic.notes]
    if diagnostic.help:
        tail.append(f"help: {visible(diagnostic.help)}")
    if tail and labels:
        out.append(paint(f"{gutter} |", _BLUE))
    out += [f"{gutter} {paint('=', _BLUE)} {entry}" for entry in tail]
    return "\n".join(out)


def as_data(diagnostic: Diagnostic) -> dict[str, Any]:
    """Return *diagnostic* as plain data: positions are 1-based, ends are exclusive."""
    labels = [_label_data(label) for label in diagnostic.labels]
    first = labels[0] if labels else {"file": diagnostic.place}
    return {
        "id": diagnostic.id,
        "severity": diagnostic.severity.value,
        "message": diagnostic.message,
        "file": first["file"],
        "line": first.get("line"),
        "column": first.get("column"),
        "end_line": first.get("end_line"),
        "end_column": first.get("end_column"),
        "labels": labels,
        "notes": list(diagnostic.notes),
        "help": diagnostic.help,
    }


def visible(text: str) -> str:
    """Return *text* with control characters spelled out, so that none reaches a terminal."""
    return "".join(
        c if c.isprintable() or c == " " else c.encode("unicode_escape").decode() for c in text
    )


def _snippet(
    source: Source, labels: Sequence[Label], gutter: str, hue: str, paint: Any
) -> Iterator[str]:
    subject = labels[0]
    here = sorted(
        (label for label in labels if label.span.source is source),
        key=lambda label: (label.span.start, label is not subject),
    )
    first = subject if subject in here else here[0]
    line, column = source.position(first.span.start)
    arrow = "-->" if first is subject else ":::"
    yield f"{gutter}{paint(arrow, _BLUE)} {visible(source.name)}:{line}:{column}"
    yield paint(f"{gutter} |", _BLUE)
    last = 0
    for label in here:
        number, column = source.position(label.span.start)
        text = source.line(number)
        clipped, start = _clip(text, column - 1)
        if last and number > last + 1:
            yield "..."
        if number != last:
            margin = paint(f"{number:>{len(gutter)}} |", _BLUE)
            yield f"{margin} {_spread(clipped)}".rstrip()
        last = number
        before = _width(_spread(clipped[: column - 1 - start]))
        length = min(label.span.end - label.span.start, len(text) - column + 1)
        under = _width(_spread(clipped[column - 1 - start : column - 1 - start + length]))
        mark = ("^" if label is subject else "-") * max(under, 1)
        note = f"{mark} {visible(label.text)}".rstrip()
        painted = paint(note, hue if label is subject else _BLUE)
        yield f"{paint(f'{gutter} |', _BLUE)} {' ' * before}{painted}"


def _clip(text: str, column: int) -> tuple[str, int]:
    """Return the part of a long line around *column*, and where it starts."""
    if len(text) <= _WIDEST:
        return text, 0
    start = max(0, min(column - _WIDEST // 2, len(text) - _WIDEST))
    return text[start : start + _WIDEST], start


def _spread(text: str) -> str:
    return visible(text.replace("\t", _TAB))


def _width(text: str) -> int:
    """Return the columns that *text* takes: East Asian wide characters take two."""
    return sum(
        0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1
        for c in text
    )


def _label_data(label: Label) -> dict[str, Any]:
    source = label.span.source
    line, column = source.position(label.span.start)
    end_line, end_column = source.position(label.span.end)
    return {
        "file": source.name,
        "line": line,
        "column": column,
        "end_line": end_line,
        "end_column": end_column,
        "text": label.text,
    }


def _paint(text: str, colour: str) -> str:
    return f"{colour}{text}{_PLAIN}"


def _leave(text: str, _: str) -> str:
    return text
