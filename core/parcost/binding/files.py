"""Reading spec files: from disk, and from catalogues. Every failure is a diagnostic."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any

from parcost.diagnostics import Diagnostic, SpecError
from parcost.language.text import Source

LARGEST_FILE_BYTES = 4 * 2**20
_ROOT_MARKS = (".git", "pyproject.toml")


def read(path: Path, name: str | None = None) -> Source:
    """Return the text of a spec file.

    Raises:
        SpecError: The file is missing, unreadable, too large or not UTF-8.
    """
    shown = name or str(path)
    try:
        status = path.stat()
        size, regular = status.st_size, stat.S_ISREG(status.st_mode)
        data = _read_some(path, size) if regular else b""
    except FileNotFoundError:
        raise _failure("missing-file", f"there is no file `{shown}`", shown) from None
    except (OSError, ValueError, RuntimeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        message = f"`{shown}` cannot be read: {reason}"
        raise _failure("unreadable-file", message, shown) from None
    if not regular:
        what = "a directory, not a file" if path.is_dir() else "no regular file"
        raise _failure("unreadable-file", f"`{shown}` is {what}", shown)
    return _decode(data, max(size, len(data)), shown)


def read_resource(resource: Any, name: str) -> Source:
    """Return the text of a file in a catalogue, which may live in a wheel.

    Raises:
        SpecError: The file is missing, unreadable, too large or not UTF-8.
    """
    try:
        data = resource.read_bytes()
    except OSError:
        raise _failure("missing-file", f"there is no file `{name}`", name) from None
    return _decode(data, len(data), name)


def project_root(path: Path) -> Path:
    """Return the directory that imports of the file at *path* may not leave.

    The nearest ancestor that is a checkout or a Python project, or else the file's
    own directory.
    """
    home = path.resolve().parent
    for folder in (home, *home.parents):
        if any((folder / mark).exists() for mark in _ROOT_MARKS):
            return folder
    return home


def _read_some(path: Path, size: int) -> bytes:
    """Read a file of about *size* bytes; room for the most would take longer than reading."""
    with path.open("rb") as file:
        data = file.read(min(size, LARGEST_FILE_BYTES) + 1)
        if len(data) > size:
            data += file.read(LARGEST_FILE_BYTES + 1 - len(data))
        return data


def _decode(data: bytes, size: int, name: str) -> Source:
    if len(data) > LARGEST_FILE_BYTES:
        message = f"`{name}` has {size:,} bytes, and {LARGEST_FILE_BYTES:,} are the most"
        raise _failure("file-too-large", message, name)
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        byte = data[error.start]
        message = f"`{name}` is not UTF-8: byte 0x{byte:02x} on line {line}"
        raise _failure("not-utf8", message, name, "save the file in the encoding UTF-8") from None
    return Source(name, text)


def _failure(id: str, message: str, place: str, help: str | None = None) -> SpecError:
    return SpecError([Diagnostic(id, message, place=place, help=help)])


def relative_name(path: Path, beside: str) -> str:
    """Return how to call an imported file: relative to where its importer was named."""
    return str(path) if Path(beside).is_absolute() else os.path.relpath(path)
