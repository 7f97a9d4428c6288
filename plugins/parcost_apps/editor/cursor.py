"""The tokens before the cursor in a text that cannot be parsed yet.

    cluster {
      device = h1|        inside of `cluster`, of the attribute `device`, `h1` typed of a word

The syntax tree lacks text that cannot be parsed yet, so completion reads tokens instead.
"""

from __future__ import annotations

from collections.abc import Sequence

from attrs import Factory, define

from parcost.language.build import split_quantity
from parcost.language.parse import tables
from parcost.records import record

_OPENERS = {"LPAR", "LSQB"}
_CLOSERS = {"RPAR", "RSQB"}


@record(eq=False)
class CursorToken:
    """A token before the cursor: its kind in the grammar, and its text."""

    kind: str
    text: str


@define(eq=False)
class Cursor:
    """The blocks around the cursor, the item around it, and the word being typed.

    *blocks* are the words of each header, outermost first. *item* are the tokens of the item
    before *typed*, which starts at *start*. *inside* is "comment", "string" or "".
    """

    blocks: Sequence[Sequence[CursorToken]]
    item: Sequence[CursorToken]
    typed: str
    start: int
    inside: str = ""

    @property
    def kind(self) -> str:
        """The kind of the innermost block, "" at the top of the file."""
        return self.blocks[-1][0].text if self.blocks and self.blocks[-1] else ""

    @property
    def attribute(self) -> str:
        """The attribute whose value is being typed, "" if none."""
        kinds = [word.kind for word in self.item]
        at = kinds.index("EQUAL") if "EQUAL" in kinds else 0
        return self.item[at - 1].text if at else ""

    @property
    def value(self) -> Sequence[CursorToken]:
        """The tokens of the value before the cursor."""
        kinds = [word.kind for word in self.item]
        return self.item[kinds.index("EQUAL") + 1 :] if "EQUAL" in kinds else ()

    @property
    def path(self) -> Sequence[str]:
        """The names of the path that is being typed, each followed by a dot."""
        names: list[str] = []
        left = list(self.item)
        while len(left) > 1 and (left[-1].kind, left[-2].kind) == ("_DOT", "NAME"):
            names.insert(0, left[-2].text)
            del left[-2:]
        return names


@define(eq=False)
class _Reader:
    """Reads tokens, and keeps which blocks and which item are open."""

    blocks: list[list[CursorToken]] = Factory(list)
    item: list[CursorToken] = Factory(list)
    depth: int = 0

    def add(self, word: CursorToken) -> None:
        kind = word.kind
        if kind in _OPENERS | _CLOSERS:
            self.depth = max(self.depth + (1 if kind in _OPENERS else -1), 0)
        if kind == "LBRACE":
            self.blocks.append(self.item)
        elif kind == "RBRACE" and self.blocks:
            self.blocks.pop()
        if kind in ("LBRACE", "RBRACE") or (kind in ("_NL", "_COMMA") and not self.depth):
            self.item, self.depth = [], 0
        elif kind != "_NL":
            self.item.append(word)


def cursor_at(text: str, offset: int) -> Cursor:
    """Return the blocks, the item and the word before *offset*."""
    ignored = tables().ignored
    reader = _Reader()
    for match in tables().tokens.finditer(text, 0, offset):
        kind, written = match.lastgroup or "", match[0]
        if match.end() == offset:
            if kind == "COMMENT":
                return Cursor(reader.blocks, reader.item, "", offset, "comment")
            if kind == "UNTERMINATED":
                return Cursor(reader.blocks, reader.item, written[1:], match.start() + 1, "string")
            if kind == "NAME":
                return Cursor(reader.blocks, reader.item, written, match.start())
            if kind == "QUANTITY":
                number, unit = split_quantity(written)
                reader.add(CursorToken("NUMBER", number))
                return Cursor(reader.blocks, reader.item, unit, offset - len(unit))
        if kind not in ignored and written:
            reader.add(CursorToken(kind, written))
    return Cursor(reader.blocks, reader.item, "", offset)
