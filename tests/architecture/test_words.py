"""Docstrings have plain words: short sentences, verbs in front, and no banned phrase.

A word in asterisks is the name of a parameter: ``*what*`` is no clause that begins with "what".
"""

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
    r"|\btold\b|\bspells? (?:it|them)\b|\bso many\b|\bno more than\b|\bthere is none\b"
    r"|\bof whom\b|\bthose who\b|\brefus(?:e|ed|es|al)\b|\bmend(?:s|ed)?\b|\bdoes not mind\b"
    r"|(?<![*<])\bwhat\b(?![*>])",  # a clause in the place of a noun
    re.IGNORECASE,
)
#: First words of a function's docstring that are no verb.
CLAUSES = ("Whether", "What", "Which", "How", "Why", "Where", "When", "If", "Of")
_CODE = re.compile(r"``.*?``|`[^`]*`|:\w+:|\*\*?", re.DOTALL)
_END = re.compile(r"(?<=[.!?;:])\s+|\n\s*\n|\n\s*[-*] |\n\s*>>>.*", re.DOTALL)


def docstring_nodes(folder: Path) -> Iterator[tuple[str, ast.AST, str]]:
    """Yield the place, the node and the text of every docstring below *folder*."""
    for path in sorted(folder.rglob("*.py")):
        tree = parse_file(path)
        for node in (tree, *find_statements(tree)):
            if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)):
                place = f"{path.relative_to(ROOT)}:{getattr(node, 'lineno', 1)}"
                if text := ast.get_docstring(node):
                    yield place, node, text


def docstrings(folder: Path) -> Iterator[tuple[str, str]]:
    """Yield the place and the text of every docstring below *folder*."""
    yield from ((place, text) for place, _, text in docstring_nodes(folder))


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


@pytest.mark.parametrize("folder", FOLDERS)
def test_a_function_begins_with_a_verb(folder: str) -> None:
    found = [
        f"{place}: {text.splitlines()[0]}"
        for place, node, text in docstring_nodes(ROOT / folder)
        if isinstance(node, ast.FunctionDef)
        and not node.name.startswith("test_")  # of contracts: their docstrings are assertions
        and not any("property" in ast.unparse(one) for one in node.decorator_list)
        and text.split()[0] in CLAUSES
    ]
    assert not found, "\n".join(found)


def test_a_sentence_ends_at_a_full_stop_and_code_is_a_word() -> None:
    text = "Return ``a b c`` of *x*. Stop here.\n\n    a table\n\n>>> print(1)\n1"
    assert list(sentences(text)) == ["Return x of xxx.", "Stop here."]
