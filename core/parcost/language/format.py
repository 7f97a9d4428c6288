"""The canonical layout of a .par file.

The formatter sets the white space between tokens, and the commas or line breaks between items;
comments are tokens. So it keeps all comments, needs no plugins, and cannot change the meaning of a
file. A file with syntax errors stays unchanged, because its meaning is unknown.

Each item is on a separate line. A block has several lines, unless it is written on one line and
fits. The ``=`` of consecutive items are aligned in one column.
"""

from __future__ import annotations

from collections.abc import Sequence

from attrs import field

from parcost.language.build import BRACES, BRACKETS, OPERANDS, split_quantity
from parcost.language.parse import parse, tables
from parcost.language.text import Source
from parcost.records import define

WIDEST = 100
_CLOSERS = {"RPAR", "RSQB", "RBRACE"}
_TIGHT_AFTER = {"LPAR", "LSQB", "_DOT", "AT", "NOT"}
_TIGHT_BEFORE = {"RPAR", "RSQB", "_DOT", "_COMMA"}
_TIGHT_PAIRS = {("NAME", "LPAR"), ("LBRACE", "RBRACE")}

_Token = tuple[str, str]
"""The terminal, and the text to write."""


def format_text(text: str) -> str:
    """Return *text* in the canonical layout; unchanged if it has syntax errors.

    >>> print(format_text("net{bw=400Gbps,latency = -1.5us} # fast"), end="")
    net { bw = 400 Gbps, latency = -1.5 us }  # fast
    >>> print(format_text("net{bw=400Gbps\\nlatency = -1.5us} # fast"), end="")
    net {
      bw      = 400 Gbps
      latency = -1.5 us
    }  # fast
    """
    source = Source("", text)
    if parse(source)[1]:
        return text
    lines = _Layout(_read(source.text)).lines()
    _align(lines)
    return "".join("\n" * line.blank_before + line.text + "\n" for line in lines)


@define
class _Line:
    """A line of output: an item, or the start or end of a block; and a comment."""

    depth: int
    tokens: list[_Token] = field(factory=list)
    remark: str = ""
    blank_before: bool = False
    column: int = 0  # what comes before the `=` is this wide

    @property
    def opens(self) -> bool:
        """Whether a block starts on this line."""
        return bool(self.tokens) and self.tokens[-1][0] == "LBRACE"

    @property
    def relation(self) -> int | None:
        """The index of the ``=`` or comparison of an attribute or claim."""
        for at, (kind, _) in enumerate(self.tokens):
            if kind in {"EQUAL", "RELATION"}:
                return at
            if kind == "LBRACE":
                return None
        return None

    @property
    def text(self) -> str:
        """The text of the line in the output."""
        at = self.relation
        text = _join_tokens(self.tokens[:at])
        if at is not None:
            text = f"{text:<{self.column}} {_join_tokens(self.tokens[at:])}"
        return "  " * self.depth + "  ".join(filter(None, (text, self.remark)))


@define
class _Layout:
    """Breaks tokens into lines."""

    tokens: Sequence[_Token]
    out: list[_Line] = field(factory=list)
    line: _Line = field(factory=lambda: _Line(0))
    depth: int = 0
    ended: bool = False  # whether the next token begins a line

    def lines(self) -> list[_Line]:
        """Return the output lines of the tokens."""
        brackets = at = 0
        while at < len(self.tokens):
            kind, text = self.tokens[at]
            brackets += BRACKETS.get(kind, 0)
            if kind == "COMMENT":
                self.line.remark = f"{self.line.remark} {text}".lstrip()
            elif kind == "_NL":
                if not brackets:
                    self._break(blank=text.count("\n") > 1)
            elif kind == "_COMMA" and not brackets:
                self.ended = True
            elif kind == "RBRACE":
                self._close()
            else:
                if self.ended:
                    self._break()
                self.line.tokens.append((kind, text))
                if kind == "LBRACE":
                    at = self._open(at)
            at += 1
        self._break()
        return self.out

    def _open(self, at: int) -> int:
        """Begin a block at the ``{`` at *at*; return the index of the last token read."""
        self.ended = True
        room = WIDEST - 2 * self.line.depth
        depth = 0
        for end in range(at, min(at + room, len(self.tokens))):
            kind, _ = self.tokens[end]
            depth += BRACES.get(kind, 0)
            if kind in {"_NL", "COMMENT"}:
                break
            if depth == 0:
                whole = [*self.line.tokens, *self.tokens[at + 1 : end + 1]]
                if len(_join_tokens(whole)) > room:
                    break
                self.line.tokens = whole
                return end
        self.depth += 1
        return at

    def _close(self) -> None:
        """End a block; an empty block stays on one line."""
        if self.line.tokens:
            self._break()
        self.depth -= 1
        if self.out and self.out[-1].opens and not self.out[-1].remark:
            self.line = self.out.pop()
        else:
            self.line = _Line(self.depth)
        self.line.tokens.append(("RBRACE", "}"))
        self.ended = True

    def _break(self, *, blank: bool = False) -> None:
        """End the line; several blank lines between two others become one."""
        if self.line.tokens or self.line.remark:
            self.out.append(self.line)
            self.line = _Line(self.depth)
        between = bool(self.out) and not self.out[-1].opens
        self.line.depth = self.depth
        self.line.blank_before |= blank and between
        self.ended = False


def _read(text: str) -> list[_Token]:
    """Return the tokens and comments of *text*, each in its canonical spelling."""
    tokens: list[_Token] = []
    for match in tables().tokens.finditer(text):
        kind, written = match.lastgroup or "", match[0]
        if kind in {"WS", "END"}:
            continue
        if kind == "QUANTITY":
            written = " ".join(split_quantity(written))
        elif kind == "COMMENT":
            written = written.rstrip()
        tokens.append((kind, written))
    return tokens


def _align(lines: list[_Line]) -> None:
    """Put the ``=`` of each run of attributes and claims into one column."""
    run: list[_Line] = []
    for line in [*lines, _Line(0)]:
        at = line.relation
        if run and (at is None or line.blank_before or line.depth != run[0].depth):
            column = max(len(_join_tokens(other.tokens[: other.relation])) for other in run)
            for other in run:
                other.column = column
            run = []
        if at is not None:
            run.append(line)


def _join_tokens(tokens: Sequence[_Token]) -> str:
    """Return *tokens* joined with the canonical spaces."""
    text, previous, tight = "", "", True
    for at, (kind, written) in enumerate(tokens):
        if kind == "_COMMA" and tokens[at + 1][0] in _CLOSERS:
            continue
        if not tight and kind not in _TIGHT_BEFORE and (previous, kind) not in _TIGHT_PAIRS:
            text += " "
        text += written
        tight = kind in _TIGHT_AFTER or (kind == "MINUS" and previous not in OPERANDS)
        previous = kind
    return text
