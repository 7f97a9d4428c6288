"""Texts that are read as a script, and the origin of their characters."""

from __future__ import annotations

import bisect
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

from parcost_formats.tools.shell.values import Piece, ShellValue, assumption_of

_ASSIGNED = re.compile(
    r"(?:^|[;&|)]|\bthen\b|\bdo\b|\belse\b)[ \t]*"
    r"(?:(?:export|local|declare|readonly)[ \t]+(?:-\w+[ \t]+)?)?([A-Za-z_]\w*)\+?=",
    re.MULTILINE,
)


class ScriptSource:
    """A text that is read as a script, and the origin of its characters.

    A text from another file has a single place. A text composed by the script has *pieces*.
    """

    def __init__(
        self, text: str, pieces: ShellValue = (), place: tuple[int, int] | None = None
    ) -> None:
        self.text = text
        self.pieces = pieces
        self._place = place
        self._starts: list[int] = []
        self._assigned: Mapping[str, int] | None = None
        at = 0
        for piece in pieces:
            self._starts.append(at)
            at += len(_write_word(piece, 0))

    def place(self, start: int, end: int) -> tuple[int, int]:
        """Return the span in the file from which *start* to *end* of this text originate."""
        if self._place is not None:
            return self._place
        if not self.pieces:
            return start, end
        return self._find_place(start)[0], self._find_place(max(end - 1, start))[1]

    def assigns(self, name: str, end: int) -> bool:
        """Return whether the text before *end* has an assignment to a name, executed or not."""
        if self._assigned is None:
            found = list(_ASSIGNED.finditer(self.text))
            self._assigned = {one[1]: one.start(1) for one in reversed(found)}
        return self._assigned.get(name, end) < end

    def assumption(self, start: int, end: int) -> str:
        """Return the first assumption made for *start* to *end* of this text, "" for none."""
        if not self.pieces:
            return ""
        first = max(bisect.bisect_right(self._starts, start) - 1, 0)
        last = bisect.bisect_left(self._starts, end)
        return assumption_of(self.pieces[first:last])

    def spans(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        """Yield the spans of the pieces between *start* and *end*."""
        first = bisect.bisect_right(self._starts, start)
        cuts = self._starts[first : bisect.bisect_left(self._starts, end)]
        yield from pairwise([start, *dict.fromkeys(cuts), end])

    def _find_place(self, at: int) -> tuple[int, int]:
        number_of = max(bisect.bisect_right(self._starts, at) - 1, 0)
        piece = self.pieces[number_of]
        if len(piece.text) == piece.end - piece.start and not piece.unread:
            offset = piece.start + at - self._starts[number_of]
            return offset, offset + 1
        return piece.start, piece.end


def compose(pieces: Sequence[Piece]) -> ScriptSource:
    """Return a text composed by a script; unknown pieces are replaced by marks."""
    marks = "".join(_write_word(piece, place) for place, piece in enumerate(pieces))
    return ScriptSource(marks, pieces)


def _write_word(piece: Piece, place: int) -> str:
    return f"\0{place:09d}\0" if piece.unread else piece.text


def short(text: str) -> str:
    """Return a text in one line of at most 40 characters."""
    one = " ".join(text.split())
    return one if len(one) <= 40 else f"{one[:37]}..."


def find_break(text: str, at: int) -> str:
    r"""Return why a command ends above the line of character *at*.

    >>> find_break("a \\\n  # note\n  --b", 14)
    'a comment above it ends the previous command'
    >>> print(find_break("a \\ # note\n  --b", 13), find_break("a\n--b", 2), sep="; ")
    `\` continues a line only as its last character; the line above has no `\` at its end
    """
    above = text[:at].rstrip(" \t").rstrip("\n").rpartition("\n")[2]
    if above.lstrip().startswith("#"):
        return "a comment above it ends the previous command"
    if re.search(r"\\[ \t\r]+(?:#|$)", above):
        return "`\\` continues a line only as its last character"
    return "the line above has no `\\` at its end"
