"""Escapes of unsafe characters in external text. Terminals execute control characters, and
characters that reorder or hide letters mislead readers.

A name in a spec, a path or an argument may contain either. Each output format escapes them in its
own notation: :func:`escape_matches`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from shlex import quote

# What `str.isprintable` accepts is safe, and so are the blanks that lay a text out.
_SUSPECT = re.compile(r"[^\x20-\x7e]")
BLANKS = "\n\t"
_LONGEST_NAME = 255  # characters, as of a file
_LONG_NAME = re.compile(rf"[\w-]{{{_LONGEST_NAME + 1},}}")


def escape_line(text: str) -> str:
    r"""Return *text* in one line, with control characters escaped.

    >>> print(escape_line("\x1b[2J\n"))
    \x1b[2J\n
    """
    return text if text.isprintable() else escape_matches(text, _escape, "")


def cut_names(text: str) -> str:
    """Return *text* with names longer than any file name shortened in the middle.

    >>> cut_names(f"no block `{'ab' * 5000}`: 2 names")
    'no block `abababababababababababababababababababab...abababababababababab`: 2 names'
    """
    if len(text) <= _LONGEST_NAME:
        return text
    return _LONG_NAME.sub(lambda name: f"{name[0][:40]}...{name[0][-20:]}", text)


def screen_line(text: str) -> str:
    """Return *text* in one line for a page or a message: escaped, with very long names
    shortened.
    """
    return escape_line(cut_names(text))


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
    return text if text.isprintable() else escape_matches(text, _escape, BLANKS)


def escape_matches(text: str, escape: Callable[[str], str], kept: str) -> str:
    """Return *text* with *escape* applied to each unsafe character, except those *kept*."""

    def replace(match: re.Match[str]) -> str:
        character = match[0]
        return character if character.isprintable() or character in kept else escape(character)

    return _SUSPECT.sub(replace, text)


def _escape(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")
