"""Diagnostics as data, and as annotations of a pull request."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from parcost.language.diagnostics import Diagnostic, Label
from parcost.language.escapes import escape_line, escape_lines

if TYPE_CHECKING:
    from parcost.binding.allowances import Suppression


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
        "notes": list(diagnostic.all_notes),
        "help": diagnostic.help,
    }


def suppression_data(suppression: Suppression) -> dict[str, Any]:
    """Return a warning that a spec switches off as plain data, with its reason and comment."""
    comment = _label_data(Label(suppression.allowance.span))
    return {**as_data(suppression.diagnostic), "reason": suppression.reason, "comment": comment}


def github(diagnostic: Diagnostic) -> str:
    """Return a diagnostic as an annotation of a pull request.

    >>> from parcost.language.diagnostics import Diagnostic
    >>> github(Diagnostic("missing-file", "no file `a`", place="a.par"))
    '::error file=a.par,title=missing-file::no file `a`'
    """
    return github_of(as_data(diagnostic))


def github_of(problem: Mapping[str, Any]) -> str:
    """Return a diagnostic, as plain data, as an annotation of a pull request."""
    properties = {
        "file": problem["file"],
        "line": problem["line"],
        "endLine": problem["end_line"],
        "col": problem["column"],
        "endColumn": problem["end_column"],
        "title": problem["id"],
    }
    parts = [problem["message"], *(f"note: {note}" for note in problem["notes"])]
    parts += [f"help: {problem['help']}"] if problem["help"] else []
    listed = ",".join(
        f"{k}={_escaped(escape_line(str(v)), ':,')}" for k, v in properties.items() if v
    )
    return f"::{problem['severity']} {listed}::{_escaped(escape_lines(chr(10).join(parts)))}"


def _escaped(text: str, also: str = "") -> str:
    """Return *text* with the characters escaped that would end a workflow command."""
    for character in ("%", "\r", "\n", *also):
        text = text.replace(character, f"%{ord(character):02X}")
    return text


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
