"""Go to definition, and find references: in files, and in the installed catalogue."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from parcost.binding.sources import SUFFIX
from parcost.engine.session import Session
from parcost.language.errors import SpecError
from parcost.language.text import Span
from parcost.system.files import SPEC, read_text
from parcost_apps.editor.analysis import Analysis, analyze
from parcost_apps.editor.occurrences import Occurrence, Referent, occurrence_at, occurrences
from parcost_apps.editor.texts import key_of

_MOST_FILES = 2_000  # that a request reads
_MOST_FOLDERS = 2_000  # that it looks into: an editor may have opened a file of a home folder


def definition(analysis: Analysis, offset: int) -> Span | None:
    """Return the definition of the name at *offset*."""
    found = occurrence_at(analysis, offset)
    return found.referent.span if found is not None else None


def references(analysis: Analysis, offset: int, folders: Sequence[str]) -> Sequence[Occurrence]:
    """Return every reference to the name at *offset*, in its file and in those of *folders*."""
    found = occurrence_at(analysis, offset)
    if found is None or place_of(found.referent) is None:
        return []
    return [
        occurrence
        for _, same in files_with(analysis, found.referent, folders)
        for occurrence in same
    ]


def files_with(
    analysis: Analysis, referent: Referent, folders: Sequence[str]
) -> Iterator[tuple[Analysis, list[Occurrence]]]:
    """Yield the files that mention *referent*, each with the occurrences of its name."""
    place = place_of(referent)
    own = [analysis.path]
    defining = [referent.span.source.name] if referent.span is not None else []
    others = [name for name in defining if Path(name).is_absolute()]
    buffers = list(analysis.session.loader.buffers)
    paths = [*own, *others, *buffers, *_specs(folders)]
    own_places = set(map(key_of, (*own, *others)))
    for path in {key_of(path): path for path in reversed(paths)}.values():
        text = _text(analysis.session, path)
        if referent.name not in text or not (key_of(path) in own_places or "use" in text):
            continue
        other = analysis if path == analysis.path else analyze(analysis.session, path)
        found = [o for o in occurrences(other) if place_of(o.referent) == place]
        if found:
            yield other, list({(o.span.start, o.span.end): o for o in found}.values())


def place_of(referent: Referent) -> tuple[str, int] | None:
    """Return the file and offset of a definition, which identify it; None without one."""
    if referent.span is None or referent.kind in ("keyword", "attribute", "file"):
        return None
    return key_of(referent.span.source.name), referent.span.start


def path_of(session: Session, name: str) -> str | None:
    """Return the file of a source called *name*, None if it has no file."""
    if Path(name).is_absolute():
        return name
    catalogue, _, rest = name.partition("/")
    found = session.loader.catalogues.get(catalogue)
    root = getattr(found, "root", None)
    if not rest or not isinstance(root, (str, os.PathLike)):
        return None
    return str(Path(root).joinpath(*rest.split("/")))


def _specs(folders: Sequence[str]) -> list[str]:
    """Return the specs in and below *folders*; the number of folders walked is limited."""
    found: list[str] = []
    visited = 0
    for root in dict.fromkeys(map(key_of, folders)):
        for folder, inner, names in os.walk(root):
            visited += 1
            if visited > _MOST_FOLDERS or len(found) > _MOST_FILES:
                return found
            inner[:] = sorted(name for name in inner if not name.startswith("."))
            found += [str(Path(folder, name)) for name in sorted(names) if name.endswith(SUFFIX)]
    return found


def _text(session: Session, path: str) -> str:
    """Return the text of a file, "" where it cannot be read."""
    buffer = session.loader.buffers.get(key_of(path))
    if buffer is not None:
        return buffer.text
    try:
        return read_text(Path(path), SPEC, path)
    except SpecError:
        return ""
