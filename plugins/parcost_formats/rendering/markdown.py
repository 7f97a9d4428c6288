"""Pages as Markdown. All text from a spec is escaped."""

from __future__ import annotations

import re
from collections.abc import Sequence

from parcost.contract.page import Heading, Item, Line, Row, Table
from parcost.language.escapes import escape_line

_SPECIAL = re.compile(r"([\\`*_{}\[\]<>#|~])")


def draw(items: Sequence[Item]) -> str:
    """Return the page as GitHub-flavoured Markdown."""
    blocks = []
    for item in items:
        match item:
            case Heading():
                title = "#" * item.level + " " + escape(item.text)
                blocks.append(title + (f"\n\n{escape(item.aside)}" if item.aside else ""))
            case Line():
                text = escape(item.text)
                blocks.append(f"**{text}**" if item.style in ("good", "bad") else text)
            case Table():
                blocks.append(_table(item))
    return "\n\n".join(blocks) + "\n"


def escape(text: str) -> str:
    r"""Return *text* in a line, with the special characters of Markdown and terminals escaped.

    >>> escape("dp_reduce <b>")
    'dp\\_reduce \\<b\\>'
    """
    return _SPECIAL.sub(r"\\\1", escape_line(text.replace("\n", " ")))


def _table(table: Table) -> str:
    head = " | ".join(escape(column.title) for column in table.columns)
    rule = " | ".join("--:" if c.align == "right" else ":--" for c in table.columns)
    rows = [" | ".join(_cells(row)) for row in table.rows]
    return "\n".join(f"| {line} |" for line in (head, rule, *rows))


def _cells(row: Row) -> list[str]:
    first, *rest = (escape(cell) for cell in row.cells)
    cells = ["&nbsp;" * row.indent + first, *rest]
    if row.style in ("strong", "good", "bad"):
        return [f"**{cell}**" if cell.strip() else cell for cell in cells]
    return cells
