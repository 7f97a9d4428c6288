"""Simple commands of a shell script: functions, programs, and scripts that it starts."""

from __future__ import annotations

import posixpath
import re
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase

from attrs import Factory, define

from parcost_formats.tools.shell.assignments import FILE_PREFIX, NAME
from parcost_formats.tools.shell.conditions import UNDECIDED
from parcost_formats.tools.shell.edited_files import FileEditor
from parcost_formats.tools.shell.expansion import ArgumentFrame
from parcost_formats.tools.shell.file_changes import may_change, written_paths
from parcost_formats.tools.shell.layers import Layer, ScriptCommand
from parcost_formats.tools.shell.nodes import ShellToken, SimpleCommand
from parcost_formats.tools.shell.sources import ScriptSource, compose, find_break, short
from parcost_formats.tools.shell.values import (
    ARGUMENTS,
    Decision,
    Piece,
    ShellField,
    ShellValue,
    Variable,
    field_of,
    split,
    split_at,
    text_of,
    unread_piece,
)
from parcost_formats.tools.shell.words import ShellTextError, parse_script

SHELLS = {"bash", "sh", "zsh", "dash"}
SCRIPT_ENDINGS = (".sh", ".bash", ".sbatch", ".slurm", ".job")
WRAPPERS = {"exec", "nohup", "time", "env"}
_DECLARING = {"export", "local", "declare", "readonly", "typeset"}
_TARGETING = {"read", "mapfile", "readarray", "getopts", "wait", "coproc"}
_PASSING = {
    *("cd", "mkdir", "pushd", "popd", "set", "echo", "module", "ulimit", ":", "true", "shopt"),
    *("export", "unset", "printf", "source", ".", "trap", "sleep", "umask", "alias", "let", "eval"),
}
_BLANKS = " \t\n"  # of `IFS` as it is set at first
_OPTION = re.compile(r"--?[A-Za-z]")
_READERS = {*SHELLS, "sbatch", "ssh", "qsub", "bsub"}
_UNREAD = re.compile(r"[$`?*]")
#: Commands whose first word that is a script is started.
_STARTERS = {"srun", "mpirun", "mpiexec", "numactl", "singularity", "apptainer"}
#: Options whose value is a command line: of NVIDIA Base Command, `script` and `su`.
_COMMAND_OPTIONS: Mapping[str, Sequence[str]] = {
    "bcprun": ("-c", "--cmd"),
    "ngc": ("--commandline",),
    **dict.fromkeys(("script", "su", "runuser", "flock"), ("-c",)),
}
_WRITTEN_FILE = f"${{{FILE_PREFIX}"  # of a file that branches write
_DEEPEST_CALL = 30
_COMPARED = 2  # pieces whose reading takes as long as to compare a file with a command
Builtin = Callable[[SimpleCommand, list[list[Piece]]], Decision]


@define(slots=False, eq=False)
class CommandReader(FileEditor):
    """Reads simple commands; builtins and options of a scheduler are left to subclasses."""

    _started: set[str] = Factory(set)
    #: Scripts that start one another.
    _reading: list[str] = Factory(lambda self: [self.name], takes_self=True)
    _found: list[ShellField] = Factory(list)
    _lacking: list[ShellField] = Factory(list)
    _absent: list[ShellField] = Factory(list)  # files that it sources
    _ahead: list[ShellValue] = Factory(list)  # words ahead of a command in a string
    _calls: int = 0

    @abstractmethod
    def _builtin(self, name: str) -> Builtin | None:
        """Return the method that reads a builtin; None for other commands."""

    @abstractmethod
    def _read_scheduler(self) -> None:
        """Read the options of the scheduler in the current source."""

    def _simple(self, node: SimpleCommand) -> Decision:
        for redirection in node.redirections:
            self._forget_name(redirection.name, "is changed by a redirection")
        first = node.words[0] if node.words else None
        if first is None:
            for one in node.assignments:
                self._assign_node(one)
            self._mark_targets(node.redirections, self._written_files())
            return Decision(True)
        key = first.plain if isinstance(first, ShellToken) else ""
        if isinstance(first, ShellToken) and _is_option(first):
            start, end = self.source.place(first.start, first.end)
            shown = short(self.source.text[first.start : first.end])
            why = find_break(self.source.text, first.start)
            message = f"bash runs `{shown}` as a separate command: {why}"
            raise ShellTextError(message, start, end)
        words = list(node.words)
        while key in ("command", "builtin") and len(words) > 1:
            words = words[1:]
            key = words[0].plain if isinstance(words[0], ShellToken) else ""
            if key.startswith("-"):  # a search for a program
                self._unknown_output("command -v")
                return UNDECIDED
        if key in ("[", "test"):
            tokens = [word for word in words[1:] if isinstance(word, ShellToken)]
            if key == "[":
                tokens = tokens[:-1] if tokens and tokens[-1].plain == "]" else tokens
            return self._test(tokens, double=False)
        if key in _DECLARING:
            return self._declare(key, words[1:], node)
        fields = [
            value for word in words if isinstance(word, ShellToken) for value in self.fields(word)
        ]
        if not fields:
            for one in node.assignments:
                self._assign_node(one)
            return Decision(True)
        if any(value and value[0].unread == ARGUMENTS for value in fields[:1]):
            return UNDECIDED
        environment = [
            (one.name, self.evaluate_assignment(one.name, one.word.parts))
            for one in node.assignments
        ]
        return self._call_with(node, fields, environment)

    def _call_with(
        self,
        node: SimpleCommand,
        fields: list[list[Piece]],
        environment: list[tuple[str, list[Piece]]],
    ) -> Decision:
        """Read a command with its own environment, as in ``TP=4 bash run.sh``."""
        before = {name: self.layer.get(name) for name, _ in environment}
        self._assign_ahead(environment)
        files = self._written_files()
        exact = self._edit(node, fields)
        status = Decision(True) if exact else self._call_function(node, fields, environment)
        if not exact:
            self._mark_changes(node, fields, files)
        self.layer.variables.update(before)
        return status

    def _call_function(
        self,
        node: SimpleCommand,
        fields: list[list[Piece]],
        environment: list[tuple[str, list[Piece]]],
    ) -> Decision:
        key = text_of(fields[0])
        if key in self._functions and not unread_piece(fields[0]):
            return self._function(key, fields[1:])
        builtin = self._builtin(key)
        if builtin is not None:
            return builtin(node, fields)
        document = self._document(node)
        if key == "read" and document is not None and self._read(fields[1:], document):
            return UNDECIDED
        if key in _TARGETING:
            for value in fields[1:]:
                text = text_of(value)
                found = NAME.match(text)
                if unread_piece(value) is not None and not (found and found.end() < len(text)):
                    self._forget_all(node)
                elif found is not None and (found.end() == len(text) or text[found.end()] == "["):
                    self._forget_name(found[0], f"is changed by `{key}`")
            return UNDECIDED
        if document is not None and key == "cat":
            return self._written_document(node, fields, document)
        if document is not None and key == "tee" and len(fields) > 1:
            for value in fields[1:]:
                if not text_of(value).startswith("-"):
                    self._write(value, document, adds=text_of(fields[1]) == "-a")
            return Decision(True)
        if key in _PASSING:
            return Decision(True)
        words = (
            self._filter_words(node._replace(redirections=())) if self._output is not None else None
        )
        if document is not None and words is not None and len(node.redirections) == 1:
            here = [*document, Piece("\n" * (node.redirections[0].operator == "<<<"), 0, 0)]
            if self._print_filter_output(here, [words]):
                return UNDECIDED
        self._unknown_output(key)
        return self._external(node, fields, environment, document)

    def _function(self, name: str, given: list[list[Piece]]) -> Decision:
        body, source = self._functions[name]
        self._calls += 1
        if self._calls > _DEEPEST_CALL:
            raise ShellTextError(f"`{short(name)}` calls itself too deeply", 0, 1)
        outer, self.source = self.source, source
        spread = any(value and value[0].spread for value in given)
        self.frames.append(ArgumentFrame(None if spread else given))
        self._locals.append({})
        self._returned.append([])
        parent, self.layer = self.layer, Layer(self.layer)
        status = self._execute(body)
        inner, self.layer = self.layer, parent
        if inner.ended in ("return", "break", "continue"):
            inner.ended = ""
        for restored, variable in self._locals.pop().items():
            inner.variables[restored] = variable
            for one in self._returned[-1]:
                _flatten(one, parent).variables[restored] = variable
        branches = [_flatten(one, parent) for one in self._returned.pop()]
        for branch in branches:
            branch.ended = ""
        if branches:
            self._merge([inner, *branches], UNDECIDED)
            status = UNDECIDED
        else:
            self.layer.adopt(inner)
        self.frames.pop()
        self.source = outer
        self._calls -= 1
        return status

    def _read(self, words: Sequence[ShellValue], document: list[Piece]) -> bool:
        return self._read_whole(words, document) or self._read_array(words, document)

    def _read_whole(self, words: Sequence[ShellValue], document: list[Piece]) -> bool:
        """Handle ``read -r -d '' NAME`` with a here-document; return whether it is one."""
        texts = [text_of(value) for value in words]
        options = [text for text in texts[:-1] if text not in ("-r", "-d", "-rd", "")]
        whole = any(one in ("-d", "-rd") for one in texts) and "" in texts
        if options or not whole or not NAME.fullmatch(texts[-1]):
            return False
        pieces = list(document)
        if pieces:
            pieces[0] = pieces[0]._replace(text=pieces[0].text.lstrip(_BLANKS))
            pieces[-1] = pieces[-1]._replace(text=pieces[-1].text.rstrip(_BLANKS))
        self.assign(texts[-1], Variable([pieces]))
        return True

    def _read_array(self, words: Sequence[ShellValue], document: list[Piece]) -> bool:
        """Handle ``read -ra NAME`` with a line of text; return whether it is one."""
        *options, name = [text_of(value) for value in words] or [""]
        is_array = set(options) in ({"-ra"}, {"-ar"}, {"-a"}, {"-r", "-a"})
        if not is_array or not NAME.fullmatch(name) or "\n" in text_of(document).strip("\n"):
            return False
        pieces = [(piece, False) for piece in document]
        separators = self._separators()
        values = split(pieces) if separators is None else split_at(pieces, separators)
        if any(unread_piece(value) for value in (document, *values)):
            return False
        self.assign(name, Variable(values, "array"))
        return True

    def _written_document(
        self, node: SimpleCommand, fields: Sequence[ShellValue], document: list[Piece]
    ) -> Decision:
        if len(fields) > 1:
            self._unknown_output("cat")
            return Decision(True)
        for redirection in node.redirections:
            if redirection.operator in (">", ">>", ">|"):
                target = self.value(redirection.target.parts)
                self._write(target, document, adds=redirection.operator == ">>")
                return Decision(True)
        self._print(document)
        return Decision(True)

    def _mark_changes(
        self,
        node: SimpleCommand,
        fields: Sequence[ShellValue],
        files: Mapping[str, Variable | None],
    ) -> None:
        """Mark *files* that a command may change; a text that it has just written stays known."""
        self._mark_targets(node.redirections, files)
        key = text_of(fields[0])
        if key in self._functions or key in WRAPPERS:
            return
        texts = [text_of(value) for value in fields]
        document = text_of(self._document(node) or [])
        changed = written_paths(texts, document)
        self.count(_COMPARED * len(files) * (1 + len(changed)))
        for path in changed:
            self._mark_on_disk(path, node.start, node.end)
        patterns = [one for one in changed if "*" in one]
        for name in files:
            if name.endswith("/"):  # a folder, which no command makes known again
                continue
            paths = self._paths_from_here(name)
            named = any(may_change(one, texts, document) for one in paths)
            if named or any(fnmatchcase(one, other) for one in paths for other in patterns):
                self._mark_file(name, files, node.start, node.end)

    # Programs and scripts that are started

    def _external(
        self,
        node: SimpleCommand,
        fields: list[list[Piece]],
        environment: list[tuple[str, list[Piece]]],
        document: list[Piece] | None,
    ) -> Decision:
        """Store a command of an external program, or read the script that it starts."""
        key = text_of(fields[0]).rpartition("/")[2]
        for place, value in enumerate(fields[:-1]):
            program = text_of(value).rpartition("/")[2]
            following = text_of(fields[place + 1])
            if program in SHELLS and re.fullmatch(r"-[a-z]*c[a-z]*", following):
                if place + 2 < len(fields):
                    rest = fields[place + 3 :]
                    self._run_child(fields[:place], fields[place + 2], rest)
                return UNDECIDED
        if document is not None and key in _READERS and len(fields) < 3 + (key == "ssh") * 9:
            self._run_child([], document, ())
            return UNDECIDED
        if key == "ssh" and len(fields) > 2:
            self._run_child([], fields[-1], ())
            return UNDECIDED
        wrap = _find_wrapper(key, fields)
        if wrap is not None:
            return self._read_in_wrapper(fields, wrap)
        script = _script_index(fields)
        if script is not None:
            path = text_of(fields[script])
            if self._relative(path) in self._reading:  # `sbatch "$0"`
                return UNDECIDED
            found = self._script_text(path, fields[script])
            if found is not None:
                handed = _exports(fields[:script])
                given = fields[script + 1 :]
                self._subshell(lambda: self._run_script(found, given, path, handed))
                return UNDECIDED
        words = [*self._ahead, *fields]
        folder = self._folder.lstrip("?")
        files = self._files_of_launch()
        span = self.source.place(node.start, node.end)
        command = ScriptCommand(words, span, environment, files=files, folder=folder)
        self.layer.commands.append(command)
        return UNDECIDED

    def _read_in_wrapper(self, fields: list[list[Piece]], wrap: list[Piece]) -> Decision:
        text = text_of(wrap)
        if "=" in text.partition(" ")[0]:
            first = wrap[0]
            cut = first.text.partition("=")[2]
            start = first.end - len(cut)
            self._run_child([], [first._replace(text=cut, start=start), *wrap[1:]], ())
        else:
            place = fields.index(wrap)
            if place + 1 < len(fields):
                self._run_child([], fields[place + 1], ())
        return UNDECIDED

    def _script_text(self, path: str, value: ShellValue) -> ScriptSource | None:
        """Return the script that a command starts; list it as missing if it is not there."""
        name = self._file_name(path)
        if name not in self._files and not self._knows_folder():
            name = f"{FILE_PREFIX}{posixpath.normpath(path)}"
        if name in self._files:
            self._started.add(name)
            file = self.layer.get(name)
            texts = file.values[0] if file is not None and file.values else []
            branches = any(one.unread and one.text.startswith(_WRITTEN_FILE) for one in texts)
            if file is None or not (file.unread or branches):
                return compose(self._files[name])
            self._lacking.append(field_of([*value])._replace(assumption="", unread=""))
            return None
        if not path.endswith(SCRIPT_ENDINGS):
            return None
        place = field_of([piece._replace(assumption="", unread="") for piece in value])
        for name in _places_of(self._relative(path)):
            text = self._read_on_disk(name) if name not in self._reading else None
            if text is None:
                continue
            if name != self._relative(path):
                self._found.append(place._replace(assumption=f"`{name}` beside this file"))
            return ScriptSource(text, place=(place.start, place.end))
        self._lacking.append(place)
        return None

    def _run_script(
        self,
        source: ScriptSource,
        given: Sequence[ShellValue],
        path: str,
        handed: Sequence[tuple[str, list[Piece]]],
    ) -> Decision:
        """Read a script started with arguments; it sees only exported variables."""
        for name in list(self.layer.names()):
            variable = self.layer.get(name)
            if variable is not None and not variable.exported and name not in self.pins:
                self.layer.variables[name] = None
        self._assign_ahead(handed)
        self._reading.append(self._relative(path))
        status = self._run_source(source, given)
        self._reading.pop()
        return status

    def _run_child(
        self, ahead: Sequence[ShellValue], value: list[Piece], given: Sequence[ShellValue]
    ) -> None:
        before = self._ahead
        self._ahead = [*before, *ahead]
        self._subshell(lambda: self._run_source(compose(value), given[1:]))
        self._ahead = before

    def _run_text(self, pieces: Sequence[Piece]) -> Decision:
        return self._run_source(compose(list(pieces)), None)

    def _run_source(self, source: ScriptSource, given: Sequence[ShellValue] | None) -> Decision:
        """Read a text as commands, with the *given* arguments or the current ones."""
        self._calls += 1
        if self._calls > _DEEPEST_CALL:
            raise ShellTextError("scripts in this file start each other too deeply", 0, 1)
        self.count(1, len(source.text))
        outer, self.source = self.source, source
        if given is not None:
            self.frames.append(ArgumentFrame(given))
        try:
            self._read_scheduler_of(source)
            nodes = parse_script(source.text)
        except ShellTextError as error:
            raise ShellTextError(str(error), *source.place(error.start, error.end)) from None
        status = self.run(nodes)
        if given is not None:
            self.frames.pop()
        self.source = outer
        self._calls -= 1
        return status

    def _read_scheduler_of(self, source: ScriptSource) -> None:
        if "#SBATCH" in source.text:
            self._read_scheduler()


def _is_option(word: ShellToken) -> bool:
    """Return whether a word is an option and not the name of a command."""
    first = word.parts[0] if word.parts else None
    return first is not None and first.kind == "text" and bool(_OPTION.match(first.text))


def _find_wrapper(key: str, fields: Sequence[list[Piece]]) -> list[Piece] | None:
    """Return the option whose value is a command line, of ``sbatch`` and similar programs.

    ``--command`` is of xpk, gcluster and ``gcloud ... ssh``. Its value has several words, as that
    of the options in `_COMMAND_OPTIONS`.
    """
    options = ("--command", *_COMMAND_OPTIONS.get(key, ()))
    for at, value in enumerate(fields):
        name, equals, own = text_of(value).partition("=")
        if name == "--wrap" and key == "sbatch":
            return value
        following = fields[at + 1] if at + 1 < len(fields) else []
        if name in options and " " in (own if equals else text_of(following)).strip():
            return value
    return None


def _script_index(fields: Sequence[ShellValue]) -> int | None:
    """Return the index of the script that a command starts, None if it starts none."""
    texts = [text_of(value) for value in fields]
    key = texts[0].rpartition("/")[2]
    if key.endswith(SCRIPT_ENDINGS):
        return 0
    places = [at for at in range(1, len(texts)) if not texts[at].startswith("-")]
    if key in _READERS:
        written = (at for at in places if texts[at].endswith(SCRIPT_ENDINGS))
        return next(written, places[0] if places else None)
    for at in places:
        ahead = (texts[before] for before in range(at - 1, -1, -1) if texts[before][:1] != "-")
        if next(ahead, "").rpartition("/")[2] in SHELLS:
            return at
        if key in _STARTERS and texts[at].endswith(SCRIPT_ENDINGS):
            return at
    return None


def _exports(fields: Sequence[ShellValue]) -> list[tuple[str, list[Piece]]]:
    """Return the variables in Slurm's ``--export=ALL,TP=4``."""
    found: list[tuple[str, list[Piece]]] = []
    for value in fields:
        text = text_of(value)
        if not text.startswith("--export="):
            continue
        start, end, unread = value[0].start, value[-1].end, unread_piece(value)
        for item in text.removeprefix("--export=").split(","):
            name, equals, own = item.partition("=")
            if equals and NAME.fullmatch(name):
                why = unread.unread if unread is not None else ""
                found.append((name, [Piece(own, start, end, why)]))
    return found


def _places_of(path: str) -> Sequence[str]:
    """Return possible paths of a script in this folder: its path without leading folders.

    >>> _places_of("$HOME/llama/run.sh")
    ['llama/run.sh', 'run.sh']
    """
    parts = path.split("/")
    if ".." in parts:
        return [path]
    unread = [at for at, part in enumerate(parts) if _UNREAD.search(part)]
    first = unread[-1] + 1 if unread else 0
    return ["/".join(parts[at:]) for at in range(first, len(parts)) if parts[at]]


def _flatten(layer: Layer, base: Layer) -> Layer:
    """Return one layer over *base*, with all layers between merged."""
    chain: list[Layer] = []
    at: Layer | None = layer
    while at is not None and at is not base:
        chain.append(at)
        at = at.parent
    found = Layer(base)
    for one in reversed(chain):
        found.variables.update(one.variables)
        found.commands += one.commands
    return found
