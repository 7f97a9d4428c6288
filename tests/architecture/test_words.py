"""Docstrings have plain words: sentences of twenty words at most, and no banned phrase."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from ..syntax import find_statements, parse_file

ROOT = Path(__file__).parents[2]
FOLDERS = ("core", "plugins", "grammar")
LONGEST = 20  # words of a sentence
BANNED = re.compile(
    r"\bSay (?:whether|where|so|how|that)\b|\b(?:whoever|(?:no|some|any|every)body)\b"
    r"|\bwhat is wrong with\b|\btold of\b|\bspells? (?:it|them)\b",
    re.IGNORECASE,
)
_CODE = re.compile(r"``.*?``|`[^`]*`|:\w+:|\*\*?", re.DOTALL)
_END = re.compile(r"(?<=[.!?;:])\s+|\n\s*\n|\n\s*[-*] |\n\s*>>>.*", re.DOTALL)


def docstrings(folder: Path) -> Iterator[tuple[str, str]]:
    """Yield the place and the text of every public docstring below *folder*."""
    for path in sorted(folder.rglob("*.py")):
        tree = parse_file(path)
        for node in (tree, *find_statements(tree)):
            if not isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)):
                continue
            name = getattr(node, "name", "")
            text = ast.get_docstring(node)
            if text and not name.startswith("_"):
                yield f"{path.relative_to(ROOT)}:{getattr(node, 'lineno', 1)}", text


def sentences(text: str) -> Iterator[str]:
    """Yield the sentences of the prose of *text*: without tables, examples and sections."""
    prose = [block for block in re.split(r"\n\s*\n", text) if not _is_literal(block)]
    for block in prose:
        for sentence in _END.split(block):
            yield " ".join(_CODE.sub("x", sentence).split())


def _is_literal(block: str) -> bool:
    return any(line.startswith(("    ", ">>>", "Raises:")) for line in block.splitlines())


@pytest.mark.parametrize("folder", FOLDERS)
def test_a_sentence_has_twenty_words_at_most(folder: str) -> None:
    long = [
        f"{place}: {len(sentence.split())} words: {sentence}"
        for place, text in docstrings(ROOT / folder)
        for sentence in sentences(text)
        if len(sentence.split()) > LONGEST
    ]
    assert not long, "\n".join(long)


@pytest.mark.parametrize("folder", FOLDERS)
def test_no_phrase_is_banned(folder: str) -> None:
    found = [
        f"{place}: {match[0]}"
        for place, text in docstrings(ROOT / folder)
        for match in BANNED.finditer(text)
    ]
    assert not found, "\n".join(found)


def test_a_sentence_ends_at_a_full_stop_and_code_is_a_word() -> None:
    text = "Return ``a b c`` of *x*. Stop here.\n\n    a table\n\n>>> print(1)\n1"
    assert list(sentences(text)) == ["Return x of xxx.", "Stop here."]
