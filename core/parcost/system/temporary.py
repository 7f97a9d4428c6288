"""Temporary files and folders of a run; the next run removes those of a killed one.

The process that creates one holds a lock on it. The system releases the lock however the process
ends, so an unlocked one is left over. The atomic files of click were tried: after an interrupt the
result was incomplete, and `kill -9` left a temporary file; so does `tempfile` (`docs/runtime.md`).
"""

from __future__ import annotations

import os
import re
import shutil
import stat
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from tempfile import gettempdir, mkdtemp, mkstemp
from typing import Self

try:
    import fcntl
except ImportError:  # no system of POSIX: nothing is locked, and nothing left over removed
    _LOCKS = False
else:
    _LOCKS = True

_FOLDER = "parcost-temporary-"
_SUFFIX = ".part"
_RANDOM = r"[a-z0-9_]{8}"  # what the standard library puts into names
_LOOK = os.O_RDONLY
for _flag in ("O_NONBLOCK", "O_NOFOLLOW", "O_CLOEXEC"):
    _LOOK |= getattr(os, _flag, 0)


class Temporary:
    """A file or a folder at *path*, held by its lock until it is removed or replaces another."""

    def __init__(self, path: Path, lock: int | None = None) -> None:
        self.path = path
        self._lock = lock

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()

    def replace(self, target: Path) -> None:
        """Move the file or folder to *target*."""
        self.path.replace(target)
        self._release()

    def remove(self) -> None:
        """Remove the file or folder, unless it was moved."""
        if self.path.is_dir():
            shutil.rmtree(self.path, ignore_errors=True)
        else:
            with suppress(OSError):  # a later run removes what is left
                self.path.unlink(missing_ok=True)
        self._release()

    def _release(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


def file_beside(path: Path) -> tuple[int, Temporary]:
    """Return the handle of a new file in the folder of *path*, and its :class:`Temporary`."""
    prefix = f".{path.name}."
    _remove_left_over(path.parent, prefix, _SUFFIX, stat.S_ISREG)
    while True:
        handle, name = mkstemp(prefix=prefix, suffix=_SUFFIX, dir=path.parent)
        lock = os.dup(handle)  # closed later than what is written
        if _lock_new(lock, name):
            return handle, Temporary(Path(name), lock)
        os.close(lock)
        os.close(handle)


def folder_beside(path: Path) -> Temporary:
    """Return a new folder in the folder of *path*."""
    return _new_folder(path.parent, f".{path.name}.", _SUFFIX)


def temporary_folder() -> Temporary:
    """Return a new folder that only this user can read."""
    return _new_folder(Path(gettempdir()), _FOLDER, "")


def _new_folder(place: Path, prefix: str, suffix: str) -> Temporary:
    _remove_left_over(place, prefix, suffix, stat.S_ISDIR)
    while True:
        name = mkdtemp(prefix=prefix, suffix=suffix, dir=place)
        if not _LOCKS:
            return Temporary(Path(name))
        with suppress(FileNotFoundError):  # another run removed it before its lock: make one anew
            lock = os.open(name, _LOOK)
            if _lock_new(lock, name):
                return Temporary(Path(name), lock)
            os.close(lock)


def _lock_new(lock: int, name: str) -> bool:
    """Lock a new file, and return whether it still exists: another run may have removed it."""
    if not _LOCKS:
        return True
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return os.path.samestat(os.fstat(lock), Path(name).lstat())
    except FileNotFoundError:
        return False
    except OSError:  # a file system without locks
        return True


def _remove_left_over(
    place: Path, prefix: str, suffix: str, is_kind: Callable[[int], bool]
) -> None:
    """Remove temporary files of this user in *place* that killed runs left."""
    if not _LOCKS:
        return
    named = re.compile(re.escape(prefix) + _RANDOM + re.escape(suffix))
    try:
        left = [entry.path for entry in os.scandir(place) if named.fullmatch(entry.name)]
    except OSError:
        return
    for name in left:
        with suppress(OSError):  # another run removes it, or its owner holds it
            _remove_unless_held(Path(name), is_kind)


def _remove_unless_held(path: Path, is_kind: Callable[[int], bool]) -> None:
    status = path.lstat()
    if not is_kind(status.st_mode) or status.st_uid != os.geteuid():
        return
    lock = os.open(path, _LOOK)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if is_kind(stat.S_IFDIR):
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink()
    finally:
        os.close(lock)
