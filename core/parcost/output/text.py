"""Pages as lines of text: plain for pipes and files, coloured for a terminal.

ASCII unless the paper takes more. Rich was tried instead. It takes 42 ms to import, and 225 ms for
a table of 600 rows that takes 17 ms here. At 34 columns it cut words to `gradi...`. Here no cell is
ever cut, and columns that have no room are named.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import zip_longest
from textwrap import wrap

from attrs import evolve

from parcost.contract.page import Column, Heading, Item, Line, Paper, Row, Style, Table

_GAP = 2
_NARROWEST = 12
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


def draw(items: Sequence[Item], paper: Paper) -> str:
    """Return the page as text, coloured where the paper takes colour."""
    return "".join(f"{_painted(t, s, paper)}\n" for t, s in lines(items, paper))


def _painted(text: str, style: Style, paper: Paper) -> str:
    colour = _COLOURS.get(style, "") if paper.color and text else ""
    return f"{colour}{text}{_PLAIN}" if colour else text


def lines(items: Sequence[Item], paper: Paper) -> Iterator[tuple[str, Style]]:
    """Yield the lines of the page, each with its style."""
    blank = True  # of blank lines one is kept, and none at the top
    for item in items:
        for text, style in _drawn(item, paper):
            if text or not blank:
                yield (text if paper.unicode else text.translate(_ASCII)).rstrip(), style
            blank = not text


def _drawn(item: Item, paper: Paper) -> Iterator[tuple[str, Style]]:
    match item:
        case Heading():
            yield from _heading(item, paper)
        case Line():
            yield from ((text, item.style) for text in _wrapped(item, paper))
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
        yield from ((text, "strong") for text in (heading.text, heading.aside) if text)
    if heading.level == 1:
        yield ("━" if paper.unicode else "=") * paper.width, "faint"
    if heading.level < 3:
        yield "", "plain"


def _wrapped(line: Line, paper: Paper) -> list[str]:
    if not line.text:
        return [""]
    margin = _MARGIN + " " * line.indent
    if line.verbatim:
        return [margin + line.text]
    return wrap(
        line.text,
        max(paper.width, 2 * _NARROWEST),
        initial_indent=margin,
        subsequent_indent=margin,
        break_long_words=False,
        break_on_hyphens=False,
    )


def _table(table: Table, paper: Paper) -> Iterator[tuple[str, Style]]:
    """Yield the lines of a table, no wider than the paper where that is possible."""
    table, left_out = _fitting(table, paper.width - len(_MARGIN))
    room = widths(table, paper.width - len(_MARGIN))
    rule = _MARGIN + ("─" if paper.unicode else "-") * (sum(room) + _GAP * (len(room) - 1))
    if any(column.title for column in table.columns):
        head = Row([column.title for column in table.columns], "faint")
        yield from _cells(head, table.columns, room)
        yield rule, "faint"
    for row in table.rows:
        if row.rule:
            yield rule, "faint"
        yield from _cells(row, table.columns, room)
    if titles := ", ".join(filter(None, left_out)):
        said = f"not shown: {titles} (choose columns with --figures)"
        yield from ((text, "faint") for text in _wrapped(Line(said), paper))


def _fitting(table: Table, room: int) -> tuple[Table, list[str]]:
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


def _cells(row: Row, columns: Sequence[Column], room: Sequence[int]) -> Iterator[tuple[str, Style]]:
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
        yield _MARGIN + (" " * _GAP).join(aligned), row.style


def widths(table: Table, room: int, gap: int = _GAP) -> list[int]:
    """Return the width of each column, with *gap* between them within *room*.

    Where there is too little room, heads are wrapped first, then flexible columns: the
    widest first, down to its longest word, and only where that is not enough down to
    a dozen characters.
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
