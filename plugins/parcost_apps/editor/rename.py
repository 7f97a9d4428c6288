"""Rename: change a name wherever it occurs, in a file and in the files that import it.

The change is first applied to a copy. It is rejected with a message if the meaning of a name would
change, or a new error would appear.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from parcost.binding.modules import Buffer
from parcost.engine.session import Session
from parcost.language.text import Span
from parcost_apps.check.problems import is_error
from parcost_apps.editor.analysis import Analysis, analyze
from parcost_apps.editor.definitions import files_with, place_of
from parcost_apps.editor.occurrences import NAMED, Occurrence, occurrence_at, occurrences
from parcost_apps.editor.texts import key_of

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_WORDS = frozenset({"as", "expect", "extends", "let", "off", "on", "requires", "study", "use"})


class RenameError(Exception):
    """A name cannot be changed; the message has the reason."""


def name_at(analysis: Analysis, offset: int) -> Span:
    """Return the name at *offset* that may be changed.

    Raises:
        RenameError: No such name is at *offset*.
    """
    return _occurrence(analysis, offset).span


def rename(
    analysis: Analysis, offset: int, new: str, folders: Sequence[str]
) -> Mapping[str, Sequence[Span]]:
    """Return the spans to replace with *new*, by file.

    Raises:
        RenameError: The name may not be changed, or not into *new*.
    """
    found = _occurrence(analysis, offset)
    old = found.referent.name
    if not _NAME.fullmatch(new):
        raise RenameError(f"`{new}` is not a name: names have letters, digits and `_`")
    if new in _WORDS or new in analysis.session.plugins.blocks:
        raise RenameError(f"`{new}` is a keyword of the language")
    if new == old:
        return {}
    files = list(files_with(analysis, found.referent, folders))
    edits = {other.path: [o.span for o in same if o.span.text == old] for other, same in files}
    _try(files, edits, new)
    return {path: spans for path, spans in edits.items() if spans}


def _occurrence(analysis: Analysis, offset: int) -> Occurrence:
    found = occurrence_at(analysis, offset)
    if found is None:
        raise RenameError("no name that can be renamed is at this position")
    referent = found.referent
    if referent.kind not in NAMED or referent.span is None:
        kinds = {"keyword": "a keyword of the language", "entry": "a name of the catalogue"}
        what = kinds.get(referent.kind, f"a name of the language ({referent.kind})")
        raise RenameError(f"`{found.span.text}` is {what}, which cannot be renamed in a file")
    if not Path(referent.span.source.name).is_absolute():
        raise RenameError(
            f"`{found.span.text}` is a name of the catalogue, which cannot be renamed in a file; "
            "import it under another name with `as`"
        )
    return found


def _try(
    files: Sequence[tuple[Analysis, Sequence[Occurrence]]],
    edits: Mapping[str, Sequence[Span]],
    new: str,
) -> None:
    """Analyze the files with the new name.

    Raises:
        RenameError: A name would mean something else, or an error would appear.
    """
    session = Session(files[0][0].session.plugins)
    buffers = dict(files[0][0].session.loader.buffers)
    for number, (analysis, _) in enumerate(files):
        text = _replace_spans(analysis.source.text, edits[analysis.path], new)
        buffers[key_of(analysis.path)] = Buffer(text, -number - 1)
    session.loader.buffers = buffers
    for before, same in files:
        after = analyze(session, before.path)
        if _errors(after) - _errors(before):
            first = next(d for d in after.diagnostics if is_error(d) and d.id in _errors(after))
            raise RenameError(f"`{new}` is taken here: {first.message}")
        moved = _places(before, same, edits, new)
        now = {(o.span.start, place_of(o.referent)) for o in occurrences(after)}
        count = Counter(o.span.text for o in occurrences(after))
        was = Counter(o.span.text for o in occurrences(before))
        if not moved <= now or count[new] != was[new] + len(edits[before.path]):
            raise RenameError(
                f"`{new}` is already used in `{before.path}`: names would change their meaning"
            )


def _places(
    before: Analysis, same: Sequence[Occurrence], edits: Mapping[str, Sequence[Span]], new: str
) -> set[tuple[int, tuple[str, int] | None]]:
    """Return the expected references after the change, each with the place of its definition."""
    referent = same[0].referent
    assert referent.span is not None
    home = key_of(referent.span.source.name)
    at = {key_of(path): spans for path, spans in edits.items()}
    place = (home, _shift(referent.span.start, at.get(home, ()), new))
    own = edits[before.path]
    return {(_shift(span.start, own, new), place) for span in own}


def _shift(offset: int, spans: Sequence[Span], new: str) -> int:
    return offset + sum(len(new) - len(s.text) for s in spans if s.start < offset)


def _replace_spans(text: str, spans: Sequence[Span], new: str) -> str:
    for span in sorted(spans, key=lambda one: -one.start):
        text = text[: span.start] + new + text[span.end :]
    return text


def _errors(analysis: Analysis) -> Counter[str]:
    return Counter(d.id for d in analysis.diagnostics if is_error(d))
