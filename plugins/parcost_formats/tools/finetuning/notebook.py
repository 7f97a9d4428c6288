"""Notebooks of Jupyter as Python: the code of all cells, with the places of its lines."""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator
from typing import Any

from parcost_formats.tools.python_values import PythonText, PythonTextError

_COMMANDS = ("%", "!", "?")  # start a line that is no Python
_OTHER_LANGUAGES = ("%%bash", "%%sh", "%%script", "%%writefile", "%%html", "%%javascript")


def code_of_notebook(text: str) -> str:
    """Return the code of a notebook, "" for any other text."""
    try:
        return "\n".join(_lines(text))
    except PythonTextError:
        return ""


class NotebookText(PythonText):
    """The code of a notebook as a tree; a node has the place of its line in the notebook."""

    def __init__(self, text: str) -> None:
        """Parse the code of a notebook with this *text*.

        Raises:
            PythonTextError: The text is not a notebook, or its code is not Python.
        """
        lines = [*_lines(text)]
        self._places = _find_places(text, lines)
        super().__init__("".join(map(_plain_line, lines)))

    def place(self, node: ast.AST) -> tuple[int, int]:
        """Return the place of the first line of a node in the notebook."""
        line = getattr(node, "lineno", 1)
        return self._places[line - 1] if line <= len(self._places) else (0, 1)


def _lines(text: str) -> Iterator[str]:
    """Yield the lines of the code of a notebook; lines of cells in other languages are empty."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        raise PythonTextError("the notebook is not valid JSON", 0, 1) from None
    for cell in _cells(found):
        if not isinstance(cell, dict) or cell.get("cell_type") != "code":
            continue
        source: Any = cell.get("source", cell.get("input", ""))  # the name in nbformat 3
        parts = source if isinstance(source, list) else [source]
        code = "".join(one for one in parts if isinstance(one, str))
        other = code.lstrip().startswith(_OTHER_LANGUAGES)
        for line in code.splitlines():
            yield "" if other else line


def _cells(notebook: Any) -> Iterator[Any]:
    """Yield the cells of a notebook; up to nbformat 3 they are in worksheets."""
    if isinstance(notebook, dict):
        sheets = notebook.get("worksheets")
        for one in (notebook, *(sheets if isinstance(sheets, list) else ())):
            cells = one.get("cells") if isinstance(one, dict) else None
            yield from cells if isinstance(cells, list) else ()


def _plain_line(line: str) -> str:
    """Return a line of Python for a line of a notebook; shell commands become comments.

    >>> _plain_line("  !pip install trl"), _plain_line("x = 1")
    ('  pass\\n', 'x = 1\\n')
    """
    code = line.lstrip()
    return f"{line[: len(line) - len(code)]}pass\n" if code.startswith(_COMMANDS) else f"{line}\n"


def _find_places(text: str, lines: list[str]) -> list[tuple[int, int]]:
    """Return the places of *lines* in the JSON *text*, in this order."""
    found: list[tuple[int, int]] = []
    at = 0
    for line in lines:
        forms = (json.dumps(line, ensure_ascii=ascii)[1:-1] for ascii in (False, True))
        starts = ((text.find(one, at), len(one)) for one in forms if one)
        start, size = next((pair for pair in starts if pair[0] >= 0), (at, 1))
        found.append((start, start + size))
        at = start + size
    return found
