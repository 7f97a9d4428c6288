"""Pages and sentences, drawn to the width of the output stream."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterable
from typing import TYPE_CHECKING, TextIO

from parcost_apps.cli.colors import remove_color
from parcost_apps.cli.streams import put, results

if TYPE_CHECKING:
    from parcost.contract.page import Item, Paper

_PIPED_WIDTH = 80
_MOST_DIGITS = 18  # of a number of columns
_WIDEST = 1000
_SENTENCE = re.compile(r"(error|warning)\b| *= (note|help): ")  # what no program reads line by line
_CODE = re.compile(r"`[^`]{,40}`")
_JOINED = "\0"  # a space at which no line is broken
_HANGING = 2


def is_terminal(stream: TextIO) -> bool:
    """Return whether *stream* is a terminal, or ``FORCE_COLOR`` is set."""
    return stream.isatty() or bool(os.environ.get("FORCE_COLOR"))


def wants_color(stream: TextIO) -> bool:
    """Return whether *stream* may be coloured: see no-color.org."""
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return False
    return is_terminal(stream)


def paper(stream: TextIO | None = None) -> Paper:
    """Return the width, color and encoding of pages on *stream*; ``COLUMNS`` sets the width."""
    from parcost.contract.page import Paper

    stream = stream or results()
    terminal = is_terminal(stream)
    width = shutil.get_terminal_size((_PIPED_WIDTH, 24)).columns if terminal else _columns()
    encoding = (getattr(stream, "encoding", None) or "ascii").lower().replace("-", "")
    unicode = terminal and encoding.startswith("utf")
    return Paper(width=min(width, _WIDEST), color=wants_color(stream), unicode=unicode)


def _columns() -> int:
    columns = os.environ.get("COLUMNS", "")
    if not columns.isdecimal() or not columns.strip("0"):
        return _PIPED_WIDTH
    return int(columns) if len(columns) <= _MOST_DIGITS else _WIDEST


def show(items: Iterable[Item]) -> None:
    """Draw a page on stdout."""
    from parcost_formats.rendering.text import draw

    put(draw(list(items), paper()))


def wrap_sentences(text: str, stream: TextIO, *, remarks: bool = False) -> str:
    """Return diagnostics with their sentences wrapped to the width of *stream*, and code unchanged.

    With *remarks* every line is wrapped. Diagnostics are wrapped only for a terminal or with
    ``COLUMNS`` set: scripts search for whole sentences.
    """
    if not (remarks or stream.isatty() or os.environ.get("COLUMNS")):
        return text
    width = paper(stream).width
    return "\n".join(
        part
        for line in text.split("\n")
        for part in (
            _wrap(line, width) if remarks or _SENTENCE.match(remove_color(line)) else [line]
        )
    )


def _wrap(line: str, width: int) -> list[str]:
    """Return *line* wrapped to *width* characters; all lines but the first are indented."""
    words = _CODE.sub(lambda m: m[0].replace(" ", _JOINED), line.strip()).split(" ")
    plain = remove_color(line)
    margin = " " * (len(plain) - len(plain.lstrip()))
    lines = [margin + words[0]]
    deeper = margin + " " * (len("= help: ") if words[0] == "=" else _HANGING)
    for word in words[1:]:
        longer = f"{lines[-1]} {word}"
        if len(remove_color(longer)) <= width:
            lines[-1] = longer
        else:
            lines.append(deeper + word)
    return [line.replace(_JOINED, " ") for line in lines]
