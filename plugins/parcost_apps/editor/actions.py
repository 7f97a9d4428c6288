"""Changes that a diagnostic proposes: the nearest valid value, a similar name, or an import.

They come from the help of diagnostics, which has the replacement text in backquotes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from parcost.language.diagnostics import Diagnostic
from parcost.language.text import Span
from parcost.records import record
from parcost_apps.editor.analysis import Analysis
from parcost_apps.editor.completion import place_of_imports

_MEANT = re.compile(r"did you mean (.*?)\?")
_IMPORT = re.compile(r"import it: `(use [\w.]+)`")
_WRITE = re.compile(r"^write (.*)$")
_QUOTED = re.compile(r"`([^`]+)`")
_VALUES = re.compile(r"\b(\w+) = (\d+(?:, \d+)*(?: or \d+)?)(?=$|[,;` ])")
_NEAREST = re.compile(r"the nearest legal value is (\d+)")
_ASSIGNMENT = re.compile(r"(\w+)\s*=\s*(\d[\d_]*)")
_NUMBER = re.compile(r"\d+")
_UNIT = re.compile(r"[^\d\s].*$")


@record(eq=False)
class QuickFix:
    """A change of a file: its title, the span to replace, and the new text."""

    title: str
    span: Span
    text: str


def quick_fixes(analysis: Analysis, diagnostic: Diagnostic) -> Iterator[QuickFix]:
    """Yield the changes of the file that the help of a diagnostic proposes."""
    help, labels = diagnostic.help or "", diagnostic.labels
    if not help or not labels:
        return
    span, source = labels[0].span, analysis.source
    if (span.source.name, span.source.text) != (source.name, source.text):
        return
    for meant in _MEANT.findall(help):
        for name in _QUOTED.findall(meant):
            yield QuickFix(f"Replace by `{name}`", _part(span, diagnostic), name)
    for use in _IMPORT.findall(help):
        at = place_of_imports(analysis.tree)
        yield QuickFix(f"Add `{use}`", Span(span.source, at, at), f"{use}\n")
    for written in _WRITE.findall(help):
        for text in _QUOTED.findall(written):
            if text.startswith(f"{span.text} "):
                yield QuickFix(f"Write `{text}`", span, text)
    yield from _values(span, help)


def _values(span: Span, help: str) -> Iterator[QuickFix]:
    """Yield one change for each legal value of the attribute at *span*."""
    given = _ASSIGNMENT.fullmatch(span.text.strip())
    if given is None:
        return
    start = span.start + span.text.index(span.text.strip()) + given.start(2)
    where = Span(span.source, start, start + len(given[2]))
    numbers = [
        n
        for name, listed in _VALUES.findall(help)
        if name == given[1]
        for n in _NUMBER.findall(listed)
    ]
    for number in dict.fromkeys([*numbers, *_NEAREST.findall(help)]):
        yield QuickFix(f"Write `{given[1]} = {number}`", where, number)


def _part(span: Span, diagnostic: Diagnostic) -> Span:
    """Return the span that a proposed name replaces; only the unit if the unit is unknown."""
    found = _UNIT.search(span.text) if diagnostic.id == "unknown-unit" else None
    return span if found is None else Span(span.source, span.start + found.start(), span.end)
