"""Names of modules, classes and functions are nouns or verbs, not participles or adverbs."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = ("plugins", "tests", "benchmarks", "examples")
_WORDS = (
    "above absent activated aligned alike along alone apart asked attended biased bounded "
    "busiest carried chosen classified collected compiled compressed counted crossed dealt "
    "deduplicated described dropped eager evaluated every exactly exchanged executed exposed "
    "fastest fewest fitted further fused given greatest grouped guessed halved held hidden "
    "highest idle impossible issued joined kept known largest leaving listed longest lowest met "
    "moved narrowed narrowest nearest needed observed offered only ordered outlined passed "
    "picked placed plausible priced projected quantised quoted ranged recommended recomputed "
    "reduced rejected renamed repeated rounded ruling said scored sent sharded shipped shown "
    "signed slowest sorted sound spared spelled spent spooled staged starved stated stored "
    "summed tell timed together told traded uneven unfused unknown unlike unread useful used "
    "used_by usual vouched waiting wanted whoever written"
)
FORBIDDEN = frozenset(_WORDS.split(" "))
_INNER = ("tests", "benchmarks")  # where functions inside of functions have any name


def definitions(folder: str) -> Iterator[tuple[str, str]]:
    """Yield the place and the name of every module, class and function below *folder*."""
    for path in sorted((ROOT / folder).rglob("*.py")):
        place = str(path.relative_to(ROOT))
        yield place, path.stem
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for node in tree.body if folder in _INNER else ast.walk(tree):
            if isinstance(node, (ast.ClassDef, ast.FunctionDef)) and not _is_fixture(node):
                yield f"{place}:{node.lineno}", node.name


def _is_fixture(node: ast.ClassDef | ast.FunctionDef) -> bool:
    return any("fixture" in ast.unparse(decorator) for decorator in node.decorator_list)


@pytest.mark.parametrize("folder", FOLDERS)
def test_no_name_is_a_participle_or_an_adverb(folder: str) -> None:
    bad = [
        f"{place}: {name}"
        for place, name in definitions(folder)
        if name.strip("_").lower() in FORBIDDEN
    ]
    assert not bad, "\n".join(bad)
