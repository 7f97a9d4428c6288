"""The content of a page of text, independent of its rendering.

A report is a list of headings, lines and tables. Terminals, pipes and Markdown render the same
list. Control characters are escaped: text of a spec must not control a terminal.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

from attrs import field

from parcost.language.escapes import screen_line
from parcost.records import frozen

Style = Literal["plain", "strong", "faint", "good", "bad", "warning"]


def _all_visible(texts: Iterable[str]) -> tuple[str, ...]:
    return tuple(map(screen_line, texts))


@frozen(kw_only=True)
class Paper:
    """The width in characters, the color support and the character set of the output."""

    width: int = 80
    color: bool = False
    unicode: bool = False


@frozen
class Heading:
    """A title; *level* 1 starts a report, 2 a part of it, 3 a short part without a gap below.

    *aside* is printed at the right end of a report's title.
    """

    text: str = field(converter=screen_line)
    level: Literal[1, 2, 3] = 2
    aside: str = field(default="", converter=screen_line)


@frozen
class Line:
    """One sentence, wrapped to the width; a *verbatim* line is not wrapped, to be copied.

    A command of parcost is broken before its options, with a backslash.
    """

    text: str = field(converter=screen_line)
    style: Style = "plain"
    indent: int = 0
    verbatim: bool = False


@frozen
class Column:
    """A column of a table.

    On a narrow page *flexible* columns are wrapped, and *optional* ones are omitted from the right.
    A line below the table names the omitted columns.
    """

    title: str = field(default="", converter=screen_line)
    align: Literal["left", "right"] = "left"
    flexible: bool = False
    optional: bool = False


@frozen
class Row:
    """Cells, one for each column. *indent* shifts the first; *rule* draws a line above.

    A bar of block characters in a cell is drawn in *bar_color*, such as ``#0072B2``, where color is
    supported.
    """

    cells: Sequence[str] = field(converter=_all_visible)
    style: Style = "plain"
    indent: int = 0
    rule: bool = False
    bar_color: str = ""


@frozen
class Table:
    """Rows under columns; if no column has a title, there is no header row."""

    columns: Sequence[Column]
    rows: Sequence[Row] = field(factory=tuple)


Item = Heading | Line | Table
