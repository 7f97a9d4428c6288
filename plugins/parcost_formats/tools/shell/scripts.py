"""Variables, arrays and commands of a shell script, which is never executed.

References are expanded from assignments in the file. Other variables are unread, with a reason.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from parcost_formats.tools.shell.assignments import FILE_PREFIX
from parcost_formats.tools.shell.builtins import BuiltinReader
from parcost_formats.tools.shell.commands import SCRIPT_ENDINGS
from parcost_formats.tools.shell.layers import ScriptCommand
from parcost_formats.tools.shell.sources import ScriptSource
from parcost_formats.tools.shell.values import (
    ARGUMENTS,
    Decision,
    Piece,
    ShellField,
    Variable,
    assumption_of,
    field_of,
    split,
    split_fields,
    unread_piece,
)
from parcost_formats.tools.shell.words import ShellTextError, arguments, parse_script
from parcost_formats.tools.shell.written_files import MAY_CHANGE, UNKNOWN_FOLDER, holds

__all__ = ["ARGUMENTS", "MAY_CHANGE", "Script", "ShellField", "list_places", "read_arguments"]
__all__ += ["count_at_end", "count_nodes", "read_script"]

_SCHEDULER = re.compile(r"^#SBATCH[ \t]+([^\n#]*)", re.MULTILINE)
_SCHEDULED = re.compile(r"(--[a-z-]+|-[A-Za-z])[= \t]*([^\s=-][^\s]*|-\d\S*)")
_LONG_NAMES = {"-N": "--nodes", "-n": "--ntasks", "-G": "--gpus"}
_OF_JOB = re.compile(r"\$\{?SLURM_JOB_?ID\}?[\w.-]*\.(?:json|ya?ml)\b")
HETEROGENEOUS = "hetjob"  # several sets of options, each for a part of the job
_JOB_NUMBERS = ("SLURM_JOB_ID", "SLURM_JOBID")
_VARIABLES_OF_SCHEDULER = {
    "--nodes": ("SLURM_NNODES", "SLURM_JOB_NUM_NODES"),
    "--gpus-per-node": ("SLURM_GPUS_PER_NODE", "SLURM_GPUS_ON_NODE"),
    "--ntasks-per-node": ("SLURM_NTASKS_PER_NODE",),
    "--ntasks": ("SLURM_NTASKS", "SLURM_NPROCS"),
}


def _no_neighbor(path: str) -> str | None:  # noqa: ARG001
    return None


class Script(NamedTuple):
    """The variables and commands of a script.

    *conditional* are words from branches of undecided tests, each with its reason. *scheduler* are
    options of ``#SBATCH`` lines. *assumed* are tests that depend on a default of the script, each
    with its variable, its place and the assumption. *found* are scripts that it starts by another
    path, and *lacking* scripts that are not in its folder. *absent* are missing files that it
    sources. *written* are the texts of files that it writes by here-documents before the launch
    that is read, by path. *folder* is the current folder of that launch, relative to the folder of
    the script. *substitutes* are files beside the script that were read in place of files in that
    folder. *ended* is a certain ``exit`` before the end of the script. *repeated* are options of
    ``#SBATCH`` lines that a later line replaces.
    """

    variables: Mapping[str, Variable]
    commands: Sequence[ScriptCall]
    conditional: Sequence[ShellField]
    scheduler: Mapping[str, ShellField]
    assumed: Sequence[ShellField] = ()
    found: Sequence[ShellField] = ()
    lacking: Sequence[ShellField] = ()
    written: Mapping[str, ShellField] = {}
    folder: str = ""
    substitutes: set[str] | None = None
    ended: ShellField | None = None
    absent: Sequence[ShellField] = ()
    repeated: Sequence[tuple[str, ShellField]] = ()

    def start_from(self, written: Mapping[str, ShellField], folder: str) -> Script:
        """Return the script with the written files and the current folder of a command."""
        return self._replace(written=written, folder=folder, substitutes=set())

    def neighbor(self, other: Callable[[str], str | None]) -> Callable[[str], str | None]:
        """Return a function that returns the text of a written file, or of one of the *other*
        files.

        A file in the folder of the launch takes precedence over one in the folder of the script. If
        the folder is unknown, no other file is read.
        """

        def find(path: str) -> str | None:
            field = self.find_written(path)
            if field is not None:
                return None if field.unread else field.text
            if UNKNOWN_FOLDER in self.written:
                return None
            inside = posixpath.normpath(f"{self.folder}/{path}") if self.folder else path
            text = other(inside) if path[:1] not in ("/", "~", "$") else None
            if text is None and inside != path:
                text = other(path)
                if text is not None and self.substitutes is not None:
                    self.substitutes.add(path)
            return text

        return find

    def find_reason(self, path: str) -> str:
        """Return why the text of a file is unknown if the script may change the file, else ""."""
        field = self.find_written(path) or self.written.get(UNKNOWN_FOLDER)
        return field.unread if field is not None else ""

    def find_written(self, path: str) -> ShellField | None:
        """Return the text that the script writes into a file, None if it does not write the file.

        A plain name also matches patterns, and a file of another folder whose text is unknown.
        """
        unread = (
            one
            for key, one in self.written.items()
            if one.unread and (key.endswith(f"/{path}") or holds(key, posixpath.normpath(path)))
        )
        return self.written.get(posixpath.normpath(path)) or next(unread, None)

    def assumption(self, path: str, start: int, end: int) -> str:
        """Return the reason why a part of a file is assumed, "" if it is not assumed."""
        if path in (self.substitutes or ()):
            return f"the script starts in `{self.folder}`, and `{path}` is beside it"
        return assumption_of(self._find_pieces(path, start, end))

    def find_partial(self, path: str) -> ShellField | None:
        """Return the text that the script writes into a file, if parts of it are unknown.

        None if it is known, or if it is unknown whether a command of the script changes it.
        """
        field = self.find_written(path)
        if field is None or not any(piece.unread == field.unread for piece in field.pieces):
            return None
        is_partial = any(piece.text.strip() for piece in field.pieces if not piece.unread)
        return field if field.unread and is_partial else None

    def find_unknown(self, path: str, start: int, end: int) -> Piece | None:
        """Return the first unknown part of a written file between two places in it."""
        return unread_piece(self._find_pieces(path, start, end))

    def _find_pieces(self, path: str, start: int, end: int) -> Sequence[Piece]:
        """Return the pieces of the text of a written file between two places in it."""
        field = self.find_written(path)
        found, at = [], 0
        for piece in field.pieces if field is not None else ():
            if at < end and start < at + len(piece.text):
                found.append(piece)
            at += len(piece.text)
        return found

    def fields(self, name: str) -> Sequence[ShellField]:
        """Return the words of a variable that are certain."""
        return split_fields(self._words(name)).certain

    def environment_of(self, own: Mapping[str, ShellField]) -> dict[str, ShellField]:
        """Return the variables in the environment of a program; its *own* assignments win."""
        exported = [name for name, one in self.variables.items() if one.exported]
        found = {name: fields[0] for name in exported if len(fields := self.fields(name)) == 1}
        return {**found, **own}

    def conditional_fields(self, name: str) -> Sequence[ShellField]:
        """Return the words of a variable that only some branches set."""
        return split_fields(self._words(name)).conditional

    def _words(self, name: str) -> Sequence[ShellField]:
        variable = self.variables[name]
        pieces = [split([(piece, False) for piece in value]) for value in variable.values]
        return [field_of(value) for values in pieces for value in values]


class ScriptCall(NamedTuple):
    """A command in a script: its certain words, and *conditional* words.

    *environment* are assignments ahead of it. *decision* is the test on which it depends, if any.
    *written* are the texts of files that the script writes before it, by path. *folder* is the
    current folder, relative to the folder of the script; "" if they are equal, or if it is unknown.
    *place* is the place of the command; words from variables have other places.
    """

    words: Sequence[ShellField]
    conditional: Sequence[ShellField]
    environment: Mapping[str, ShellField]
    decision: Decision | None
    written: Mapping[str, ShellField]
    folder: str
    place: tuple[int, int]


def read_script(
    text: str,
    environment: Mapping[str, str] | None = None,
    neighbor: Callable[[str], str | None] = _no_neighbor,
    name: str = "script.sh",
) -> Script:
    """Return the variables and commands of the script *text*.

    *environment* has values that replace variables of the script; ``1`` is its first argument.
    *neighbor* returns the texts of sourced files. In names of configurations, the number of the
    Slurm job is assumed to be 0.

    Raises:
        ShellTextError: The text is not a script, or its expansion is too large.
    """
    pins = dict.fromkeys(_JOB_NUMBERS, "0") if _OF_JOB.search(text) else {}
    return _ScriptReader(text, {**pins, **(environment or {})}, neighbor, name).script()


def read_arguments(text: str) -> Sequence[ShellField]:
    """Return the words of a bare list of arguments.

    Raises:
        ShellTextError: A quote has no end.
    """
    reader = _ScriptReader(text, {}, _no_neighbor, "script.sh")
    return [field_of(value) for token in arguments(text) for value in reader.fields(token)]


def list_places(name: str, script: Script | None) -> Sequence[str]:
    """Return the paths at which to look for a file: as named, and beside this file.

    If a command may change the named file, the file in this folder is not used instead.
    """
    changed = script is not None and script.find_reason(name)
    return (name,) if changed else (name, name.rpartition("/")[2])


def count_at_end(field: ShellField | None) -> int | None:
    """Return the number in a text such as ``8`` or ``gpu:h100:8``."""
    text = field.text.rpartition(":")[2] if field is not None else ""
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 9 else None


def count_slots(text: str) -> int | None:
    """Return the number of devices in DeepSpeed's ``--include``; None if a node lists none.

    >>> count_slots("localhost:0,1,2,3"), count_slots("a:0-3@b:0,2"), count_slots("localhost")
    (4, 6, None)
    """
    total = 0
    for node in text.split("@"):
        _, _, slots = node.partition(":")
        for slot in slots.split(","):
            match = re.fullmatch(r"(\d{1,4})(?:-(\d{1,4}))?", slot)
            if match is None:
                return None
            total += int(match[2] or match[1]) - int(match[1]) + 1
    return total


def count_nodes(scheduler: Mapping[str, ShellField]) -> int | None:
    """Return the nodes of a job, if the scheduler states one number of them."""
    field = scheduler.get("--nodes")
    return None if field is None or ":" in field.text else count_at_end(field)


def split_words(field: ShellField) -> Sequence[ShellField]:
    """Split a word at white space, as a shell does."""
    return [field_of(value) for value in split([(piece, False) for piece in field.pieces])]


class _ScriptReader(BuiltinReader):
    """Follows the commands of a script in order, without executing them."""

    def __init__(
        self,
        text: str,
        environment: Mapping[str, str],
        neighbor: Callable[[str], str | None],
        name: str,
    ) -> None:
        super().__init__(ScriptSource(text), environment, name.rpartition("/")[2], neighbor)
        self.scheduler: dict[str, Piece] = {}
        self.repeated: list[tuple[str, Piece]] = []
        for key, value in environment.items():
            variable = Variable([[Piece(value, 0, 0)] if value else []])
            variable.exported = True
            self.layer.variables[key] = variable
        self._read_scheduler()

    def _read_scheduler(self) -> None:
        lines, own = _SCHEDULER.finditer(self.source.text), set[str]()
        for found in (one for line in lines for one in self._schedule_devices(line)):
            key = _LONG_NAMES.get(found[1], found[1])
            start, end = self.source.place(found.start(1), found.end(2))
            if key in own and HETEROGENEOUS not in self.source.text:
                self.repeated.append((key, self.scheduler[key]))
                self.scheduler[key] = Piece(found[2], start, end)  # the last one counts
            elif key not in self.scheduler:
                own.add(key)
                self.scheduler[key] = Piece(found[2], start, end)
            for name in _VARIABLES_OF_SCHEDULER.get(key, ()):
                if name not in self.pins and found[2].isascii() and found[2].isdecimal():
                    variable = Variable([[Piece(found[2], start, end)]])
                    variable.exported = True
                    self.layer.variables[name] = variable

    def _schedule_devices(self, line: re.Match[str]) -> Iterator[re.Match[str]]:
        return _SCHEDULED.finditer(self.source.text, line.start(1), line.end(1))

    def script(self) -> Script:
        """Read all commands."""
        text = self.source.text
        if "\0" in text:
            at = text.index("\0")
            raise ShellTextError("the text has a zero byte", at, at + 1)
        try:
            self.run(parse_script(text))
            self._run_written()
        except RecursionError:
            raise ShellTextError("commands in this file are nested too deeply", 0, 1) from None
        calls = [self._call(one) for one in [*self.layer.commands, *self._exited]]
        variables = {
            name: variable
            for name in self.layer.names()
            if not name.startswith(FILE_PREFIX) and (variable := self.layer.get(name)) is not None
        }
        scheduler = {key: field_of([piece]) for key, piece in self.scheduler.items()}
        repeated = [(key, field_of([piece])) for key, piece in self.repeated]
        assumed = [*self._assumed.values()]
        ended = field_of([self._end]) if self.layer.ended == "exit" and self._end else None
        found = Script(
            variables, calls, (), scheduler, assumed, self._found, self._lacking, ended=ended
        )._replace(absent=self._absent, repeated=repeated)
        conditional = [word for call in calls for word in call.conditional]
        if not calls:
            names = [name for name in variables if name not in self.pins]
            conditional = [word for name in names for word in found.conditional_fields(name)]
        return found._replace(conditional=conditional)

    def _run_written(self) -> None:
        """Read scripts written by here-documents and not started, if the script has no commands."""
        if self.layer.commands or self._exited:
            return
        for path, pieces in self._files.items():
            if path not in self._started and path.endswith(SCRIPT_ENDINGS):
                self.layer.ended = ""
                self._run_text(pieces)

    def _call(self, command: ScriptCommand) -> ScriptCall:
        self.count(sum(piece.weight for value in command.words for piece in value[:1]))
        found = split_fields(field_of(value) for value in command.words if value)
        environment = {name: field_of(value) for name, value in command.environment}
        written = {
            name.removeprefix(FILE_PREFIX): _whole_text(file)
            for name, file in command.files.items()
            if file is not None
        }
        return ScriptCall(
            found.certain,
            found.conditional,
            environment,
            command.decision,
            written,
            command.folder,
            command.place,
        )


def _whole_text(file: Variable) -> ShellField:
    """Return the text of a file that the script writes as one word."""
    found = field_of(file.values[0] if file.values else [])
    return found._replace(unread=file.unread or found.unread)
