"""Escapes: external text in a form that terminals and readers cannot misinterpret.

Terminals obey control characters, and characters that reorder or hide letters mislead readers. A
name in a spec, a path or an argument may hold either. Each output format escapes them in its own
notation.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from shlex import quote

# What `str.isprintable` accepts is safe, and so are the blanks that lay a text out.
_SUSPECT = re.compile(r"[^\x20-\x7e]")
_BLANKS = "\n\t"
_COLOUR = re.compile(r"(\x1b\[[\d;]*m)")
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def escape_line(text: str) -> str:
    r"""Return *text* in one line, with control characters escaped.

    >>> print(escape_line("\x1b[2J\n"))
    \x1b[2J\n
    """
    return text if text.isprintable() else _escape_matches(text, _escape, "")


def quote_word(text: str) -> str:
    r"""Return *text* quoted as one word of a shell, in one line.

    >>> print(quote_word("a b"), quote_word("a\nb"))
    'a b' $'a\nb'
    """
    if text.isprintable():
        return quote(text)
    return "$'" + text.encode("unicode_escape").decode().replace("'", "\\'") + "'"


def escape_lines(text: str) -> str:
    r"""Return *text* with all characters escaped that are neither printable nor line ends.

    >>> escape_lines("a\u202eb\n") == "a\\u202eb\n"
    True
    """
    return text if text.isprintable() else _escape_matches(text, _escape, _BLANKS)


def escape_keeping_color(text: str) -> str:
    r"""Return *text* escaped like :func:`escape_lines`, except for colour codes.

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


def escape_json(text: str) -> str:
    r"""Return a JSON text with the same strings, in which special characters are JSON escapes.

    >>> print(escape_json('{"name": "a\u202e"}'))
    {"name": "a\u202e"}
    """
    return text if text.isprintable() else _escape_matches(text, _escape_json, _BLANKS)


def csv_cell(text: str) -> str:
    r"""Return a text as a cell that a spreadsheet does not evaluate as a formula.

    >>> print(csv_cell("=1+1"), csv_cell("@a"), csv_cell("tp8"))
    '=1+1 '@a tp8
    """
    return escape_line("'" + text if text.startswith(_FORMULA) else text)


def _escape_matches(text: str, escape: Callable[[str], str], kept: str) -> str:
    def replace(match: re.Match[str]) -> str:
        character = match[0]
        return character if character.isprintable() or character in kept else escape(character)

    return _SUSPECT.sub(replace, text)


def _escape(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")


def _escape_json(character: str) -> str:
    units = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[i] << 8 | units[i + 1]:04x}" for i in range(0, len(units), 2))
