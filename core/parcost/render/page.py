"""What is on a page of text, apart from how it is drawn.

A report is told once, as headings, lines and tables; a terminal, a pipe and Markdown
each draw the same page in their own manner. Exporters, commands and third parties all
write pages.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Literal

from attrs import field, frozen

Style = Literal["plain", "strong", "faint", "good", "bad", "warning"]


_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")


def clean(text: str) -> str:
    """Return *text* with control characters spelled out; a spec must not drive a terminal.

    >>> clean("a\\x1b[2Jb")
    'a\\\\x1b[2Jb'
    """
    return _CONTROL.sub(lambda m: m[0].encode("unicode_escape").decode(), text)


def _clean_all(texts: Iterable[str]) -> tuple[str, ...]:
    return tuple(map(clean, texts))


@frozen(kw_only=True)
class Paper:
    """What is drawn on."""

    width: int = 80
    color: bool = False
    unicode: bool = False


@frozen
class Heading:
    """A title; *level* 1 opens a report, 2 a part of it. *aside* stands at the far end."""

    text: str = field(converter=clean)
    level: Literal[1, 2] = 2
    aside: str = field(default="", converter=clean)


@frozen
class Line:
    """One sentence, wrapped to the width."""

    text: str = field(converter=clean)
    style: Style = "plain"
    indent: int = 0


@frozen
class Column:
    """A column of a table; *flexible* ones are wrapped where the page is narrow."""

    title: str = field(default="", converter=clean)
    align: Literal["left", "right"] = "left"
    flexible: bool = False


@frozen
class Row:
    """Cells, one for each column. *indent* shifts the first; *rule* draws a line above."""

    cells: Sequence[str] = field(converter=_clean_all)
    style: Style = "plain"
    indent: int = 0
    rule: bool = False


@frozen
class Table:
    """Rows under columns; without any title the head is left out."""

    columns: Sequence[Column]
    rows: Sequence[Row] = field(factory=tuple)


Item = Heading | Line | Table


def draw(items: Sequence[Item], paper: Paper) -> str:
    """Return the page as text, coloured where the paper takes colour."""
    if paper.color:
        from parcost.render import terminal

        return terminal.draw(items, paper)
    from parcost.render import plain

    return plain.draw(items, paper)
