"""Files that are written completely or not at all, for commands and notebooks."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import suppress
from errno import EISDIR, ELOOP, ENXIO
from pathlib import Path
from types import TracebackType
from typing import Self, TextIO

from parcost.system.temporary import Temporary, file_beside

_SPELLED = "backslashreplace"


class WholeTarget(ABC):
    """An output of a ``with`` block: moved to its path at the end, removed after an error."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, _: BaseException | None, __: TracebackType | None
    ) -> None:
        try:
            if kind is None:
                self.finish()
        finally:
            self.abandon()

    @abstractmethod
    def finish(self) -> None:
        """Move the complete result into place."""

    @abstractmethod
    def abandon(self) -> None:
        """Remove the incomplete result, if there is one."""


class WholeFile(WholeTarget):
    """A new file, which replaces an old one when it is complete.

    If the target is a link, the linked file is replaced and the link stays. A target that is not a
    regular file, such as a pipe, is written directly. Every method may raise ``OSError``.
    """

    def __init__(self, path: Path) -> None:
        if path.is_symlink():
            path = Path(os.path.realpath(path))
            if path.is_symlink():  # a loop of links
                raise OSError(ELOOP, os.strerror(ELOOP), str(path))
        self.path = path
        self._beside: Temporary | None = None
        if path.is_dir():
            raise IsADirectoryError(EISDIR, os.strerror(EISDIR), str(path))
        self.file: TextIO
        if path.exists() and not path.is_file():
            self.file = open(path, "w", encoding="utf-8", newline="", opener=_open_at_once)  # noqa: SIM115
            return
        handle, self._beside = file_beside(path)
        self.file = os.fdopen(handle, "w", encoding="utf-8", errors=_SPELLED, newline="")

    def put(self, text: str) -> None:
        """Write a piece of the file."""
        self.file.write(text)

    def save_with(self, save: Callable[[Path], None]) -> None:
        """Let *save* write the file instead of :meth:`put`."""
        save(self.path if self._beside is None else self._beside.path)

    def finish(self) -> None:
        """Move the complete file into place."""
        self.file.close()
        if self._beside is not None:
            self._beside.path.chmod(0o666 & ~umask())
            self._beside.replace(self.path)
            self._beside = None

    def abandon(self) -> None:
        """Remove the incomplete file."""
        with suppress(OSError):  # what could not be written cannot be flushed either
            self.file.close()
        if self._beside is not None:
            self._beside.remove()


def _open_at_once(name: str, flags: int) -> int:
    """Return the file descriptor of a pipe or a device; a pipe without a reader is an error."""
    try:
        handle = os.open(name, flags | getattr(os, "O_NONBLOCK", 0))
    except OSError as error:
        if error.errno == ENXIO:
            raise OSError(ENXIO, "the reader of this pipe has exited", name) from None
        raise
    if hasattr(os, "set_blocking"):
        os.set_blocking(handle, True)
    return handle


def umask() -> int:
    """Return the permission bits that new files lack."""
    mask = os.umask(0)
    os.umask(mask)
    return mask
