"""Pages on a terminal: the lines of the plain page, coloured by rich."""

from __future__ import annotations

from collections.abc import Sequence
from io import StringIO

from rich.console import Console
from rich.text import Text

from parcost.render.page import Item, Paper, Style
from parcost.render.plain import lines

_STYLES: dict[Style, str] = {
    "plain": "",
    "strong": "bold",
    "faint": "dim",
    "good": "green",
    "bad": "bold red",
    "warning": "yellow",
}


def draw(items: Sequence[Item], paper: Paper) -> str:
    """Return the page with the escape codes of a terminal."""
    out = StringIO()
    console = Console(
        file=out,
        width=max(paper.width, 1),
        force_terminal=True,
        color_system="standard",
        highlight=False,
        legacy_windows=False,
    )
    for text, style in lines(items, paper):
        console.print(Text(text, _STYLES[style]), soft_wrap=True)
    return out.getvalue()
