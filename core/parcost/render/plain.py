"""Pages as plain text, for pipes and files: ASCII where the paper asks for it.

Written by hand because importing a table library would cost more than evaluating a
spec does.
"""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import wrap

from parcost.render.page import Heading, Item, Line, Paper, Row, Table

_GAP = 2
_NARROWEST = 12
_MARGIN = "  "
_ASCII = str.maketrans(
    {
        "×": "x", "±": "+-", "µ": "u", "·": "*", "≤": "<=", "≥": ">=", "→": "->",
        "–": "-", "—": "-", "…": "...", "²": "^2", "‘": "'", "’": "'", "“": '"', "”": '"',
    }
)  # fmt: skip


def draw(items: Sequence[Item], paper: Paper) -> str:
    """Return the page as lines of text."""
    lines: list[str] = []
    for item in items:
        match item:
            case Heading():
                lines += _heading(item, paper)
            case Line():
                lines += _line(item, paper)
            case Table():
                lines += table(item, paper)
    text = "".join(f"{line.rstrip()}\n" for line in lines).lstrip("\n")
    return text if paper.unicode else text.translate(_ASCII)


def _heading(heading: Heading, paper: Paper) -> list[str]:
    if heading.level == 2:
        return ["", heading.text, ""]
    room = paper.width - len(heading.text) - _GAP
    if heading.aside and len(heading.aside) <= room:
        title = [heading.text + heading.aside.rjust(room + _GAP)]
    else:
        title = list(filter(None, (heading.text, heading.aside)))
    rule = "═" if paper.unicode else "="
    return ["", *title, rule * paper.width, ""]


def _line(line: Line, paper: Paper) -> list[str]:
    margin = _MARGIN + " " * line.indent
    return wrap(
        line.text,
        max(paper.width, 2 * _NARROWEST),
        initial_indent=margin,
        subsequent_indent=margin,
        break_long_words=False,
        break_on_hyphens=False,
    )


def table(table: Table, paper: Paper) -> list[str]:
    """Return the lines of a table, no wider than the paper where that is possible."""
    widths = _widths(table, paper.width - len(_MARGIN))
    rule = _MARGIN + ("─" if paper.unicode else "-") * (sum(widths) + _GAP * (len(widths) - 1))
    lines = []
    if table.titled:
        lines += [*_cells(Row([c.title for c in table.columns]), table, widths), rule]
    for row in table.rows:
        if row.rule:
            lines.append(rule)
        lines += _cells(row, table, widths)
    return lines


def _cells(row: Row, table: Table, widths: Sequence[int]) -> list[str]:
    columns = []
    for position, (cell, width) in enumerate(zip(row.cells, widths, strict=True)):
        indent = " " * (row.indent if position == 0 else 0)
        columns.append(
            wrap(
                cell,
                width,
                initial_indent=indent,
                subsequent_indent=indent,
                break_on_hyphens=False,
            )
            or [""]
        )
    lines = []
    for number in range(max(map(len, columns))):
        parts = [column[number] if number < len(column) else "" for column in columns]
        aligned = [
            part.rjust(width) if column.align == "right" else part.ljust(width)
            for part, width, column in zip(parts, widths, table.columns, strict=True)
        ]
        lines.append(_MARGIN + (" " * _GAP).join(aligned))
    return lines


def _widths(table: Table, room: int) -> list[int]:
    """Return the width of each column; flexible ones give way, the widest first."""
    heads = [len(column.title) for column in table.columns]
    widths = [
        max(
            [head, *(len(r.cells[i]) + (r.indent if i == 0 else 0) for r in table.rows)],
        )
        for i, head in enumerate(heads)
    ]
    flexible = [i for i, column in enumerate(table.columns) if column.flexible]
    over = sum(widths) + _GAP * (len(widths) - 1) - room
    while over > 0 and flexible:
        widest = max(flexible, key=widths.__getitem__)
        if widths[widest] <= _NARROWEST:
            break
        widths[widest] -= 1
        over -= 1
    return widths
