"""A parser stopped at an error, and operations to continue it."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from typing import Any

from parcost.language.build import Builder
from parcost.language.diagnostics import problem
from parcost.language.lalr import ParserState, Token
from parcost.language.text import Source, Span
from parcost.records import frozen

_REACH = 1000  # tokens after an unclosed bracket that get their newlines back
_WORDS = {"NAME", "_DOT", "STRING"}


@frozen
class InsertedToken:
    """A token that a repair inserts or replaces."""

    lastgroup: str
    offset: int
    text: str = ""

    def start(self) -> int:
        """Return the offset at which the token is inserted."""
        return self.offset

    def end(self) -> int:
        """Return the offset of the end of the token."""
        return self.offset + len(self.text)

    def __getitem__(self, group: int, /) -> str:
        """Return the text of the token."""
        return self.text


@frozen
class Stop:
    """A parser stopped at a token that it does not accept.

    A repair of a stop returns the index of the next token to parse.
    """

    machine: ParserState
    tokens: list[Token]
    at: int

    @property
    def token(self) -> Token:
        """The token that the parser did not accept."""
        return self.tokens[self.at]

    @property
    def kind(self) -> str:
        """The terminal of that token."""
        return self.kind_at(self.at)

    @property
    def builder(self) -> Builder:
        """The builder of the tree, which collects the errors."""
        builder: Builder = self.machine.builder
        return builder

    @property
    def source(self) -> Source:
        """The text that is being read."""
        return self.builder.source

    def kind_at(self, index: int) -> str:
        """Return the terminal of the token at *index*, clamped to the first and the last token."""
        return self.tokens[min(max(index, 0), len(self.tokens) - 1)].lastgroup or ""

    def span(self, token: Token) -> Span:
        """Return the span of *token*; the end of the file is at the end of its text."""
        if token.lastgroup == "END":
            end = len(self.source.text.rstrip())
            return Span(self.source, end, end + 1)
        if token.lastgroup == "_NL":
            return Span(self.source, token.start(), token.start() + 1)
        return Span(self.source, token.start(), token.end())

    def report(
        self,
        message: str,
        span: Span,
        label: str,
        *,
        help: str | None = None,
        notes: Iterable[str] = (),
        also: Iterable[tuple[Span, str]] = (),
    ) -> None:
        """Record a syntax error."""
        found = problem("syntax", message, span, label, help=help, notes=notes, also=also)
        self.builder.diagnostics.append(found)

    # What the parser holds

    def last_token(self, *kinds: str) -> Token | None:
        """Return the last token of one of these kinds since the start of the block, or None."""
        for value in reversed(self.machine.values):
            kind = getattr(value, "lastgroup", None)
            if kind in kinds:
                return value  # type: ignore[no-any-return]
            if kind == "LBRACE":
                return None
        return None

    def open_blocks(self) -> list[Token]:
        """Return the ``{`` of every open block, outermost first."""
        values = self.machine.values
        return [value for value in values if getattr(value, "lastgroup", None) == "LBRACE"]

    def between_items(self) -> bool:
        """Return whether an item may start here, or the last item has ended."""
        accepts = self.machine.accepts
        begins = accepts("_NL") and accepts("STRING") and not accepts("EQUAL")
        return begins or self._can_end_body()

    def _can_end_body(self) -> bool:
        # A body ends before any `}` or end of file, be it the right one or not.
        states = self.machine.states
        return len(states) > 1 and states[-2].get("body") is states[-1]

    # What to do about it

    def unwind(self) -> int:
        """Drop the incomplete item; return the index of its first token."""
        machine, first = self.machine, self.token.start()
        if self._can_end_body():
            machine.replace_last("_items")
        elif machine.run([InsertedToken("NAME", first)], 0):  # what is complete joins the items
            machine.pop()
        while "_item" not in machine.states[-1]:
            first = _start(machine.pop(), first)
        return self.index(first)

    def index(self, offset: int) -> int:
        """Return the index of the token that begins at *offset*."""
        index = bisect_left(self.tokens, offset, key=lambda token: token.start())
        while self.tokens[index].end() == offset and self.kind_at(index) != "END":
            index += 1  # what is written into a file has no width
        return index

    def skip(self) -> int:
        """Drop the incomplete item, and return the index of the next item."""
        bracket = self.last_token("LPAR", "LSQB")
        depth = 0
        index = self.at
        while (kind := self.kind_at(index)) != "END":
            if depth == 0:
                after_comma = kind == "_COMMA" and self.begins_item(index + 1)
                on_new_line = index > self.at and self.breaks_before(index)
                if kind in {"_NL", "RBRACE"} or (on_new_line and self.begins_item(index)):
                    break
                if after_comma:
                    index += 1
                    break
                if kind == "LBRACE" and self._enter():
                    return index
            depth += {"LBRACE": 1, "RBRACE": -1}.get(kind, 0)
            index += 1
        self.unwind()
        if bracket is not None:
            self.restore_newlines(index)
        return index

    def _enter(self) -> bool:
        """Unwind to the ``{`` of a block whose header was read; return whether there is one."""
        machine = self.machine
        states, values = machine.states.copy(), machine.values.copy()
        while machine.states[-1].keys().isdisjoint(("_item", "_items")):
            if machine.accepts("LBRACE"):
                return True
            if getattr(machine.pop(), "lastgroup", None) in {"EQUAL", "RELATION"}:
                break
        machine.states[:], machine.values[:] = states, values
        return False

    def restore_newlines(self, index: int) -> None:
        """Restore the newlines that an unclosed bracket has removed from the tokens."""
        end = index
        while end < min(index + _REACH, len(self.tokens) - 1) and self.kind_at(end) not in {
            "LBRACE",
            "RBRACE",
            "EQUAL",
        }:
            end += 1
        restored: list[Token] = []
        for at in range(index, end):
            if at > index and self.breaks_before(at):
                restored.append(InsertedToken("_NL", self.tokens[at - 1].end(), "\n"))
            restored.append(self.tokens[at])
        self.tokens[index:end] = restored

    # What the text looks like

    def breaks_before(self, index: int) -> bool:
        """Return whether a token is the first of its line."""
        return index == 0 or self.breaks(self.tokens[index - 1], self.tokens[index])

    def breaks(self, before: Token, after: Token) -> bool:
        """Return whether there is a line break between two tokens."""
        return self.source.text.find("\n", before.start(), after.start()) >= 0

    def begins_item(self, index: int) -> bool:
        """Return whether the tokens at *index* look like the start of an item."""
        if self.kind_at(index) in {"RBRACE", "END"}:
            return True
        if self.kind_at(index) != "NAME":
            return False
        if self.kind_at(index + 1) in {"NAME", "STRING"} and not self.breaks_before(index + 1):
            return True
        while self.kind_at(index) in _WORDS:
            index += 1
        return self.kind_at(index) in {"EQUAL", "LBRACE"}


def _start(value: Any, otherwise: int) -> int:
    """Return the offset at which a value of the parser starts."""
    if isinstance(value, list):
        return _start(value[0], otherwise) if value else otherwise
    if hasattr(value, "span") and isinstance(value.span, Span):
        return value.span.start
    return value.start()  # type: ignore[no-any-return]
