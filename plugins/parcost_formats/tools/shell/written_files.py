"""Files that a shell script writes: by here-documents, ``echo`` and redirections."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase

from attrs import Factory, define

from parcost_formats.tools.shell.assignments import FILE_PREFIX, VariableAssigner
from parcost_formats.tools.shell.file_changes import DECIDING, is_target
from parcost_formats.tools.shell.nodes import Redirection, SimpleCommand
from parcost_formats.tools.shell.sources import short
from parcost_formats.tools.shell.values import Piece, ShellValue, Variable, text_of, unread_piece

MAY_CHANGE = "may change it"  # ends the reason of a file whose text is not known
UNKNOWN_FOLDER = "?"  # the path under which a launch has why its folder is not known
UNKNOWN = ("?", "~")  # start folders of which no path to the script is known
_FROM_ELSEWHERE = ("/", "~", "$")
_DEEP = "/-" * 64  # a folder from which `..` does not leave the tree


@define(slots=False, eq=False)
class FileWriter(VariableAssigner):
    """Stores the texts of files that a script writes."""

    _files: dict[str, Sequence[Piece]] = Factory(dict)  # by the names of variables in layers
    _folder: str = ""

    def _relative(self, path: str) -> str:
        """Return the path of a file from the folder of the script."""
        plain = re.sub(r"^(\./)+", "", path)
        if not self._folder or path.startswith(_FROM_ELSEWHERE):
            return plain
        return f"{self._folder}/{plain}"

    def _knows_folder(self) -> bool:
        """Return whether the current folder is known relative to this file."""
        return not self._folder.startswith(("?", "/", "~"))

    def _file_name(self, path: str) -> str:
        """Return the name of the variable that holds the text of a file, with its folder."""
        found = posixpath.normpath(self._relative(path))
        if self._folder[:1] in UNKNOWN and not path.startswith(_FROM_ELSEWHERE):
            found = found if found[:1] == self._folder[:1] else f"?/{posixpath.basename(path)}"
        return f"{FILE_PREFIX}{found}"

    def _path_from_here(self, name: str) -> str:
        """Return the path of a written file from the current folder, if that is known."""
        path = name.removeprefix(FILE_PREFIX)
        if not self._folder and _root_of(path) == "":
            return path
        if path.endswith("/"):
            found = self._path_from_here(name[:-1])
            return f"{found}/" if found.strip("./") else "*"  # this folder is in it
        if _root_of(path) != _root_of(self._folder):
            return path.removeprefix("?/")
        found = posixpath.relpath(f"{_DEEP}/{path}", f"{_DEEP}/{self._folder}")
        return posixpath.basename(found) if "*" in found and found[0] == "." else found

    def _paths_from_here(self, name: str) -> set[str]:
        """Return the paths by which a command may name a written file."""
        path = name.removeprefix(FILE_PREFIX)
        return {self._path_from_here(name), *([path] if path.startswith("/") else [])}

    def _document(self, node: SimpleCommand) -> list[Piece] | None:
        for redirection in node.redirections:
            if redirection.document is not None:
                return self.value(redirection.document)
            if redirection.operator == "<<<":
                return self.value(redirection.target.parts)
        return None

    def _write(self, target: ShellValue, pieces: Sequence[Piece], *, adds: bool) -> None:
        """Store the text that a command writes into a file, in the layer of the current branch.

        If the path is unknown, a launch finds the file by the same unknown expression.
        """
        name = self._file_name(text_of(target))
        before = self._files.get(name, ()) if adds else ()
        self._files[name] = [*before, *pieces]
        if adds and unread_piece(target) is not None:
            return
        known = self.layer.get(name) if adds else None
        first = known.values[0] if known is not None and known.values else []
        found = Variable([[*first, *pieces]], unread=known.unread if known is not None else "")
        found.exported = True
        self.assign(name, found)

    def _written_files(self) -> dict[str, Variable | None]:
        """Return the files that the script has written so far, by variable name."""
        return {name: self.layer.get(name) for name in self._files}

    def _mark_targets(
        self, redirections: Sequence[Redirection], files: Mapping[str, Variable | None]
    ) -> None:
        """Mark *files* that redirections overwrite with unknown text."""
        for one in redirections:
            if ">" not in one.operator:
                continue
            target = self.value(one.target.parts)
            is_read = unread_piece(target) is None
            self._mark_on_disk(text_of(target), one.target.start, one.target.end)
            for name in files:
                paths = self._paths_from_here(name)
                if any(is_target(path, text_of(target), is_read=is_read) for path in paths):
                    self._mark_file(name, files, one.target.start, one.target.end)

    def _mark_on_disk(self, path: str, start: int, end: int) -> None:
        """Mark a file that decides a job, or a folder, as unknown, if the script lacks its text."""
        name = self._file_name(path) + ("/" if path.endswith("/") else "")
        if path.endswith((*DECIDING, "/")) and self.layer.get(name) is None:
            self._files.setdefault(name, ())
            self._set_unknown(name, start, end)

    def _read_on_disk(self, path: str) -> str | None:
        """Return the text of a file in the folder of the script; None if a command may have changed
        it.
        """
        marked = (
            one.removeprefix(FILE_PREFIX) for one in self._files if one[-1] == "/" or "*" in one
        )
        if any(holds(one, path) for one in marked if self.layer.get(f"{FILE_PREFIX}{one}")):
            return None
        return self._neighbor(path)

    def _mark_file(
        self, name: str, files: Mapping[str, Variable | None], start: int, end: int
    ) -> None:
        """Mark a file as unknown, if its text is the same as in *files*."""
        before = files[name]
        if before is not None and self.layer.get(name) is before:
            self._set_unknown(name, start, end)

    def _set_unknown(self, name: str, start: int, end: int) -> None:
        shown = short(self.source.text[start:end])
        line = self._line(self.source.place(start, end)[0])
        found = Variable([], "text", f"`{shown}` in line {line} {MAY_CHANGE}")
        found.exported = True
        self.layer.variables[name] = found


def holds(place: str, path: str) -> bool:
    """Return whether a pattern matches a path, or a folder (with a final slash) contains it.

    A pattern also matches a plain name in another folder.

    >>> holds("*.json", "conf/ds.json"), holds("conf/*.json", "ds.json"), holds("a/", "a/b/ds.json")
    (True, True, True)
    """
    if place.endswith("/"):
        return path.startswith(place)
    plain = place if "/" in path else posixpath.basename(place)
    return "*" in place and fnmatchcase(path, plain)


def _root_of(path: str) -> str:
    return path[:1] if path.startswith((*UNKNOWN, *_FROM_ELSEWHERE)) else ""
