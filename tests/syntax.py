"""The syntax of the sources, which each process of the tests parses once."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path


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
