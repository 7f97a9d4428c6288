"""Files that a shell script copies, or edits with constants: their texts are still known."""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from attrs import define

from parcost_formats.tools.shell.assignments import FILE_PREFIX
from parcost_formats.tools.shell.control_flow import ControlFlow
from parcost_formats.tools.shell.file_changes import DECIDING, written_paths
from parcost_formats.tools.shell.file_edits import LONGEST, edit_by_jq, edit_by_sed, references
from parcost_formats.tools.shell.nodes import (
    Redirection,
    ShellNode,
    ShellPipeline,
    ShellToken,
    SimpleCommand,
)
from parcost_formats.tools.shell.values import (
    Decision,
    Piece,
    ShellValue,
    Variable,
    assumption_of,
    field_of,
    text_of,
    unread_piece,
)
from parcost_formats.tools.shell.written_files import MAY_CHANGE, UNKNOWN, UNKNOWN_FOLDER

_EDITORS = {"cp", "mv", "sed", "cat", "jq", "envsubst"}
_MOST_EDITS = 200  # of files of a script: behind more, their texts are not known
_INPUT = "/dev/stdin"
_COPY_OPTIONS = {"-f", "-v", "-a", "-p"}
_IN_PLACE = re.compile(r"-[a-zA-Z]*i.*|--in-place")


class _FileText(NamedTuple):
    """The text of a file, and the reason why a part of it is assumed."""

    text: str
    assumption: str = ""


@define(slots=False, eq=False)
class FileEditor(ControlFlow):
    """Stores the texts of files after copies and simple edits."""

    _edits: int = 0

    def _files_of_launch(self) -> dict[str, Variable | None]:
        """Return the written files by their paths from the folder of a launch.

        Another file with the name of a written one is read only in the folder of the launch.
        """
        files = {name: one for name, one in self._written_files().items() if one is not None}
        found: dict[str, Variable | None] = {}
        unsure: set[str] = set()
        paths = {name: self._path_from_here(name) for name in files}
        exact = {name for name, path in paths.items() if self._file_name(path) == name}
        for name in sorted(files, key=exact.__contains__):
            if name not in exact and name[len(FILE_PREFIX)] in UNKNOWN:
                unsure.add(paths[name])
                continue
            for path in self._paths_from_here(name):
                found[f"{FILE_PREFIX}{path}"] = files[name]
        plain = {posixpath.basename(one) for one in files} if self._folder else set()
        if self._folder.startswith("?"):
            why = f"{self._moved} changes to an unknown folder"
            found[f"{FILE_PREFIX}{UNKNOWN_FOLDER}"] = Variable([], unread=why)
        for path in (*unsure, *plain, *(f"../{one}" for one in plain)):
            name = f"{FILE_PREFIX}{path}"
            if not path.endswith(DECIDING) or name in found:
                continue
            place = self._file_name(path).removeprefix(FILE_PREFIX)
            text = None if path in unsure else self._read_on_disk(place)
            found[name] = Variable([] if text is None else [[Piece(text, 0, 0)]])
            if text is None:
                found[name] = Variable([], unread=f"`cd` to another folder {MAY_CHANGE}")
        return found

    def _edit(self, node: SimpleCommand, fields: Sequence[ShellValue]) -> bool:
        """Store the text of a file after a copy or a simple edit; otherwise return False."""
        texts = [text_of(value) for value in fields]
        key = posixpath.basename(texts[0])
        if key not in _EDITORS or any(unread_piece(value) is not None for value in fields):
            return False
        notes = (assumption_of(value) for value in fields)
        assumption = next((note for note in notes if note), "")
        if node.redirections:
            target, done = self._redirect(node, key, texts[1:])
        elif key in ("cp", "mv"):
            target, done = self._copy(texts[1:])
        elif key == "sed":
            target, done = self._edit_in_place(texts[1:])
        else:
            return False
        if done is None:
            return False
        text = Piece(done.text, 0, 0, assumption=assumption or done.assumption)
        self._write([Piece(target, 0, 0)], [text], adds=False)
        for path in written_paths(texts) if key == "mv" else ():
            if path != target and path[-1:] != "/":
                name = self._file_name(path)
                self._files.setdefault(name, ())
                self._set_unknown(name, node.start, node.end)
        return True

    def _copy(self, words: Sequence[str]) -> tuple[str, _FileText | None]:
        operands = [one for one in words if not one.startswith("-")]
        plain = len(operands) == 2 and {*words} <= {*operands, *_COPY_OPTIONS}
        if not plain:
            return "", None
        source, target = operands
        if not target.endswith(DECIDING):  # a folder
            if not source.endswith(DECIDING):
                return "", None
            target = posixpath.join(target, posixpath.basename(source))
        return target, self._text_on_disk(source)

    def _edit_in_place(self, words: Sequence[str]) -> tuple[str, _FileText | None]:
        path = words[-1] if words else ""
        before = self._text_on_disk(path)
        if before is None or not any(_IN_PLACE.fullmatch(one) for one in words):
            return path, None
        edited = edit_by_sed(before.text, words)
        if edited is None or [*edited[1]] != [path]:
            return path, None
        return path, before._replace(text=edited[0])

    def _redirect(
        self, node: SimpleCommand, key: str, words: Sequence[str]
    ) -> tuple[str, _FileText | None]:
        """Return the file that the output of a command is written into, and its text."""
        outputs = [one for one in node.redirections if one.operator in (">", ">|")]
        inputs = [one for one in node.redirections if one.operator == "<"]
        if len(outputs) != 1 or len(inputs) + 1 != len(node.redirections):
            return "", None
        target = self.value(outputs[0].target.parts)
        if unread_piece(target) is not None or self._is_read(target, words, inputs):
            return "", None
        before, words = self._input(key, words, inputs)
        return text_of(target), self._filter(key, words, before)

    def _is_read(
        self, target: ShellValue, words: Sequence[str], inputs: Sequence[Redirection]
    ) -> bool:
        """Return whether a command reads the file that it writes, which the shell empties first."""
        read = (*words, *(text_of(self.value(one.target.parts)) for one in inputs))
        return posixpath.normpath(text_of(target)) in map(posixpath.normpath, read)

    def _input(
        self, key: str, words: Sequence[str], inputs: Sequence[Redirection]
    ) -> tuple[_FileText | None, Sequence[str]]:
        """Return the text that a command reads, and its words without the name of that file."""
        if len(inputs) == 1:
            return self._text_on_disk(text_of(self.value(inputs[0].target.parts))), words
        if inputs or not words or key == "envsubst":
            return None, words
        return self._text_on_disk(words[-1]), words[:-1]

    def _filter(self, key: str, words: Sequence[str], before: _FileText | None) -> _FileText | None:
        """Return the output of a command for the text that it reads, None if it is unknown."""
        if before is None:
            return None
        if key == "cat":
            return None if words else before
        if key == "envsubst":
            return self._substitute(before, words)
        if key == "jq":
            return _edit_json(before, words)
        edited = edit_by_sed(before.text, [*words, _INPUT]) if key == "sed" else None
        known = edited is not None and [*edited[1]] == [_INPUT]
        if edited is None or not known or any(_IN_PLACE.fullmatch(one) for one in words):
            return None
        return before._replace(text=edited[0])

    def _pipeline(self, node: ShellPipeline) -> Decision:
        return Decision(True) if self._pipe(node.commands) else super()._pipeline(node)

    def _pipe(self, commands: Sequence[ShellNode]) -> bool:
        """Store the text that a pipeline of filters writes to a file.

        An example is ``sed s/A/1/ a | sed s/B/2/ > b``. Return False for other pipelines.
        """
        *_, last = commands
        outputs = last.redirections if isinstance(last, SimpleCommand) else ()
        if len(commands) < 2 or [one.operator for one in outputs] not in ([">"], [">|"]):
            return False
        target = self.value(outputs[0].target.parts)
        text: _FileText | None = None
        for command in commands:
            text = self._filter_text(command, text, target, is_last=command is last)
            if text is None:
                return False
        if text is None or unread_piece(target) is not None:
            return False
        self._write(target, [Piece(text.text, 0, 0, assumption=text.assumption)], adds=False)
        return True

    def _filter_text(
        self, command: ShellNode, before: _FileText | None, target: ShellValue, *, is_last: bool
    ) -> _FileText | None:
        """Return the text that a filter of a pipeline writes; None if it is unknown.

        *before* is the text of the filter before it, or None for the first, which reads a file.
        """
        if not isinstance(command, SimpleCommand) or command.assignments:
            return None
        inputs = () if is_last else command.redirections
        first = command.words[0] if command.words else None
        plain = first.plain if isinstance(first, ShellToken) else ""
        known = plain in _EDITORS and all(one.operator == "<" for one in inputs)
        if not known or (before is not None and inputs):
            return None
        tokens = [one for one in command.words[1:] if isinstance(one, ShellToken)]
        fields = [value for token in tokens for value in self.fields(token)]
        if any(unread_piece(value) is not None for value in fields):
            return None
        words: Sequence[str] = [text_of(value) for value in fields]
        if self._is_read(target, words, inputs):
            return None
        if before is None:
            before, words = self._input(plain, words, inputs)
        text = self._filter(plain, words, before)
        if text is None:
            return None
        notes = (note for value in fields if (note := assumption_of(value)))
        return text._replace(assumption=text.assumption or next(notes, ""))

    def _text_on_disk(self, path: str) -> _FileText | None:
        """Return the text of a file as it is now; None if it is unknown."""
        self._edits += 1
        if self._edits > _MOST_EDITS:
            return None
        name = self._file_name(path)
        file = self.layer.get(name) if path else None
        if file is not None:
            found = field_of(file.values[0] if file.values else [])
            return None if file.unread or found.unread else _FileText(found.text, found.assumption)
        text = None if name in self._files else self._read_on_disk(name.removeprefix(FILE_PREFIX))
        return _FileText(text) if text is not None else None

    def _substitute(self, before: _FileText, names: Sequence[str]) -> _FileText | None:
        """Return a text with exported variables in place of references, as by ``envsubst``."""
        wanted = {name for one in names for _, name in references(one) if name}
        parts: list[str] = []
        why = before.assumption
        size = 0
        for text, name in references(before.text):
            size += len(text) + (len(parts[-1]) if parts else 0)
            if size > LONGEST:
                return None
            parts.append(text)
            if not name:
                continue
            if wanted and name not in wanted:
                parts.append(f"${{{name}}}")
                continue
            value = self.layer.get(name)
            known = value is not None and value.exported and len(value.values) == 1
            if value is None or not known or value.unread or unread_piece(value.values[0]):
                return None
            parts.append(text_of(value.values[0]))
            why = why or assumption_of(value.values[0])
        return _FileText("".join(parts), why)


def _edit_json(before: _FileText, words: Sequence[str]) -> _FileText | None:
    """Return a JSON text after assignments of ``jq``."""
    given: dict[str, Any] = {}
    rest = list(words)
    expression = ""
    while rest:
        word = rest.pop(0)
        if word in ("--arg", "--argjson") and len(rest) > 1:
            name, value = rest.pop(0), rest.pop(0)
            try:
                given[name] = value if word == "--arg" else json.loads(value)
            except (ValueError, RecursionError):
                return None
        elif expression or word.startswith("-"):
            return None
        else:
            expression = word
    text = edit_by_jq(before.text, expression, given)
    return None if text is None else before._replace(text=text)
