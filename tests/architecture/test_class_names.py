"""A class name has one meaning: no two classes of the package share one."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

from ..syntax import find_statements, parse_file

ROOT = Path(__file__).parents[2]


def test_no_two_classes_share_a_name() -> None:
    places = defaultdict(list)
    for folder in ("core", "plugins", "grammar", "specs"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            for node in find_statements(parse_file(path)):
                if isinstance(node, ast.ClassDef):
                    places[node.name].append(f"{path.relative_to(ROOT)}:{node.lineno}")
    assert len(places) > 300
    assert {name: where for name, where in places.items() if len(where) > 1} == {}
