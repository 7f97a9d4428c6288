"""The open documents of an editor; their texts replace the files of the same path."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import count
from pathlib import Path

from attrs import Factory, define

from parcost.binding.modules import Buffer
from parcost_apps.editor.positions import Lines, TextRange

_MARK = "\ufeff"


@define(eq=False)
class OpenText:
    """A document open in the editor. *path* is the name of its file in diagnostics and messages."""

    path: str
    lines: Lines
    version: int | None = None

    @property
    def text(self) -> str:
        """The text of the spec, without a byte order mark."""
        return self.lines.text.removeprefix(_MARK)

    @property
    def shift(self) -> int:
        """The number of characters before the text of the spec: 1 for a byte order mark, else 0."""
        return len(self.lines.text) - len(self.text)

    def range(self, start: int, end: int) -> TextRange:
        """Return the range in the document between two offsets in the text of the spec."""
        return self.lines.range(start + self.shift, end + self.shift)


@define(eq=False)
class OpenTexts:
    """All open documents, by resolved path. *encoding* is the encoding of column numbers."""

    encoding: str = "utf-16"
    buffers: dict[str, Buffer] = Factory(dict)
    _open: dict[str, OpenText] = Factory(dict)
    _serials: Iterator[int] = Factory(count)

    def open(self, path: str, text: str, version: int | None = None) -> OpenText:
        """Add a document, or replace its whole text."""
        found = OpenText(path, Lines(_printable(text), self.encoding), version)
        self._open[key_of(path)] = found
        self._keep(found)
        return found

    def change(
        self, path: str, changes: Sequence[tuple[TextRange | None, str]], version: int | None = None
    ) -> OpenText:
        """Apply *changes* one after another; one without a range is the whole text.

        Raises:
            KeyError: The document is not open.
        """
        found = self._open[key_of(path)]
        for where, text in changes:
            whole = text if where is None else found.lines.replace(where, text)
            found.lines = Lines(_printable(whole), self.encoding)
        found.version = version
        self._keep(found)
        return found

    def close(self, path: str) -> None:
        """Remove a document; from now on its file on disk is read."""
        self._open.pop(key_of(path), None)
        self.buffers.pop(key_of(path), None)

    def get(self, path: str) -> OpenText | None:
        """Return the document of a path, if it is open."""
        return self._open.get(key_of(path))

    def __iter__(self) -> Iterator[OpenText]:
        """Yield the open documents."""
        return iter(list(self._open.values()))

    def _keep(self, found: OpenText) -> None:
        self.buffers[key_of(found.path)] = Buffer(found.text, next(self._serials))


def key_of(path: str) -> str:
    """Return the key of a file: its path with symbolic links resolved, if that is possible."""
    try:
        return str(Path(path).resolve())
    except (OSError, ValueError, RuntimeError):
        return path


def _printable(text: str) -> str:
    """Return *text* with lone surrogates, which no file can contain, replaced."""
    if text.isascii():
        return text
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
