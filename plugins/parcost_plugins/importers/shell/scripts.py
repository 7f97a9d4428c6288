"""Variables, arrays and commands of a shell script. Nothing of it is run.

References are replaced by what the file sets. What it does not set is left unread, with a reason.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from parcost_plugins.importers.shell.arithmetic import ArithmeticTextError, number
from parcost_plugins.importers.shell.changes import changes
from parcost_plugins.importers.shell.words import (
    ShellTextError,
    ShellToken,
    WordPart,
    arguments,
    quoted_parts,
    tokens,
)

#: Why words such as ``$@`` are not read.
ARGUMENTS = "the arguments of the script are not known"
_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)(\+?)=")
_REFERENCE = re.compile(r"([A-Za-z_]\w*)(\[[@*]\])?(?:(:?[-=])([\s\S]*))?")
_SCHEDULER = re.compile(r"^#SBATCH[ \t]+(--[a-z-]+|-N)[= \t]*(\d+)[ \t]*(?:#.*)?$", re.MULTILINE)
_VARIABLES_OF_SCHEDULER = {
    "--nodes": ("SLURM_NNODES", "SLURM_JOB_NUM_NODES"),
    "-N": ("SLURM_NNODES", "SLURM_JOB_NUM_NODES"),
    "--gpus-per-node": ("SLURM_GPUS_PER_NODE", "SLURM_GPUS_ON_NODE"),
    "--ntasks-per-node": ("SLURM_NTASKS_PER_NODE",),
}
_OPENING = {"if": "fi", "while": "done", "until": "done", "for": "done", "case": "esac", "{": "}"}
_SKIPPED = {"then", "do", "else", "elif", "!", "time", "in"}
_DECLARING = {"export", "local", "declare", "readonly", "typeset"}
_TESTS = {"[", "[[", "test"}
_PASSING = {"cd", "mkdir", "pushd", "popd", "set", "echo", "source", ".", "module", "ulimit", ":"}
_TARGETING = {"read", "mapfile", "readarray", "unset", "getopts", "let"}
_REDIRECTING = {"<", ">", ">>", "<<", "<<-", "<<<"}
_MOST = 8_000_000  # characters that references may become


class Piece(NamedTuple):
    """A text of one place. *unread* is why it is not known, *assumption* why it is taken.

    A *solid* piece is not split at blanks.
    """

    text: str
    start: int
    end: int
    unread: str = ""
    assumption: str = ""
    solid: bool = False


class ShellField(NamedTuple):
    """A word of a command, with its references replaced; *pieces* are what it is made of."""

    text: str
    start: int
    end: int
    unread: str
    assumption: str
    pieces: Sequence[Piece]


class Variable(NamedTuple):
    """The pieces of a value, or those of each element of an array."""

    values: list[list[Piece]]
    array: bool = False
    unread: str = ""


class Script(NamedTuple):
    """What a script sets and calls.

    *conditional* are the words that are set under a condition.
    """

    variables: Mapping[str, Variable]
    commands: Sequence[Sequence[ShellField]]
    conditional: Sequence[ShellField]

    def fields(self, name: str) -> Sequence[ShellField]:
        """Return the words of a variable."""
        variable = self.variables[name]
        return [field for value in variable.values for field in split(value)]


def read_script(text: str) -> Script:
    """Return what the script *text* sets and calls.

    Raises:
        ShellTextError: The text is no script.
    """
    return _ScriptReader(text).script()


def read_arguments(text: str) -> Sequence[ShellField]:
    """Return the words of a bare list of arguments.

    Raises:
        ShellTextError: A quote has no end.
    """
    reader = _ScriptReader(text)
    return [field for token in arguments(text) for field in reader.fields(token)]


def split(pieces: Sequence[Piece], *, whole: bool = False) -> Iterator[ShellField]:
    """Yield the words of *pieces*, which blanks part, or all of them as a *whole*."""
    run: list[Piece] = []
    for piece in pieces:
        if whole or piece.solid or piece.unread or not re.search(r"\s", piece.text):
            run.append(piece)
            continue
        if piece.text.isspace() and run:
            yield _field(run)
            run = []
        exact = len(piece.text) == piece.end - piece.start
        at = 0
        for found in re.finditer(r"\S+", piece.text):
            if found.start() > at and run:
                yield _field(run)
                run = []
            start = piece.start + found.start() if exact else piece.start
            end = piece.start + found.end() if exact else piece.end
            run.append(Piece(found[0], start, end, "", piece.assumption))
            at = found.end()
            if at < len(piece.text):
                yield _field(run)
                run = []
    if run:
        yield _field(run)


def _field(pieces: Sequence[Piece]) -> ShellField:
    return ShellField(
        "".join(piece.text for piece in pieces),
        min(piece.start for piece in pieces),
        max(piece.end for piece in pieces),
        next((piece.unread for piece in pieces if piece.unread), ""),
        next((piece.assumption for piece in pieces if piece.assumption), ""),
        tuple(piece._replace(solid=False) if piece.solid else piece for piece in pieces),
    )


def _at(field: ShellField, start: int, end: int) -> ShellField:
    """Return a word where it stands; one with blanks keeps the places of what it is made of."""
    placed = field._replace(start=start, end=end)
    if re.search(r"\s", field.text):
        return placed
    one = Piece(field.text, start, end, field.unread, field.assumption)
    return placed._replace(pieces=(one,))


class _ScriptReader:
    """Goes through the commands of a script in their order."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._variables: dict[str, Variable] = {}
        self._commands: list[Sequence[ShellField]] = []
        self._conditional: list[ShellField] = []
        self._nesting: list[str] = []
        self._size = 0
        self._changes: Mapping[str, str] = {}
        self._sure: set[str] = set()  # names set since a command that may set any
        self._line = (0, 1)  # a place, and its line
        for found in _SCHEDULER.finditer(text):
            for name in _VARIABLES_OF_SCHEDULER.get(found[1], ()):
                piece = Piece(found[2], found.start(1), found.end(2))
                self._variables[name] = Variable([[piece]])
                self._sure.add(name)

    def script(self) -> Script:
        """Read all commands."""
        self._changes = changes(self._text)
        for name, why in self._changes.items():
            self._variables[name] = Variable([], unread=why)
        words: list[ShellToken] = []
        stream = iter(tokens(self._text))
        uncertain = False
        for token in stream:
            if token.operator in _REDIRECTING:
                self._redirect(words, token, stream)
            elif token.operator == "(":
                words = self._bracket(words, token, stream, uncertain)
            elif token.operator:
                test = self._command(words, uncertain)
                chained = token.operator == "&&" and (test or uncertain)
                uncertain = token.operator == "||" or chained
                words = []
            else:
                words.append(token)
        self._command(words, uncertain)
        return Script(self._variables, self._commands, self._conditional)

    def fields(self, token: ShellToken) -> Sequence[ShellField]:
        """Return the words that a word becomes."""
        pieces: list[Piece] = []
        found: list[ShellField] = []
        referring = False
        for part in token.parts:
            array = self._array_of(part)
            if array is not None and len(token.parts) == 1:
                values = [split(value, whole=part.quoted) for value in array.values]
                found = [field for value in values for field in value]
                self._count(found)
                return found
            one = self._pieces(part)
            referring = referring or part.kind != "text"
            if part.kind == "text" or part.quoted:
                one = [piece._replace(solid=True) for piece in one]
            pieces += one
        found = list(split(pieces)) if referring else [_field(pieces)] if pieces else []
        if len(found) == 1:
            found = [_at(found[0], token.start, token.end)]
        self._count(found)
        return found

    # Commands

    def _command(self, words: Sequence[ShellToken], uncertain: bool) -> bool:
        """Read a command; return whether it is a test."""
        words = list(words)
        while words and (key := _text(words[0])) in {*_SKIPPED, *_OPENING, *_OPENING.values()}:
            if key in _OPENING:
                self._nesting.append(key)
            elif self._nesting and _OPENING[self._nesting[-1]] == key:
                self._nesting.pop()
            if key in ("for", "case"):
                words = words[len(words) :] if key == "for" else words[2:]
            else:
                words = words[1:]
        uncertain = uncertain or any(key != "{" for key in self._nesting)
        declaring = bool(words) and _text(words[0]) in _DECLARING
        first = words[0] if words else None
        if declaring:
            words = [word for word in words[1:] if not _text(word).startswith("-")]
        prefixes: list[tuple[re.Match[str], ShellToken]] = []
        while words and (declaring or _ASSIGNMENT.match(_text(words[0]))):
            word = words.pop(0)
            if found := _ASSIGNMENT.match(_text(word)):
                prefixes.append((found, word))
            elif self._is_computed(word):
                self._forget(word)
        if not words:  # otherwise they are of the command alone
            for found, word in prefixes:
                self._assign(found, word, uncertain)
        found_fields = [field for word in words for field in self.fields(word)]
        if any(field.text.startswith("--") or " --" in field.text for field in found_fields):
            self._commands.append(found_fields)
        elif words and not declaring:
            self._follow(words)
        passing = declaring or first is None or not words or _text(words[0]) in _PASSING
        return not passing

    def _is_computed(self, word: ShellToken) -> bool:
        """Return whether the name that a word sets is not there as text."""
        shown = self._text[word.start : word.end].lstrip("'\"")
        return "$" in shown.split("=")[0] or "`" in shown.split("=")[0]

    def _follow(self, words: Sequence[ShellToken]) -> None:
        """Forget variables behind a command that may set any of them."""
        while len(words) > 1 and _text(words[0]) in ("command", "builtin"):
            words = words[1:]
        key = _text(words[0])
        computed = any(part.kind != "text" for word in words[1:] for part in word.parts)
        printing = key == "printf" and len(words) > 1 and _text(words[1]).startswith("-v")
        target = key in _TARGETING or printing
        script = key in ("source", ".") and not _is_environment(words)
        if key == "eval" or script or (target and computed):
            self._forget(words[0], words[-1])

    def _forget(self, first: ShellToken, last: ShellToken | None = None) -> None:
        shown = _short(self._text[first.start : (last or first).end])
        at, line = self._line
        line += self._text.count("\n", at, first.start)
        self._line = (first.start, line)
        for name in sorted(self._sure):
            why = f"`{name}` may be set by `{shown}` in line {line}, which is not run"
            if not self._variables[name].unread:
                self._variables[name] = Variable([], self._variables[name].array, why)
        self._sure.clear()

    def _bracket(
        self,
        words: list[ShellToken],
        token: ShellToken,
        stream: Iterator[ShellToken],
        uncertain: bool,
    ) -> list[ShellToken]:
        """Read what an open bracket starts; return the words of the command that goes on."""
        if self._array(words, token, stream, uncertain):
            return words
        first = _text(words[0]) if words else ""
        if not words or first in {*_TESTS, *_SKIPPED, *_OPENING}:
            return words
        following = next(stream, None)
        named = len(words) == 1 or (len(words) == 2 and first == "function")
        if named and following is not None and following.operator == ")":
            return []  # the name of a function
        raise ShellTextError("the shell takes this `(` for its own: quote it", *token[1:3])

    def _assign(self, found: re.Match[str], word: ShellToken, uncertain: bool) -> None:
        first = word.parts[0]
        rest = WordPart("text", first.text[found.end() :], first.start + found.end(), first.end)
        parts = [rest, *word.parts[1:]] if rest.text else word.parts[1:]
        value: list[Piece] = []
        for part in parts:
            value += self._pieces(part)
        self._set(found[1], bool(found[2]), Variable([value]), uncertain)

    def _array(
        self,
        words: list[ShellToken],
        token: ShellToken,
        stream: Iterator[ShellToken],
        uncertain: bool,
    ) -> bool:
        """Read ``NAME=( ... )``, whose bracket is *token*; return whether it is one."""
        found = _ASSIGNMENT.fullmatch(_text(words[-1])) if words else None
        if found is None or words[-1].end != token.start:
            return False
        words.pop()
        values: list[list[Piece]] = []
        for word in stream:
            if word.operator == ")":
                uncertain = uncertain or any(key != "{" for key in self._nesting)
                self._set(found[1], bool(found[2]), Variable(values, array=True), uncertain)
                return True
            if word.operator not in ("", "\n"):
                message = f"`{word.operator}` ends the word: quote it"
                raise ShellTextError(message, word.start, word.end)
            if not word.operator:
                values += [list(field.pieces) for field in self.fields(word)]
        raise ShellTextError("this `(` has no `)`", token.start, token.end)

    def _set(self, name: str, adds: bool, variable: Variable, uncertain: bool) -> None:
        before = self._variables.get(name)
        self._sure.add(name)
        if name in self._changes:
            for value in variable.values:
                self._conditional += split(value)
            return
        if not uncertain:
            if adds and before is not None:
                _extend(before.values, variable)
            else:
                self._variables[name] = variable
            return
        if not adds and before is not None and _texts(before) == _texts(variable):
            return
        for value in variable.values:
            self._conditional += split(value)
        flags = any("--" in piece.text for value in variable.values for piece in value)
        if not adds or before is None or not (variable.array or flags):
            why = f"`{name}` is set under a condition, which is not run"
            self._variables[name] = Variable([], variable.array, why)

    @staticmethod
    def _redirect(words: list[ShellToken], token: ShellToken, stream: Iterator[ShellToken]) -> None:
        """Leave out where a command writes to."""
        if words and words[-1].end == token.start and _text(words[-1]).isdigit():
            words.pop()
        if token.operator in ("<<", "<<-"):
            return
        following = next(stream, None)
        if following is not None and following.operator == "&":
            next(stream, None)

    # References

    def _array_of(self, part: WordPart) -> Variable | None:
        found = _REFERENCE.fullmatch(part.text) if part.kind == "variable" else None
        variable = self._variables.get(found[1]) if found and found[2] else None
        return variable if variable and variable.array and not variable.unread else None

    def _pieces(self, part: WordPart) -> list[Piece]:
        if part.kind == "text":
            return [Piece(part.text, part.start, part.end)]
        shown = self._text[part.start : part.end]
        if part.kind == "command":
            return [Piece(shown, *_ends(part), f"`{_short(shown)}` is a command, and none is run")]
        if part.kind == "arithmetic":
            return [self._arithmetic(part, shown)]
        return self._variable(part, shown)

    def _variable(self, part: WordPart, shown: str) -> list[Piece]:
        found = _REFERENCE.fullmatch(part.text)
        if found is None:
            why = f"`{_short(shown)}` is not read"
            if part.text in ("@", "*"):
                why = ARGUMENTS
            elif part.text[:1].isdigit():
                number_text, _, default = part.text.partition(":-")
                why = f"argument {number_text} of the script is not known"
                if default and number_text.isdigit():
                    return self._default(part, len(number_text) + 2, f"{why}: its default")
            return [Piece(shown, *_ends(part), why)]
        name, _, operator, _ = found.groups()
        variable = self._variables.get(name)
        if variable is not None and not variable.unread:
            pieces = [piece for value in _spaced(variable.values) for piece in value]
            if pieces or not operator:
                self._count(pieces)
                return pieces
        if variable is not None and variable.unread:
            return [Piece(shown, *_ends(part), variable.unread)]
        if operator:
            pieces = self._default(
                part, found.start(4), f"`{name}` is not set in the file: its default there"
            )
            if operator.endswith("="):
                self._variables[name] = Variable([pieces])
                self._sure.add(name)
            return pieces
        return [Piece(shown, *_ends(part), f"`{name}` is not set in the file")]

    def _default(self, part: WordPart, offset: int, why: str) -> list[Piece]:
        """Return the default of a reference, which stands *offset* behind its brace."""
        pieces: list[Piece] = []
        for inner in quoted_parts(self._text, part.start + 2 + offset, part.end - 1):
            for piece in self._pieces(inner):
                assumption = "" if piece.unread else piece.assumption or why
                pieces.append(piece._replace(assumption=assumption))
        return pieces

    def _arithmetic(self, part: WordPart, shown: str) -> Piece:
        notes: list[str] = []

        def value(name: str) -> int:
            variable = self._variables.get(name)
            if variable is not None and variable.unread:
                notes.append(variable.unread)
                raise ArithmeticTextError(name)
            if variable is None or len(variable.values) != 1:
                notes.append(f"`{name}` is not set in the file")
                raise ArithmeticTextError(name)
            field = _field(variable.values[0] or [Piece("", 0, 0)])
            if not re.fullmatch(r"0|[1-9]\d{0,17}", field.text):
                notes.append(field.unread or f"`{name}` is no whole number")
                raise ArithmeticTextError(name)
            notes.append(field.assumption)
            return int(field.text)

        try:
            found = str(number(part.text, value))
        except ArithmeticTextError:
            why = notes[-1] if notes and notes[-1] else f"`{_short(shown)}` is not read"
            return Piece(shown, *_ends(part), why)
        return Piece(found, *_ends(part), "", next(filter(None, notes), ""))

    def _count(self, found: Sequence[Piece | ShellField]) -> None:
        """Refuse references that become too much, such as ``A=$A$A`` over and over."""
        self._size += sum(len(piece.text) + 1 for piece in found)
        if self._size > _MOST + len(self._text):
            raise ShellTextError("references in this file become too much text", 0, 1)


def _extend(values: list[list[Piece]], more: Variable) -> None:
    """Add to an array, or to the end of a text."""
    if more.array or not values:
        values.extend(more.values)
    else:
        values[-1].extend(more.values[0])


def _spaced(values: Sequence[Sequence[Piece]]) -> Iterator[Sequence[Piece]]:
    """Yield the elements of an array with blanks between."""
    for number_of, value in enumerate(values):
        if number_of and value:
            yield [Piece(" ", value[0].start, value[0].start)]
        yield value


def _ends(part: WordPart) -> tuple[int, int]:
    return part.start, part.end


def _is_environment(words: Sequence[ShellToken]) -> bool:
    """Return whether a sourced file is that of a virtual environment."""
    return any(part.text.endswith("bin/activate") for word in words for part in word.parts)


def _text(token: ShellToken) -> str:
    first = token.parts[0] if token.parts else None
    return first.text if first and first.kind == "text" and not first.quoted else ""


def _texts(variable: Variable) -> Sequence[str]:
    return ["".join(piece.text for piece in value) for value in variable.values]


def _short(text: str) -> str:
    one = " ".join(text.split())
    return one if len(one) <= 40 else f"{one[:37]}..."
