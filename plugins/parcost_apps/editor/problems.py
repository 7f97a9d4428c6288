"""Diagnostics in an editor: their place in a document, and their updates while the text changes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from attrs import evolve

from parcost.language.diagnostics import Diagnostic, Label
from parcost.language.escapes import escape_lines
from parcost.language.text import Source, Span
from parcost_apps.check.problems import key
from parcost_apps.editor.analysis import Analysis, file_imports


def place_in(analysis: Analysis, diagnostic: Diagnostic) -> Span:
    """Return the span of a diagnostic in the file of *analysis*.

    A diagnostic about another file is placed at the import, one without a file on line 1.
    """
    for label in diagnostic.labels[:1]:
        if label.span.source.name == analysis.source.name:
            return label.span
        name = label.span.source.name.rpartition("/")[2]
        imports = list(file_imports(analysis.tree))
        named = [one.span for one in imports if one.value.rpartition("/")[2] == name]
        if named or imports:
            return (named or [imports[0].span])[0]
    return Span(analysis.source, 0, len(analysis.source.line(1)))


def text_of(diagnostic: Diagnostic) -> str:
    """Return the message of a diagnostic with its notes and help, on separate lines."""
    labels = [label.text for label in diagnostic.labels[:1] if label.text]
    notes = [f"note: {note}" for note in diagnostic.all_notes]
    help = [f"help: {diagnostic.help}"] if diagnostic.help else []
    return escape_lines("\n".join([": ".join([diagnostic.message, *labels]), *notes, *help]))


def keep_valid(
    before: Sequence[Diagnostic], analysis: Analysis, old: Source
) -> Iterator[Diagnostic]:
    """Yield the diagnostics of rules that stay valid until the rules run again.

    *before* are the diagnostics of the *old* text. Diagnostics before or after the change move with
    the text; diagnostics that overlap it are dropped. If the analysis has errors, all are dropped.
    """
    known = {key(d) for d in analysis.diagnostics}
    new = analysis.source
    ahead, behind = _common_ends(old.text, new.text)
    move = len(new.text) - len(old.text)
    for diagnostic in before:
        labels = []
        for label in diagnostic.labels:
            span = label.span
            if span.source.name != new.name or span.end <= ahead:
                shift = 0
            elif span.start >= len(old.text) - behind:
                shift = move
            else:
                break
            source = new if span.source.name == new.name else span.source
            labels.append(Label(Span(source, span.start + shift, span.end + shift), label.text))
        else:
            moved = evolve(diagnostic, labels=tuple(labels))
            if key(moved) not in known:
                yield moved


def _common_ends(old: str, new: str) -> tuple[int, int]:
    """Return the length of the common prefix and of the common suffix of two texts.

    >>> _common_ends("abc def", "abc xx def")
    (4, 3)
    """
    most = min(len(old), len(new))
    ahead = _common(old, new, most)
    behind = _common(old[::-1], new[::-1], most - ahead)
    return ahead, behind


def _common(a: str, b: str, most: int) -> int:
    """Return the length of the common prefix of two texts, by bisection."""
    low, high = 0, most
    while low < high:
        middle = (low + high + 1) // 2
        if a[:middle] == b[:middle]:
            low = middle
        else:
            high = middle - 1
    return low
