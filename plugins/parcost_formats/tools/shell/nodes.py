"""The parts of a shell text: words, redirections and commands, with their places."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias


class WordPart(NamedTuple):
    """A part of a word, at characters *start* to *end* of the text.

    *kind* is ``text``, ``variable``, ``arithmetic``, ``command`` or ``process``. The text of a
    variable is the text between the braces. A *quoted* part is never split at spaces. *commands*
    are the commands of a command substitution.
    """

    kind: str
    text: str
    start: int
    end: int
    quoted: bool = False
    commands: Sequence[Any] = ()


class ShellToken(NamedTuple):
    """A word with its *parts*; or an *operator*, such as ``;`` or the end of a line."""

    parts: Sequence[WordPart]
    start: int
    end: int
    operator: str = ""

    @property
    def plain(self) -> str:
        """The text of a word without quotes and references; "" for any other word."""
        if len(self.parts) == 1 and self.parts[0].kind == "text" and not self.parts[0].quoted:
            return self.parts[0].text
        return ""


class Assignment(NamedTuple):
    """``name=word``, ``name[key]+=word``, or an array of ``[key]=word``."""

    name: str
    key: str
    adds: bool
    word: ShellToken
    elements: Sequence[tuple[str, ShellToken]] | None
    start: int
    end: int


class Redirection(NamedTuple):
    """The source or the target of a redirection; *document* are the parts of a here-document.

    *name* is the variable that takes the file descriptor: ``{name}>file``.
    """

    operator: str
    target: ShellToken
    document: Sequence[WordPart] | None = None
    name: str = ""


class SimpleCommand(NamedTuple):
    """Assignments and words. Words of ``export`` and similar commands may be assignments too."""

    assignments: Sequence[Assignment]
    words: Sequence[ShellToken | Assignment]
    redirections: Sequence[Redirection]
    start: int
    end: int


class ShellPipeline(NamedTuple):
    """Commands of a pipeline; several run in a subshell each."""

    commands: Sequence[ShellNode]
    negated: bool


class CommandChain(NamedTuple):
    """A command, and the commands after ``&&`` or ``||``; *background* ones run in a subshell."""

    first: ShellNode
    rest: Sequence[tuple[str, ShellNode]]
    background: bool


class IfCommand(NamedTuple):
    """``if``: tests with their bodies, and the ``else`` body."""

    branches: Sequence[tuple[Sequence[ShellNode], Sequence[ShellNode]]]
    otherwise: Sequence[ShellNode]
    start: int
    end: int


class LoopCommand(NamedTuple):
    """A loop. *kind* is ``for``, ``select``, ``while`` or ``until``; no words means ``$@``."""

    kind: str
    name: str
    words: Sequence[ShellToken] | None
    test: Sequence[ShellNode]
    body: Sequence[ShellNode]
    start: int
    end: int


class CountingLoop(NamedTuple):
    """``for ((first; test; step))``."""

    first: str
    test: str
    step: str
    body: Sequence[ShellNode]
    start: int
    end: int


class CaseCommand(NamedTuple):
    """``case``: a word, and patterns with their bodies and terminators such as ``;;``."""

    word: ShellToken
    branches: Sequence[tuple[Sequence[ShellToken], Sequence[ShellNode], str]]
    start: int
    end: int


class CommandGroup(NamedTuple):
    """``{ ... }``, or ``( ... )``, which is a subshell."""

    commands: Sequence[ShellNode]
    is_subshell: bool
    redirections: Sequence[Redirection] = ()


class FunctionDefinition(NamedTuple):
    """``name() body``."""

    name: str
    body: ShellNode


class TestCommand(NamedTuple):
    """``[[ ... ]]``: words, and operators as words of one plain part."""

    words: Sequence[ShellToken]
    start: int
    end: int


class ArithmeticCommand(NamedTuple):
    """``(( ... ))``."""

    text: str
    start: int
    end: int


ShellNode: TypeAlias = (
    SimpleCommand
    | ShellPipeline
    | CommandChain
    | IfCommand
    | LoopCommand
    | CountingLoop
    | CaseCommand
    | CommandGroup
    | FunctionDefinition
    | TestCommand
    | ArithmeticCommand
)
