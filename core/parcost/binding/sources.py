"""Spec files as sources: from disk, and from catalogues. Every failure is a diagnostic."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from parcost.contract.importers import LOG_SUFFIXES
from parcost.language.text import Source
from parcost.system import files

SUFFIX = ".par"
_TITLES: dict[Path, str] = {}  # of folders, such as the temporary one with files of a revision


def read(path: Path, name: str | None = None) -> Source:
    """Return the text of a spec, or of a file of another tool, from disk.

    Raises:
        SpecError: The file is missing, unreadable, too large or not UTF-8.
    """
    shown = title_of(path) or name or str(path)
    kind = files.LOG if path.suffix in LOG_SUFFIXES else files.SPEC
    return Source(shown, files.read_text(path, kind, shown))


@contextmanager
def call_files(folder: Path, title: str) -> Iterator[None]:
    """Context manager: messages show files below *folder* as ``title:path``."""
    _TITLES[folder] = title
    try:
        yield
    finally:
        del _TITLES[folder]


def title_of(path: Path) -> str:
    """Return ``title:path`` for a file below a titled folder; "" for any other."""
    for folder, title in _TITLES.items():
        if path.is_relative_to(folder):
            return f"{title}:{path.relative_to(folder).as_posix()}"
    return ""


def read_resource(resource: Any, name: str) -> Source:
    """Return the text of a file in a catalogue, which may be in a wheel.

    Raises:
        SpecError: The file is missing, unreadable, too large or not UTF-8.
    """
    if isinstance(resource, os.PathLike):
        return Source(name, files.read_text(resource, files.SPEC, name))
    try:
        with resource.open("rb") as file:
            data = file.read(files.SPEC.limit + 1)
    except OSError as error:
        raise files.read_failure(error, name) from None
    return Source(name, files.decode(files.check_size(data, files.SPEC, name), name))


def relative_name(path: Path, beside: str) -> str:
    """Return the name of an imported file in messages, relative like the name *beside*."""
    return str(path) if Path(beside).is_absolute() else os.path.relpath(path)
