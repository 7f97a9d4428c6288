"""The matrix of ``nvidia-smi topo -m``: links between the GPUs and NICs of a node."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import product, takewhile

from parcost import record
from parcost_formats.tools.file_importer import FileError

_ANSI = re.compile(r"\x1b\[[0-9;]*m")
_NAME = re.compile(r"(?:GPU|NIC|mlx\d+_|bnxt\w*_|hfi1_)\d+$")
_CODE = re.compile(r"(?:X|NV\d+|PIX|PXB|PHB|NODE|SYS|SOC)$")
_TAIL = ("CPU Affinity", "NUMA Affinity", "GPU NUMA ID")  # columns that are not codes
_CLOSE = ("PIX", "PXB")  # behind the same PCIe switches


class MatrixError(FileError):
    """A text is not a valid matrix; the error has the place."""


@record
class Word:
    """A word of a line, and its place."""

    text: str
    start: int
    end: int


@record
class Matrix:
    """The link codes of all pairs of devices and NICs; *header* is a place of the text.

    *assumption* is the source of codes for rows that the text lacks; "" if it has all.
    """

    devices: Sequence[str]
    cards: Sequence[str]
    codes: Mapping[tuple[str, str], Word]
    header: tuple[int, int]
    rest: Sequence[Word]  # columns that are not codes
    assumption: str = ""

    def between(self, one: str, other: str) -> str:
        """Return the link code of two devices or NICs: ``NV4``, ``PIX``."""
        return self.codes[one, other].text

    def links(self) -> set[str]:
        """Return the link codes between devices."""
        return {self.between(a, b) for a in self.devices for b in self.devices if a != b}

    def has_cards(self) -> bool:
        """Return whether the text has the link code of every device and NIC."""
        return all((device, card) in self.codes for device in self.devices for card in self.cards)

    def close_cards(self) -> list[str]:
        """Return the NICs behind the PCIe switches of a device."""
        return [
            card
            for card in self.cards
            if any(self.between(device, card) in _CLOSE for device in self.devices)
        ]

    def groups(self) -> list[list[str]]:
        """Return the groups of devices joined by NVLink."""
        left, groups = list(self.devices), []
        while left:
            group = [left.pop(0)]
            for one in group:
                joined = [other for other in left if self.between(one, other).startswith("NV")]
                group += joined
                left = [other for other in left if other not in joined]
            groups.append(group)
        return groups


def read_matrix(text: str) -> Matrix:
    """Return the matrix in a text; other text around it is skipped.

    A text may end before the matrix does. Missing codes are taken from the transposed entry; if
    that is missing too, from all other pairs, if they are equal.

    Raises:
        MatrixError: There is no matrix, or its codes leave a pair of devices unknown.
    """
    found = _MatrixReader()
    for line, at in _lines(text):
        if not found.columns:
            found.read_header(line, at)
        elif not found.read_row(list(_words(line, at))):
            break
    columns, codes, place = found.columns, found.codes, found.place
    if not columns:
        raise MatrixError("no header with GPU0, GPU1, ... is found", 0, min(len(text), 1))
    devices = [name for name in columns if name.startswith("GPU")]
    cards = [name for name in columns if not name.startswith("GPU")]
    if not any(one != other and (one, other) in codes for one in devices for other in columns):
        raise MatrixError(
            "the matrix has no row with codes of connections, such as NV18 or PIX", *place
        )
    assumption = _complete(codes, devices, columns, place)
    for one, other in product(devices, devices):
        there, back = codes[one, other], codes[other, one]
        if there.text != back.text:
            message = (
                f"{one} and {other} are connected by {there.text} in one direction and by "
                f"{back.text} in the other"
            )
            raise MatrixError(message, back.start, back.end)
    return Matrix(devices, cards, codes, place, found.rest, assumption)


class _MatrixReader:
    """The header and the rows of a matrix, read line by line."""

    def __init__(self) -> None:
        self.columns: list[str] = []
        self.codes: dict[tuple[str, str], Word] = {}
        self.place = (0, 1)
        self.rest: list[Word] = []
        self._cut: Sequence[Word] | None = None

    def read_header(self, line: str, at: int) -> None:
        """Read the names of the columns, where *line* has them."""
        if "GPU0" not in line:  # of a log, nearly all
            return
        words = list(_words(line, at))
        names = [word.text for word in words if _NAME.match(word.text)]
        if not names or names[0] != "GPU0":
            return
        if len(words) > 1 and _CODE.match(words[1].text):
            raise MatrixError("the header of the matrix is missing", at, at + len(line))
        self.columns, self.place = names, (words[0].start, words[-1].end)
        places = [(column, at + line.index(column)) for column in _TAIL if column in line]
        self.rest = [Word(column, start, start + len(column)) for column, start in places]

    def read_row(self, words: Sequence[Word]) -> bool:
        """Read the codes of a row; return False at the header of another matrix."""
        if self.codes and _begins_matrix(words):
            return False
        if len(words) < 2 or words[0].text not in self.columns:
            return True
        if self._cut is not None:
            row = self._cut[0]
            message = f"the row of {row.text} has fewer codes than the header has names"
            raise MatrixError(message, row.start, self._cut[-1].end)
        values = words[1 : 1 + len(self.columns)]
        if len(values) < len(self.columns) or not all(_CODE.match(word.text) for word in values):
            self._cut = words  # an error, unless it is the last row of a text that is cut
            values = list(takewhile(lambda word: _CODE.match(word.text), values))
        for name, word in zip(self.columns, values, strict=False):
            self.codes[words[0].text, name] = word
        return True


def _begins_matrix(words: Sequence[Word]) -> bool:
    """Return whether a line is the header of a matrix, such as the matrix of `topo -p2p`."""
    names = [word.text for word in words if _NAME.match(word.text)]
    return len(words) > 1 and names[:1] == ["GPU0"] and not _CODE.match(words[1].text)


def _complete(
    codes: dict[tuple[str, str], Word],
    devices: Sequence[str],
    columns: Sequence[str],
    place: tuple[int, int],
) -> str:
    """Add missing link codes; return the assumption made for them."""
    lacking = [one for one in devices if any((one, other) not in codes for other in devices)]
    for one in devices:
        for other in columns:
            if (one, other) not in codes and (other, one) in codes:
                codes[one, other] = codes[other, one]
        codes.setdefault((one, one), Word("X", *place))
    if not lacking:
        return ""
    open_pairs = [(a, b) for a in devices for b in devices if (a, b) not in codes]
    known = {codes[a, b].text for a in devices for b in devices if a != b and (a, b) in codes}
    names = ", ".join(lacking)
    if not open_pairs:
        return f"the text ends before the row of {names}; its codes are taken from the other rows"
    if len(known) != 1:
        one, other = open_pairs[0]
        message = f"the text ends before the rows of {names}, and no other row has {one} to {other}"
        raise MatrixError(message, *place)
    for pair in open_pairs:
        codes[pair] = Word(next(iter(known)), *place)
    return f"the text ends before the rows of {names}: all other pairs have {next(iter(known))}"


def _lines(text: str) -> Iterator[tuple[str, int]]:
    at = 0
    for line in text.splitlines(keepends=True):
        yield line, at
        at += len(line)


def _words(line: str, at: int) -> Iterator[Word]:
    """Yield the words of a line; escape codes of a terminal count as spaces."""
    plain = _ANSI.sub(lambda match: " " * len(match[0]), line)
    for match in re.finditer(r"\S+", plain):
        yield Word(match[0], at + match.start(), at + match.end())
