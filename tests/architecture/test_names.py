"""Names of modules, classes, functions and methods are nouns of the field or standard verbs."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

#: Participles, adverbs, adjectives and words of our own that say nothing by themselves.
_WORDS = """
above absent activated aligned alone along answered apart asked attended biased blamed bounded
busy called careful carried charged claimed classified collected compared compiled compressed
computed contributed counted crossed dealt deduplicated defined doubled dropped eager endless
even every exactly exchanged executed explained exposed failed failing fewest fitted found
fullest further fused given gone greatest grouped guessed halved hashed heard held hidden
highest impossible issued joined judged known laid_out largest leaving lifted listed longest
lowest meant mentioned met misfit moved named narrowed narrowest near needed noted nowhere
observed offered only ordered outlined paired parsed passed picked placed plausible pressed
priced printed probed program projected quantised quoted ranged ranked recommended recomputed
reduced referred rejected released renamed repeated replayed rounded ruling said scheduled
scored searched sent settled shipped shown signed significant slowed slower slowest sorted
sound spared spelled spooled stack stacked staged starved stated stored studied summed swept
taken tell timed together told traced traded unbounded uneven unfit unfused unread unsaid
unvalued used used_by useful usual varying visited vouched waiting wanted whoever within
written
"""
#: More of them, which the core still has.
_MORE = """
alike busiest chosen described evaluated fastest idle kept nearest sharded spent unknown unlike
"""
FORBIDDEN = frozenset(_WORDS.split())
FOLDERS = {"core/parcost": FORBIDDEN} | dict.fromkeys(
    ("plugins", "tests", "benchmarks", "examples"), FORBIDDEN.union(_MORE.split())
)


def definitions(path: Path) -> Iterator[tuple[str, int]]:
    """Yield the name and the line of a module, its classes and its functions.

    Properties and fixtures are left out: they are what they return.
    """
    yield path.parent.name if path.stem == "__init__" else path.stem, 1
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ClassDef):
            yield node.name, node.lineno
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            decorators = " ".join(map(ast.unparse, node.decorator_list))
            if "property" not in decorators and "fixture" not in decorators:
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
        if words(name) in FOLDERS[folder]
    ]
    assert not found, "\n".join(found)
