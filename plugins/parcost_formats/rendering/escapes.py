"""Escapes of JSON and of spreadsheets."""

from __future__ import annotations

from parcost.language.escapes import BLANKS, escape_line, escape_matches

_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def escape_json(text: str) -> str:
    r"""Return a JSON text with the same strings, in which special characters are JSON escapes.

    >>> print(escape_json('{"name": "a\u202e"}'))
    {"name": "a\u202e"}
    """
    return text if text.isprintable() else escape_matches(text, _escape_json, BLANKS)


def csv_cell(text: str) -> str:
    r"""Return a text as a cell that a spreadsheet does not evaluate as a formula.

    >>> print(csv_cell("=1+1"), csv_cell("@a"), csv_cell("tp8"))
    '=1+1 '@a tp8
    """
    return escape_line("'" + text if text.startswith(_FORMULA) else text)


def _escape_json(character: str) -> str:
    units = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[i] << 8 | units[i + 1]:04x}" for i in range(0, len(units), 2))
