"""Files and folders of results, which appear whole or not at all.

The atomic files of click were tried and left: they put half a result in place at Ctrl-C
(`docs/runtime.md`).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from errno import EISDIR
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

import click

from parcost.cli.interrupts import Interrupts
from parcost.cli.pages import paper
from parcost.cli.streams import ClosedPipeError, put
from parcost.system.temporary import Temporary, file_beside, folder_beside

if TYPE_CHECKING:
    from parcost.contract.page import Paper

_SPELLED = "backslashreplace"


class OutputFile:
    """Where results go: stdout, or a file that appears whole or not at all.

    What a file held before stays until the new one is complete, also where it never is.
    What is no regular file, such as a pipe, is written as it is. No *interrupts* cut what
    is put on stdout.
    """

    def __init__(self, name: str | None, interrupts: Interrupts | None = None) -> None:
        self.name = name
        self._interrupts = interrupts
        self._file: TextIO | None = None
        self._beside: Temporary | None = None
        if name is None:
            return
        path = Path(name)
        with self._complaining():
            if path.is_dir():
                raise IsADirectoryError(EISDIR, os.strerror(EISDIR), name)
            if path.exists() and not path.is_file():
                self._file = path.open("w", encoding="utf-8", newline="")
                return
            handle, self._beside = file_beside(path)
            self._file = os.fdopen(handle, "w", encoding="utf-8", errors=_SPELLED, newline="")

    def put(self, text: str) -> None:
        """Write a piece of the results."""
        if self._file is None:
            put(text, self._interrupts)
            return
        with self._complaining():
            self._file.write(text)

    def save_with(self, save: Callable[[Path], None]) -> None:
        """Have *save* write the file instead."""
        assert self._beside is not None
        with self._complaining():
            save(self._beside.path)

    def paper(self) -> Paper:
        """Return what the results are drawn on."""
        return paper(self._file)

    def finish(self) -> None:
        """Let the file appear."""
        if self._file is None:
            return
        with self._complaining():
            self._file.close()
            if self._beside is not None:
                self._beside.path.chmod(0o666 & ~_umask())
                self._beside.replace(Path(str(self.name)))
                self._beside = None

    def abandon(self) -> None:
        """Remove what is not complete."""
        if self._file is not None:
            with suppress(OSError):  # what could not be written cannot be flushed either
                self._file.close()
        if self._beside is not None:
            self._beside.remove()

    def _complaining(self) -> AbstractContextManager[None]:
        return _complaining(str(self.name))


class OutputFolder:
    """A new folder of results, which appears whole or not at all.

    A folder that holds anything already is refused: its files would be lost, or taken for new ones.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._beside: Temporary | None = None
        path = Path(name)
        with _complaining(name):
            if path.is_dir() and any(path.iterdir()):
                raise click.UsageError(
                    f"`--out {name}` is a folder that is not empty: name a new one"
                )
            if path.exists() and not path.is_dir():
                raise click.UsageError(f"`--out {name}` is a file, and the format writes a folder")
            self._beside = folder_beside(path)

    def save_with(self, save: Callable[[Path], None]) -> None:
        """Have *save* write its files into the folder."""
        assert self._beside is not None
        with _complaining(self.name):
            save(self._beside.path)

    def finish(self) -> None:
        """Let the folder appear."""
        assert self._beside is not None
        with _complaining(self.name):
            self._beside.path.chmod(0o777 & ~_umask())
            self._beside.replace(Path(self.name))
            self._beside = None

    def abandon(self) -> None:
        """Remove what is not complete."""
        if self._beside is not None:
            self._beside.remove()


@contextmanager
def _complaining(name: str) -> Iterator[None]:
    try:
        yield
    except BrokenPipeError as error:
        raise ClosedPipeError from error
    except OSError as error:
        folder = Path(name).parent
        missing = isinstance(error, FileNotFoundError) and not folder.exists()
        reason = f"there is no folder `{folder}`" if missing else error.strerror or error
        said = f"`{name}` cannot be written: {reason}"
        raise click.ClickException(said) from error


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
