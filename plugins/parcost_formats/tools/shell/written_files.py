"""Files that a shell script writes: by here-documents, ``echo`` and redirections."""

from __future__ import annotations

import posixpath
from collections.abc import Mapping, Sequence

from parcost_formats.tools.shell.assignments import FILE_PREFIX, VariableAssigner
from parcost_formats.tools.shell.expansion import ScriptSource, short
from parcost_formats.tools.shell.file_changes import DECIDING, is_target
from parcost_formats.tools.shell.values import Piece, ShellValue, Variable, text_of, unread_piece
from parcost_formats.tools.shell.words import Redirection, SimpleCommand

MAY_CHANGE = "may change it"  # ends the reason of a file whose text is not known


class FileWriter(VariableAssigner):
    """Stores the texts of files that a script writes."""

    def __init__(self, source: ScriptSource, pins: Mapping[str, str], name: str) -> None:
        super().__init__(source, pins, name)
        self._files: dict[str, Sequence[Piece]] = {}

    def _document(self, node: SimpleCommand) -> list[Piece] | None:
        for redirection in node.redirections:
            if redirection.document is not None:
                return self.value(redirection.document)
            if redirection.operator == "<<<":
                return self.value(redirection.target.parts)
        return None

    def _write(self, target: ShellValue, pieces: Sequence[Piece], *, adds: bool) -> None:
        """Store the text that a command writes into a file; a branch is undone with its layer."""
        path = text_of(target)
        before = self._files.get(path, ()) if adds else ()
        self._files[path] = [*before, *pieces]
        if unread_piece(target) is not None:
            return
        name = f"{FILE_PREFIX}{posixpath.normpath(path)}"
        known = self.layer.get(name) if adds else None
        first = known.values[0] if known is not None and known.values else []
        found = Variable([[*first, *pieces]], unread=known.unread if known is not None else "")
        found.exported = True
        self.assign(name, found)

    def _written_files(self) -> dict[str, Variable | None]:
        """Return the files that the script has written so far, by variable name."""
        names = (f"{FILE_PREFIX}{posixpath.normpath(path)}" for path in self._files)
        return {name: self.layer.get(name) for name in names}

    def _mark_targets(
        self, redirections: Sequence[Redirection], files: Mapping[str, Variable | None]
    ) -> None:
        """Mark *files* that are targets of redirections of text that is not known."""
        for one in redirections:
            if ">" not in one.operator:
                continue
            target = self.value(one.target.parts)
            is_read = unread_piece(target) is None
            self._mark_on_disk(text_of(target), one.target.start, one.target.end)
            for name in files:
                path = name.removeprefix(FILE_PREFIX)
                if is_target(path, text_of(target), is_read=is_read):
                    self._mark_file(name, files, one.target.start, one.target.end)

    def _mark_on_disk(self, path: str, start: int, end: int) -> None:
        """Mark a file that decides a job as not known, if the script has no text of it."""
        name = f"{FILE_PREFIX}{posixpath.normpath(path)}"
        if path.endswith(DECIDING) and self.layer.get(name) is None:
            self._files.setdefault(path, ())
            self._set_unknown(name, start, end)

    def _mark_file(
        self, name: str, files: Mapping[str, Variable | None], start: int, end: int
    ) -> None:
        """Mark a file as not known, if it still is as in *files*."""
        before = files[name]
        if before is not None and self.layer.get(name) is before:
            self._set_unknown(name, start, end)

    def _set_unknown(self, name: str, start: int, end: int) -> None:
        shown = short(self.source.text[start:end])
        line = self._line(self.source.place(start, end)[0])
        found = Variable([], "text", f"`{shown}` in line {line} {MAY_CHANGE}")
        found.exported = True
        self.layer.variables[name] = found
