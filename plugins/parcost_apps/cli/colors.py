"""Text with the colors of a terminal."""

from __future__ import annotations

import re

from parcost.language.escapes import escape_lines

_COLOUR = re.compile(r"(\x1b\[[\d;]*m)")


def escape_keeping_color(text: str) -> str:
    r"""Return *text* escaped like ``escape_lines``, except for colour codes.

    >>> escape_keeping_color("\x1b[1mstep\x1b[0m\x1b[2J") == "\x1b[1mstep\x1b[0m\\x1b[2J"
    True
    """
    if "\x1b" not in text:
        return escape_lines(text)
    parts = _COLOUR.split(text)
    return "".join(part if i % 2 else escape_lines(part) for i, part in enumerate(parts))


def remove_color(text: str) -> str:
    """Return *text* without the colours of a terminal.

    >>> remove_color("\x1b[1mstep\x1b[0m")
    'step'
    """
    return _COLOUR.sub("", text)
