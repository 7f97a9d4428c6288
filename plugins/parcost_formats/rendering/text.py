"""Pages as lines of text: plain for pipes and files, with color for a terminal.

The text is ASCII unless the paper allows Unicode. Rich was tried instead. It takes 42 ms to import,
and 225 ms for a table of 600 rows that takes 17 ms here. At 34 columns it cut words to `gradi...`.
Here no cell is ever cut, and columns that do not fit are named.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import zip_longest
from textwrap import wrap

from attrs import evolve

from parcost.contract.page import Column, Heading, Item, Line, Paper, Row, Style, Table

_GAP = 2
_NARROWEST = 12
_STACKED = 60  # columns of paper, below which rows are stacked before a word is cut
_MARGIN = "  "
_ASCII = str.maketrans(
    {
        "×": "x", "±": "+-", "µ": "u", "·": "*", "≤": "<=", "≥": ">=", "→": "->",
        "–": "-", "—": "-", "…": "...", "²": "^2", "‘": "'", "’": "'", "“": '"', "”": '"',
        "█": "#",
    }
)  # fmt: skip


_COLOURS: dict[Style, str] = {
    "strong": "\x1b[1m",
    "faint": "\x1b[2m",
    "good": "\x1b[32m",
    "bad": "\x1b[1;31m",
    "warning": "\x1b[33m",
}
_PLAIN = "\x1b[0m"
_BAR = re.compile("[█#]+$")


def draw(items: Sequence[Item], paper: Paper) -> str:
    """Return the page as text, coloured if the paper has color."""
    return "".join(f"{_paint(t, s, paper)}\n" for t, s in lines(items, paper))


def _bar_painter(color: str) -> str:
    """Return a function that colors a bar with the nearest of the 216 colors of all color
    terminals.

    >>> _bar_painter("#0072B2").strip("\x1b")
    '[38;5;31m'
    """
    red, green, blue = (round(int(color[n : n + 2], 16) / 51) for n in (1, 3, 5))
    return f"\x1b[38;5;{16 + 36 * red + 6 * green + blue}m"


def _paint(text: str, style: str, paper: Paper) -> str:
    if style.startswith("#"):  # the color of a bar
        style, color = "plain", style
        if paper.color:
            text = _BAR.sub(lambda bar: f"{_bar_painter(color)}{bar[0]}{_PLAIN}", text)
    colour = _COLOURS.get(style, "") if paper.color and text else ""  # type: ignore[call-overload]
    return f"{colour}{text}{_PLAIN}" if colour else text


def lines(items: Sequence[Item], paper: Paper) -> Iterator[tuple[str, str]]:
    """Yield the lines of the page, each with its style, or with the color of its bar."""
    blank = True  # of blank lines one is kept, and none at the top
    for item in items:
        for text, style in _drawn(item, paper):
            if text or not blank:
                yield (text if paper.unicode else text.translate(_ASCII)).rstrip(), style
            blank = not text


def _drawn(item: Item, paper: Paper) -> Iterator[tuple[str, str]]:
    match item:
        case Heading():
            yield from _heading(item, paper)
        case Line():
            yield from ((text, item.style) for text in _wrap(item, paper))
        case Table():
            yield from _table(item, paper)


def _heading(heading: Heading, paper: Paper) -> Iterator[tuple[str, Style]]:
    yield "", "plain"
    room = paper.width - len(heading.text)
    if heading.level > 1:
        yield heading.text, "strong"
    elif heading.aside and len(heading.aside) + _GAP <= room:
        yield heading.text + heading.aside.rjust(room), "strong"
    else:
        for text in (heading.text, heading.aside):
            yield from ((line, "strong") for line in _wrap_words(text, paper, "", _MARGIN))
    if heading.level == 1:
        yield ("━" if paper.unicode else "=") * paper.width, "faint"
    if heading.level < 3:
        yield "", "plain"


def _wrap(line: Line, paper: Paper) -> list[str]:
    if not line.text:
        return [""]
    margin = _MARGIN + " " * line.indent
    if line.verbatim:
        return [margin + part for part in _fold(line.text, paper.width - len(margin) - 2)]
    return _wrap_words(line.text, paper, margin, margin)


def _wrap_words(text: str, paper: Paper, margin: str, below: str) -> list[str]:
    """Return the lines of a text; *margin* is before the first line, *below* before the others."""
    return wrap(
        text,
        max(paper.width, 2 * _NARROWEST),
        initial_indent=margin,
        subsequent_indent=below,
        break_long_words=False,
        break_on_hyphens=False,
    )


def _fold(text: str, width: int) -> list[str]:
    """Return the lines of a command to copy, with a backslash at the end of all but the last.

    A line has *width* columns where options allow it. Other texts are one line.
    """
    if len(text) <= width or "parcost " not in text:
        return [text]
    line, *options = text.split(" --")
    lines: list[str] = []
    for option in options:
        if len(line) + len(f" --{option}") > width:
            lines.append(f"{line} \\")
            line = f"  --{option}"
        else:
            line = f"{line} --{option}"
    return [*lines, line]


def _table(table: Table, paper: Paper) -> Iterator[tuple[str, str]]:
    """Yield the lines of a table, no wider than the paper if possible."""
    table, left_out = _fit(table, paper.width - len(_MARGIN))
    gap, room = _GAP, widths(table, paper.width - len(_MARGIN))
    if _cuts_words(table, room):
        gap, room = 1, widths(table, paper.width - len(_MARGIN), 1)
    if paper.width < _STACKED and _cuts_words(table, room):
        yield from _stack_table(table, paper)
        return
    rule = _MARGIN + ("─" if paper.unicode else "-") * (sum(room) + gap * (len(room) - 1))
    if any(column.title for column in table.columns):
        head = Row([column.title for column in table.columns], "faint")
        yield from _cells(head, table.columns, room, gap)
        yield rule, "faint"
    for row in table.rows:
        if row.rule:
            yield rule, "faint"
        yield from _cells(row, table.columns, room, gap)
    if titles := ", ".join(filter(None, left_out)):
        said = f"not shown: {titles} (choose columns with --figures)"
        yield from ((text, "faint") for text in _wrap(Line(said), paper))


def _cuts_words(table: Table, room: Sequence[int]) -> bool:
    """Return whether a cell has a word that is longer than its column."""
    return any(
        len(word) > width
        for row in table.rows
        for cell, width in zip(row.cells, room, strict=True)
        for word in cell.split()
    )


def _stack_table(table: Table, paper: Paper) -> Iterator[tuple[str, str]]:
    """Yield each row as lines, one for each cell: for paper too narrow for columns."""
    for row in table.rows:
        for position, (cell, column) in enumerate(zip(row.cells, table.columns, strict=True)):
            if cell:
                text = f"{column.title}: {cell}" if position and column.title else cell
                line = Line(text, indent=row.indent + 2 * bool(position))
                yield from ((one, row.style) for one in _wrap(line, paper))


def _fit(table: Table, room: int) -> tuple[Table, list[str]]:
    """Return the table without the optional columns that do not fit, and their titles."""
    left_out: list[str] = []
    while sum(widths(table, room)) + _GAP * (len(table.columns) - 1) > room:
        optional = [i for i, column in enumerate(table.columns) if column.optional]
        if not optional:
            break
        last = optional[-1]
        left_out.insert(0, table.columns[last].title)
        columns = [c for i, c in enumerate(table.columns) if i != last]
        rows = [
            evolve(row, cells=[c for i, c in enumerate(row.cells) if i != last])
            for row in table.rows
        ]
        table = Table(columns, rows)
    return table, left_out


def _cells(
    row: Row, columns: Sequence[Column], room: Sequence[int], gap: int
) -> Iterator[tuple[str, str]]:
    wrapped = []
    for position, (cell, width) in enumerate(zip(row.cells, room, strict=True)):
        indent = " " * (row.indent if position == 0 else 0)
        wrapped.append(
            wrap(
                cell,
                max(width, len(indent) + 1),  # with less, `wrap` never ends on a blank
                initial_indent=indent,
                subsequent_indent=indent,
                break_on_hyphens=False,
            )
        )
    for parts in zip_longest(*wrapped, fillvalue=""):
        aligned = [
            part.rjust(width) if column.align == "right" else part.ljust(width)
            for part, width, column in zip(parts, room, columns, strict=True)
        ]
        yield _MARGIN + (" " * gap).join(aligned), row.bar_color or row.style


def widths(table: Table, room: int, gap: int = _GAP) -> list[int]:
    """Return the widths of columns in characters, with *gap* between them, within *room*.

    If *room* is too small, headers are wrapped first, then flexible columns: the widest first, down
    to its longest word, and if necessary down to a dozen characters.
    """
    found, least, narrowest = [], [], []
    for i, column in enumerate(table.columns):
        cells = [(row.cells[i], row.indent if i == 0 else 0) for row in table.rows]
        word = max((len(w) + n for cell, n in cells for w in cell.split()), default=0)
        whole = max((len(cell) + n for cell, n in cells), default=0)
        head = max(map(len, column.title.split()), default=0)
        found.append(max(len(column.title), whole))
        least.append(max(head, word if column.flexible else whole))
        narrowest.append(min(least[i], _NARROWEST) if column.flexible else least[i])
    over = sum(found) + gap * (len(found) - 1) - room
    for floors in (least, narrowest):
        while over > 0 and (able := [i for i, floor in enumerate(floors) if found[i] > floor]):
            found[max(able, key=found.__getitem__)] -= 1
            over -= 1
    return found
