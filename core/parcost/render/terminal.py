"""Pages on a terminal, drawn by rich: colour, and boxes where they can be shown."""

from __future__ import annotations

from collections.abc import Sequence
from io import StringIO

from rich import box
from rich.console import Console
from rich.padding import Padding
from rich.table import Table as RichTable
from rich.text import Text

from parcost.render.page import Heading, Item, Line, Paper, Row, Style, Table

_STYLES: dict[Style, str] = {
    "plain": "",
    "strong": "bold",
    "faint": "dim",
    "good": "green",
    "bad": "bold red",
    "warning": "yellow",
}


def draw(items: Sequence[Item], paper: Paper) -> str:
    """Return the page with the escape codes of a terminal, or without colour."""
    out = StringIO()
    console = Console(
        file=out,
        width=paper.width,
        force_terminal=paper.color,
        color_system="standard" if paper.color else None,
        no_color=not paper.color,
        highlight=False,
        emoji=False,
        legacy_windows=False,
        safe_box=not paper.unicode,
    )
    for item in items:
        match item:
            case Heading():
                _heading(console, item, paper)
            case Line():
                text = Text(item.text, _STYLES[item.style])
                console.print(Padding(text, (0, 0, 0, 2 + item.indent)))
            case Table():
                console.print(Padding(_table(item, paper), (0, 0, 0, 1)))
    lines = out.getvalue().lstrip("\n").splitlines()
    return "".join(f"{line.rstrip()}\n" for line in lines)


def _heading(console: Console, heading: Heading, paper: Paper) -> None:
    console.print()
    if heading.level == 2:
        console.print(Text(heading.text, "bold"))
        return
    title = RichTable.grid(expand=True)
    title.add_column()
    title.add_column(justify="right")
    title.add_row(Text(heading.text, "bold"), Text(heading.aside, "dim"))
    console.print(title)
    console.print(Text(("━" if paper.unicode else "=") * paper.width, "dim"))


def _table(table: Table, paper: Paper) -> RichTable:
    drawn = RichTable(
        box=box.SIMPLE_HEAD if paper.unicode else box.ASCII2,
        show_edge=False,
        show_header=table.titled,
        pad_edge=True,
        padding=(0, 1),
        border_style="dim",
        header_style="dim",
    )
    for column in table.columns:
        drawn.add_column(
            column.title,
            justify=column.align,
            no_wrap=not column.flexible,
            overflow="fold",
        )
    for row, following in zip(table.rows, [*table.rows[1:], None], strict=True):
        ends = following is not None and following.rule
        drawn.add_row(*_cells(row), style=_STYLES[row.style], end_section=ends)
    return drawn


def _cells(row: Row) -> list[Text]:
    first, *rest = row.cells
    return [Text(" " * row.indent + first), *map(Text, rest)]
