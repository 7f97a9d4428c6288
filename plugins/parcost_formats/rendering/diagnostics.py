"""Diagnostics as data."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from parcost.language.diagnostics import Diagnostic, Label

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
