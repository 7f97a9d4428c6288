"""Names of modules, classes, functions and methods are nouns of the field or standard verbs."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

#: Folders whose names are read.
FOLDERS = ("core/parcost",)

#: Participles, adverbs, adjectives and words of our own that say nothing by themselves.
_WORDS = """
alone answered apart asked blamed bounded busy called claimed counted defined endless even
explained failing fitted found fullest given gone grouped hashed held judged known laid_out
lifted listed mentioned misfit named noted paired parsed picked pipelined printed probed
program ranked referred rejected released replayed ruling said scheduled scored settled
significant slower sound spelled stack stacked swept taken tell timed told traced unbounded
unfit unsaid unvalued used used_by varying waiting wanted whoever within written
"""
FORBIDDEN = frozenset(_WORDS.split())


def definitions(path: Path) -> Iterator[tuple[str, int]]:
    """Yield the name of a module and of what it defines, properties excepted, with its line."""
    yield path.parent.name if path.stem == "__init__" else path.stem, 1
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ClassDef):
            yield node.name, node.lineno
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            decorators = {ast.unparse(decorator) for decorator in node.decorator_list}
            if not decorators & {"property", "cached_property"}:
                yield node.name, node.lineno


def words(name: str) -> str:
    """Return a name in lower case, with underscores between its words.

    >>> words("PairTimes"), words("_held")
    ('pair_times', 'held')
    """
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name.strip("_")).lower()


@pytest.mark.parametrize("folder", FOLDERS)
def test_names_are_nouns_and_verbs(folder: str) -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line}: {name}"
        for path in sorted((ROOT / folder).rglob("*.py"))
        for name, line in definitions(path)
        if words(name) in FORBIDDEN
    ]
    assert not found, "\n".join(found)
