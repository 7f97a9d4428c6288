"""Lines and columns as the Language Server Protocol counts them.

A line ends at ``\\n``, ``\\r\\n`` or ``\\r``. A column counts the units of an encoding, which is
UTF-16 unless client and server agree on another. Offsets count the characters of a string.
"""

from __future__ import annotations

import re
from array import array
from bisect import bisect_right
from typing import NamedTuple

_END = re.compile(r"\r\n|\n|\r")
_LAST_OF_ONE_UNIT = 0xFFFF


class Position(NamedTuple):
    """A place in a text: line and column from 0, in units of the encoding."""

    line: int
    column: int


class TextRange(NamedTuple):
    """Two places in a text; the end is exclusive."""

    start: Position
    end: Position


class Lines:
    """The lines of a text, for conversions between offsets and positions.

    >>> lines = Lines("a = 1\\n# \\N{ROCKET} b\\n")
    >>> lines.position(9), lines.offset(Position(1, 4))
    (Position(line=1, column=4), 9)
    """

    def __init__(self, text: str, encoding: str = "utf-16") -> None:
        self.text = text
        self._encoding = encoding
        self._starts = array("Q", (0,))
        self._starts.extend(match.end() for match in _END.finditer(text))

    def position(self, offset: int) -> Position:
        """Return the position of an offset, which may be after the end of the text."""
        offset = max(0, min(offset, len(self.text)))
        line = bisect_right(self._starts, offset) - 1
        return Position(line, self._units(self.text[self._starts[line] : offset]))

    def offset(self, position: Position) -> int:
        """Return the offset of a position; one after its line, or the text, is at the end."""
        line, column = position
        if line >= len(self._starts):
            return len(self.text)
        start = self._starts[max(line, 0)]
        content = self.text[start : self._end_of(max(line, 0))]
        if self._encoding == "utf-32" or content.isascii():
            return start + min(max(column, 0), len(content))
        units = 0
        for at, character in enumerate(content):
            if units >= column:
                return start + at
            units += self._units(character)
        return start + len(content)

    def range(self, start: int, end: int) -> TextRange:
        """Return the range between two offsets."""
        return TextRange(self.position(start), self.position(end))

    def replace(self, where: TextRange, text: str) -> str:
        """Return the whole text with *text* in the place of a range."""
        start, end = self.offset(where.start), self.offset(where.end)
        return self.text[:start] + text + self.text[max(start, end) :]

    def _end_of(self, line: int) -> int:
        """Return the offset after the last character of a line, before its line break."""
        if line + 1 >= len(self._starts):
            return len(self.text)
        end = self._starts[line + 1]
        return end - 2 if self.text[end - 2 : end] == "\r\n" else end - 1

    def _units(self, text: str) -> int:
        if text.isascii() or self._encoding == "utf-32":
            return len(text)
        if self._encoding == "utf-8":
            return len(text.encode("utf-8", "surrogatepass"))
        return len(text) + sum(ord(character) > _LAST_OF_ONE_UNIT for character in text)
