"""File input: regular files of a limited size, in UTF-8 if they are text.

A failure is a diagnostic. Links are followed. A directory, a pipe, a socket or a device is
rejected. No more bytes are read than the limit of the file's kind.
"""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from parcost.language.diagnostics import Diagnostic, nearest_names
from parcost.language.errors import SpecError
from parcost.records import frozen

_MIB = 2**20
_GIB = 2**30
_NEAR = 0.75  # of the letters are those of a file that may be meant
_STDIN = "<stdin>"
# A pipe or a device that takes the place of a file between two calls is not waited for.
_FLAGS = os.O_RDONLY
for _flag in ("O_NONBLOCK", "O_CLOEXEC", "O_NOCTTY", "O_BINARY"):
    _FLAGS |= getattr(os, _flag, 0)


@frozen
class Kind:
    """A kind of file: its name, and its size limit in bytes; *line* limits the length of a line."""

    name: str
    limit: int
    line: int = 0


SPEC = Kind("spec", 4 * _MIB)
LOG = Kind("log of timings", 64 * _MIB)
CODE = Kind("file of a plugin", 256 * _MIB)
CACHED = Kind("result in the cache", 256 * _MIB)
SHARD = Kind("shard", 1024 * _GIB, line=_GIB)
KINDS = (SPEC, LOG, CODE, CACHED, SHARD)


def split_recipe(name: str) -> tuple[str, str]:
    """Return the path and the recipe of ``FILE:NAME``; "" for a file without one."""
    path, colon, recipe = name.rpartition(":")
    if colon and recipe and not os.path.lexists(name) and os.path.isfile(path):
        return path, recipe
    return name, ""


def read_text(path: str | os.PathLike[str], kind: Kind, name: str | None = None) -> str:
    """Return the text of a file; messages call it *name*.

    Raises:
        SpecError: The file is missing, not a regular file, unreadable, too large or not UTF-8.
    """
    shown = name or os.fspath(path)
    return decode(read_bytes(path, kind, shown), shown)


def read_bytes(path: str | os.PathLike[str], kind: Kind, name: str | None = None) -> bytes:
    """Return the content of a file; messages call it *name*.

    Raises:
        SpecError: The file is missing, not a regular file, unreadable or too large.
    """
    shown = name or os.fspath(path)
    try:
        with _open(path, shown) as file:
            return _read_all(file, kind, shown)
    except (OSError, ValueError) as error:
        raise read_failure(error, shown) from None


def read_stdin(kind: Kind) -> bytes:
    """Return the content of stdin.

    Raises:
        SpecError: Stdin cannot be read, or is too large.
    """
    if sys.stdin is None:
        raise failure("unreadable-file", f"`{_STDIN}` cannot be read: it is closed", _STDIN)
    try:
        return check_size(sys.stdin.buffer.read(kind.limit + 1), kind, _STDIN)
    except OSError as error:
        raise read_failure(error, _STDIN) from None


def read_lines(path: str | os.PathLike[str], kind: Kind) -> Iterator[str]:
    r"""Yield the lines of a file, which end at ``\n`` only.

    Raises:
        SpecError: The file is missing, not a regular file, unreadable, too large or not UTF-8.
    """
    shown = os.fspath(path)
    try:
        with _open(path, shown) as file:
            done, number = 0, 1
            while line := file.readline(kind.line + 1):
                done += len(line)
                if len(line) > kind.line:
                    message = f"line {number} of `{shown}` has more than {kind.line:,} bytes"
                    raise failure("file-too-large", message, shown)
                if done > kind.limit:
                    raise _too_large(shown, kind)
                yield decode(line, shown, number)
                number += 1
    except (OSError, ValueError) as error:
        raise read_failure(error, shown) from None


def decode(data: bytes, name: str, first: int = 1) -> str:
    """Return *data* as text without a byte order mark; *first* is the number of its first line.

    Raises:
        SpecError: The data is not UTF-8.
    """
    try:
        return data.decode("utf-8-sig" if first == 1 else "utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + first
        byte = data[error.start]
        message = f"`{name}` is not UTF-8: byte 0x{byte:02x} on line {line}"
        raise failure("not-utf8", message, name, "save the file as UTF-8") from None


def check_size(data: bytes, kind: Kind, name: str) -> bytes:
    """Return *data*, which is not larger than its kind may be.

    Raises:
        SpecError: The data is too large.
    """
    if len(data) > kind.limit:
        raise _too_large(name, kind)
    return data


def read_failure(error: Exception, name: str) -> SpecError:
    """Return the error for an OSError."""
    if isinstance(error, FileNotFoundError):
        return failure("missing-file", f"there is no file `{name}`", name, _suggestion(name))
    reason = getattr(error, "strerror", None) or str(error)
    return failure("unreadable-file", f"`{name}` cannot be read: {reason}", name)


def _suggestion(name: str) -> str | None:
    """Return a help line with a file in the same folder whose name is similar, or None."""
    path = Path(name)
    try:
        beside = [
            entry.stem
            for entry in path.parent.iterdir()
            if entry.suffix == path.suffix and entry.exists()
        ]
    except (OSError, ValueError):
        return None
    close = nearest_names(path.stem, beside, 1, _NEAR) if path.suffix else []
    return f"did you mean `{path.with_stem(close[0])}`?" if close else None


def failure(id: str, message: str, place: str, help: str | None = None) -> SpecError:
    """Return an error with one diagnostic about the file *place*."""
    return SpecError([Diagnostic(id, message, place=place, help=help)])


def _open(path: str | os.PathLike[str], name: str) -> BinaryIO:
    _check(os.stat(path).st_mode, name)  # noqa: PTH116  a name need not be a path of this system
    number = os.open(path, _FLAGS)
    try:
        _check(os.fstat(number).st_mode, name)
        return os.fdopen(number, "rb")
    except BaseException:
        os.close(number)
        raise


def _check(mode: int, name: str) -> None:
    if stat.S_ISREG(mode):
        return
    what = "a directory, not a file" if stat.S_ISDIR(mode) else "not a regular file"
    raise failure("unreadable-file", f"`{name}` is {what}", name)


def _read_all(file: BinaryIO, kind: Kind, name: str) -> bytes:
    """Read a file without a buffer of the maximum size, whose allocation would take longer than
    reading.
    """
    size = os.fstat(file.fileno()).st_size
    if size > kind.limit:
        raise _too_large(name, kind, size)
    data = file.read(size + 1)
    if len(data) > size:
        data += file.read(kind.limit + 1 - len(data))
    return check_size(data, kind, name)


def _too_large(name: str, kind: Kind, size: int = 0) -> SpecError:
    limit = f"{kind.limit:,} bytes"
    has = f"has {size:,} bytes, more than {limit}" if size else f"has more than {limit}"
    message = f"`{name}` {has}, the limit for a {kind.name}"
    return failure("file-too-large", message, name)


def current_folder() -> str:
    """Return the current directory, "" if it was removed."""
    try:
        return str(Path.cwd())
    except FileNotFoundError:
        return ""


def real_path(path: Path, name: str | None = None) -> Path:
    """Return the absolute path without links; messages call it *name*.

    Raises:
        SpecError: The path is too long, or relative to a directory that was removed.
    """
    try:
        return path.resolve()
    except (OSError, ValueError, RuntimeError):  # RuntimeError: links in a circle
        shown = name or str(path)
        gone = not (path.is_absolute() or current_folder())
        why = "the current directory was removed" if gone else path_error(path)
        raise failure("unreadable-file", f"`{shown}` cannot be read: {why}", shown) from None


def path_error(path: Path) -> str:
    """Return why *path* has no real path: links in a circle, with their chain, or no such path."""
    for link in (*reversed(path.parents), path):
        chain: list[str] = []
        place = str(link)
        try:
            while place not in chain and os.path.islink(place):  # noqa: PTH114  no ValueError
                chain.append(place)
                place = os.path.normpath(Path(place).parent / os.readlink(place))  # noqa: PTH115
        except (OSError, ValueError):
            break
        if place in chain:
            names = " -> ".join([*chain[chain.index(place) :], place])
            return f"its links form a circle: {names}"
    return "its path does not exist"


def project_root(path: Path) -> Path:
    """Return the directory that imports of the file at *path* may not leave.

    It is the nearest ancestor that is a checkout or a Python project, or else the file's own
    directory.

    Raises:
        SpecError: The path is invalid.
    """
    home = real_path(path).parent
    for folder in (home, *home.parents):
        if any((folder / mark).exists() for mark in (".git", "pyproject.toml")):
            return folder
    return home
