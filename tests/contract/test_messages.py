"""Messages of rules are templates: what stands in their braces is an input, and nothing else."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from string import Formatter
from typing import Any

from ..rows import try_each
from ..syntax import parse_file

ROOT = Path(__file__).parents[2]
MODULES = sorted((ROOT / "plugins").rglob("*.py"))
_RULE = re.compile(r"\b(?:Check|RULES\.check)\(")
MODULES = [path for path in MODULES if _RULE.search(path.read_text(encoding="utf-8"))]
TEMPLATES = ("message", "help", "notes")
OPTIONS = {"inputs", "help", "notes", "factor", "verdict", "reads"}  # of `Rulebook.check`


def tables() -> Mapping[str, Mapping[str, Any]]:
    """Return the table of each rule that a rulebook has, by id."""
    found: dict[str, Mapping[str, Any]] = {}
    for path in sorted((ROOT / "plugins").rglob("*rules.toml")):
        found |= tomllib.loads(path.read_text(encoding="utf-8"))
    return {id: table for id, table in found.items() if "severity" in table}


TABLES = tables()


def templates(path: Path) -> Iterator[tuple[ast.AST, str, set[str] | None]]:
    """Yield the templates of the rules in a module, and the inputs if they are all spelled out."""
    for node in ast.walk(parse_file(path)):
        if not isinstance(node, ast.Call) or not _RULE.match(f"{ast.unparse(node.func)}("):
            continue
        given = {keyword.arg: keyword.value for keyword in node.keywords}
        names = inputs(given.get("inputs"))
        for name in TEMPLATES:
            for text in texts(given.get(name)):
                yield node, text, names if isinstance(node.func, ast.Name) else None
        if isinstance(node.func, ast.Attribute) and isinstance(node.args[0], ast.Constant):
            table = TABLES[str(node.args[0].value)]
            named = None if names is None else {*names, *map(str, given)} - OPTIONS
            help = "" if "help" in given else table.get("help", "")
            for text in (table["message"], help):
                yield node, text, named


def inputs(node: ast.expr | None) -> set[str] | None:
    if node is None:
        return set()
    if isinstance(node, ast.Dict) and all(isinstance(key, ast.Constant) for key in node.keys):
        return {str(key.value) for key in node.keys if isinstance(key, ast.Constant)}
    return None


def texts(node: ast.expr | None) -> Iterator[str]:
    """Yield the strings that an expression may come to; what it fills in itself is left out."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    elif isinstance(node, ast.JoinedStr):
        yield "".join(str(v.value) for v in node.values if isinstance(v, ast.Constant))
    elif node is not None and not isinstance(node, (ast.Call, ast.Compare)):
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.expr):
                yield from texts(child)


@try_each("path", MODULES, ids=lambda p: f"{p.parent.name}/{p.stem}")
def test_every_message_of_a_rule_can_be_filled_in(path: Path) -> None:
    for node, text, given in templates(path):
        named = [name for _, name, _, _ in Formatter().parse(text) if name is not None]
        for name in named:
            where = f"line {getattr(node, 'lineno', 0)}: {{{name}}} in {text!r}"
            assert name.isidentifier(), where
            assert given is None or name in given, where


def test_every_template_of_a_rulebook_has_names_and_doubled_braces() -> None:
    for id, table in TABLES.items():
        for text in (table.get("message", ""), table.get("help", "")):
            names = [name for _, name, _, _ in Formatter().parse(text) if name is not None]
            assert all(name.isidentifier() for name in names), f"{id}: {text}"


@try_each("path", MODULES, ids=lambda p: f"{p.parent.name}/{p.stem}")
def test_a_block_that_a_rule_spells_out_has_doubled_braces(path: Path) -> None:
    """Rows of rules are no calls of Check, and their texts are templates all the same."""
    tree = parse_file(path)
    prose = {id(n.value) for n in ast.walk(tree) if isinstance(n, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in prose:
            single = node.value.replace("{{", "").replace("}}", "")
            assert "{ " not in single, f"line {node.lineno}: {node.value!r}"
