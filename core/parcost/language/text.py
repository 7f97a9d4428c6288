"""Source texts, and spans in them for diagnostics."""

from __future__ import annotations

import re
from array import array
from bisect import bisect_right
from functools import cached_property

from attrs import field

from parcost.records import frozen, record


def _without_mark(text: str) -> str:
    return text.removeprefix("\ufeff")


@frozen(slots=False, eq=False)
class Source:
    """A named text. *name* is the path as the user gave it.

    Lines end at ``\\n`` only, and a byte order mark is not part of the text. So lines and columns
    agree with every editor.
    """

    name: str
    text: str = field(repr=False, converter=_without_mark)

    @cached_property
    def _starts(self) -> array[int]:
        """The offset of each line's start, and one past the end; an array, to save memory."""
        starts = array("Q", (0,))
        starts.extend(match.end() for match in re.finditer("\n", self.text))
        starts.append(len(self.text) + 1)
        return starts

    def position(self, offset: int) -> tuple[int, int]:
        """Return the 1-based line and column of *offset*.

        >>> Source("x.par", "a = 1\\nb = 2\\n").position(6)
        (2, 1)
        """
        line = bisect_right(self._starts, offset, hi=len(self._starts) - 1)
        return line, offset - self._starts[line - 1] + 1

    def remark(self, offset: int) -> str:  # noqa: ARG002
        """Return a remark about the text at *offset* for diagnostics; "" if none exists."""
        return ""

    def line(self, number: int) -> str:
        """Return line *number* (1-based), without its newline."""
        if not 1 <= number < len(self._starts):
            return ""
        return self.text[self._starts[number - 1] : self._starts[number] - 1].rstrip("\r")


@record(eq=False)
class Span:
    """A half-open range of character offsets in one source, ``[start, end)``."""

    source: Source = field(repr=False)
    start: int
    end: int

    @property
    def text(self) -> str:
        """The characters that the span covers."""
        return self.source.text[self.start : self.end]

    def to(self, other: Span) -> Span:
        """Return the smallest span of the same source that covers both."""
        return Span(self.source, min(self.start, other.start), max(self.end, other.end))
