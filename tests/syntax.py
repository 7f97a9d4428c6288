"""The sources: names by their lines, and syntax, which each process of the tests parses once."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

_DEFINITION = re.compile(r"^((?:[ \t]*@.*\n)*)[ \t]*(?:class|def|async def) +(\w+)", re.MULTILINE)


def find_names(path: Path) -> Iterator[tuple[str, int, str]]:
    """Yield the decorators in the lines before each class and function, its line and its name.

    Parsing all files takes 4 s. Texts that have such lines too are included.
    """
    text = path.read_text(encoding="utf-8")
    line, start = 1, 0
    for found in _DEFINITION.finditer(text):
        line, start = line + text.count("\n", start, found.start(2)), found.start(2)
        yield found[1], line, found[2]


@cache
def parse_file(path: Path) -> ast.Module:
    """Return the syntax of a file, which nobody changes."""
    return ast.parse(path.read_text(encoding="utf-8"))


def find_statements(tree: ast.AST) -> Iterator[ast.stmt]:
    """Yield every statement of a tree, however deep, and look into no expression."""
    for name in ("body", "orelse", "handlers", "finalbody", "cases"):
        inside = getattr(tree, name, ())
        for child in inside if isinstance(inside, list) else ():
            if isinstance(child, ast.stmt):
                yield child
            yield from find_statements(child)
