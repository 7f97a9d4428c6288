"""Files and folders of results, which are written completely or not at all.

The atomic files of click are not used, because they leave an incomplete result after Ctrl-C
(`docs/runtime.md`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from parcost.system.temporary import Temporary, folder_beside
from parcost.system.whole_files import WholeFile, WholeTarget, umask
from parcost_apps.cli.interrupts import Interrupts
from parcost_apps.cli.pages import paper
from parcost_apps.cli.streams import ClosedPipeError, put

if TYPE_CHECKING:
    from parcost.contract.offers import AnyExporter
    from parcost.contract.page import Paper
    from parcost.contract.plugin import Plugin


class OutputFile(WholeTarget):
    """The output: stdout, or a file that is replaced only when the new content is complete.

    A target that is not a regular file, such as a pipe, is written directly. *interrupts* are
    deferred while a piece is written to stdout. A lost interrupt is raised at the end.
    """

    def __init__(self, name: str | None, interrupts: Interrupts | None = None) -> None:
        self.name = name
        self._interrupts = interrupts
        self._file: WholeFile | None = None
        if name is not None:
            _check_no_input(name)
            with self._name_in_errors():
                self._file = WholeFile(Path(name))

    def put(self, text: str) -> None:
        """Write a piece of the results."""
        if self._file is None:
            put(text, self._interrupts)
            return
        with self._name_in_errors():
            self._file.put(text)
        if self._interrupts is not None:
            self._interrupts.check()

    def save_with(self, save: Callable[[Path], None]) -> None:
        """Let *save* write the file instead of :meth:`put`."""
        assert self._file is not None
        with self._name_in_errors():
            self._file.save_with(save)

    def paper(self) -> Paper:
        """Return the width, color and character set of the output stream."""
        return paper(None if self._file is None else self._file.file)

    def finish(self) -> None:
        """Move the complete file into place, unless the run was interrupted."""
        if self._interrupts is not None:
            self._interrupts.check()
        if self._file is not None:
            with self._name_in_errors():
                self._file.finish()

    def abandon(self) -> None:
        """Remove the incomplete file."""
        if self._file is not None:
            self._file.abandon()

    def _name_in_errors(self) -> AbstractContextManager[None]:
        return _name_in_errors(str(self.name))


class OutputFolder(WholeTarget):
    """A new folder of results, which appears when it is complete.

    A folder that is not empty is rejected, because its files could be lost or mistaken for new
    ones.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._beside: Temporary | None = None
        path = Path(name)
        with _name_in_errors(name):
            if path.is_dir() and any(path.iterdir()):
                raise click.UsageError(
                    f"`--out {name}` is a folder that is not empty: choose a new folder"
                )
            if path.exists() and not path.is_dir():
                raise click.UsageError(f"`--out {name}` is a file, but the format writes a folder")
            self._beside = folder_beside(path)

    def save_with(self, save: Callable[[Path], None]) -> None:
        """Let *save* write its files into the folder."""
        assert self._beside is not None
        with _name_in_errors(self.name):
            save(self._beside.path)

    def finish(self) -> None:
        """Move the complete folder into place."""
        assert self._beside is not None
        with _name_in_errors(self.name):
            self._beside.path.chmod(0o777 & ~umask())
            self._beside.replace(Path(self.name))
            self._beside = None

    def abandon(self) -> None:
        """Remove the incomplete folder."""
        if self._beside is not None:
            self._beside.remove()


def _check_no_input(name: str) -> None:
    """Reject an output file that is also an input of the command."""
    context = click.get_current_context(silent=True)
    given = {} if context is None else {n: v for n, v in context.params.items() if n != "out"}
    for value in given.values():
        for one in value if isinstance(value, tuple) else (value,):
            if isinstance(one, str) and _is_same_file(one, name):
                raise click.UsageError(
                    f"`--out {name}` is an input of this command: choose another file"
                )


def _is_same_file(one: str, other: str) -> bool:
    try:
        return Path(one).is_file() and Path(one).samefile(other)
    except (OSError, ValueError, RuntimeError):
        return False


@contextmanager
def _name_in_errors(name: str) -> Iterator[None]:
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


def write_with(
    plugin: Plugin,
    exporter: AnyExporter,
    items: Iterable[Any],
    target: OutputFile | OutputFolder,
) -> None:
    """Write *items* with the *exporter* of a *plugin*; an error names the plugin."""
    from parcost.contract.offers import write_items
    from parcost.contract.page import Paper

    on = target.paper() if isinstance(target, OutputFile) else Paper()
    passing = (ClosedPipeError, click.ClickException)
    into: Any = target  # a folder only of an exporter of files
    try:
        write_items(plugin, exporter, items, into, on, passing)
    except OSError as error:
        what = f"{error.filename}: " if error.filename else ""
        said = f"plugin {plugin} failed to write `{exporter.name}`"
        raise click.ClickException(f"{said}: {what}{error.strerror or error}") from error
