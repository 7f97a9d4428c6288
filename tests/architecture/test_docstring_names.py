"""Docstrings name modules, functions and attributes that exist."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import parcost

from ..syntax import parse_file
from .test_words import docstring_nodes

ROOT = Path(__file__).parents[2]
FOLDERS = {"core": "core", "plugins": "plugins", "grammar": "grammar"}
_ROLE = re.compile(r":(?:mod|func|class|meth|data|attr|exc):`~?([\w.]+)`")
_QUOTED = re.compile(r"``(parcost(?:_\w+)?(?:\.\w+)+|\w+(?:\.py)?)``")
_TEXT = re.compile(r'"""(?:.|\n)*?"""')
#: Names of other programs, whose subject the sentence states, and parts of file names.
ELSEWHERE = {"fsdp_sft_trainer", "report_memory", "setup_experiment.py", "sft_trainer"}
#: Groups of entry points, which have the form of modules.
GROUPS = {"parcost.commands", "parcost.executors"}


def _module(path: Path, folder: str) -> str:
    parts = path.relative_to(ROOT / folder).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def modules() -> dict[str, Path]:
    """Return the files of all modules of the product, by their dotted names."""
    return {
        _module(path, folder): path
        for folder in FOLDERS
        for path in sorted((ROOT / folder).rglob("*.py"))
    }


@cache
def names(path: Path) -> frozenset[str]:
    """Return the names that a module defines at any depth, or imports."""
    found: set[str] = set()
    for node in ast.walk(parse_file(path)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            found.add(node.name)
        elif isinstance(node, (ast.Name, ast.Attribute)) and isinstance(node.ctx, ast.Store):
            found.add(node.id if isinstance(node, ast.Name) else node.attr)
        elif isinstance(node, ast.alias):
            found.add((node.asname or node.name).partition(".")[0])
    return frozenset(found)


def exists(target: str) -> bool:
    """Return whether *target* names a module, a part of one, or a name of any module."""
    parts = target.split(".")
    if parts[0] in sys.stdlib_module_names or target in GROUPS or target in modules():
        return True
    if parts[0] == "parcost" and parts[-1] in parcost.__all__:
        return True
    for end in range(len(parts) - 1, 0, -1):
        if home := modules().get(".".join(parts[:end])):
            return names(home).issuperset(parts[end:])
    return any(names(path).issuperset(parts) for path in modules().values())


@cache
def words() -> frozenset[str]:
    """Return the words of code, tables and specs: docstrings are left out."""
    found: set[str] = {part for name in modules() for part in name.split(".")}
    for folder in (*FOLDERS, "specs"):
        for path in (ROOT / folder).rglob("*"):
            if path.suffix in (".py", ".toml", ".par"):
                found.update(re.findall(r"\w+", _TEXT.sub("", path.read_text(encoding="utf-8"))))
    return frozenset(found)


def targets() -> Iterator[tuple[str, str, bool]]:
    """Yield the place and the name of each reference; and whether it is a role or a path."""
    for folder in FOLDERS:
        for place, node, text in docstring_nodes(ROOT / folder):
            yield from ((place, match[1], True) for match in _ROLE.finditer(text))
            if isinstance(node, ast.Module):
                for match in _QUOTED.finditer(text):
                    yield place, match[1], "." in match[1] and match[1][-3:] != ".py"


def test_roles_and_paths_name_what_exists() -> None:
    bad = [f"{p}: {name}" for p, name, dotted in targets() if dotted and not exists(name)]
    assert not bad, "\n".join(bad)


def test_names_in_code_style_are_in_the_code() -> None:
    bad = [
        f"{place}: {name}"
        for place, name, dotted in targets()
        if not dotted and "_" in name.strip("_") and name not in words() | ELSEWHERE
    ]
    assert not bad, "\n".join(bad)


@pytest.mark.parametrize(
    ("target", "found"),
    [
        ("parcost.engine.overlap.hide", True),
        ("parcost.engine.overlap.hides", False),
        ("parcost.engine.overlaps", False),
        ("parcost.Study", True),
        ("concurrent.futures.Executor", True),
        ("SerialWork.nothing_such", False),
    ],
)
def test_names_are_found_in_their_modules(target: str, found: bool) -> None:
    assert exists(target) == found
