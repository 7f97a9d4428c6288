"""A file with a word of two million characters, or with 100,000 keys, is recognized in little time."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from importlib.resources import files
from time import process_time
from typing import Any

import pytest

from parcost.engine.session import Session
from parcost_formats.imports.reader import importers_of
from parcost_formats.imports.translation import importer_for
from parcost_formats.tools import tables
from parcost_formats.tools.tables import has_sign, required_word

from .test_renamed_keys import FILES

LONG = "x" * 2_000_000
SECONDS = 2.0  # of a processor; 2.4 to 5 s with one search of the whole text for each sign


def signs(tree: Any) -> Iterator[str]:
    """Yield the texts of a table that may be regular expressions."""
    if isinstance(tree, dict):
        tree = list(tree.values())
    if isinstance(tree, list):
        for one in tree:
            yield from signs(one)
    elif isinstance(tree, str) and "\\" in tree:
        yield tree


def test_each_match_of_a_sign_contains_the_word_that_it_requires() -> None:
    texts = [text for _, text in FILES.values()]
    found = 0
    for table in files(tables).iterdir():
        if not table.name.endswith(".toml"):
            continue
        for sign in signs(tomllib.loads(table.read_text(encoding="utf-8"))):
            try:
                pattern = re.compile(sign, re.MULTILINE)
            except re.error:
                continue  # not every text of a table is a pattern
            for match in filter(None, map(pattern.search, texts)):
                assert required_word(sign) in match[0], sign
                found += 1
    assert found > 50


@pytest.mark.parametrize(
    ("sign", "text", "is_there"),
    [
        (r"\bswift\s+(?:sft|pt)\b", "NPROC=8 swift sft --model x", True),
        (r"\bswift\s+(?:sft|pt)\b", "swift export", False),
        (r"colou?r", "color", True),
        (r"(?:one|two)words", "twowords", True),
        (r"ab[cd]ef|ghi", "ghi", True),
        (r"(?i)launch", "LAUNCH", True),
        (r"abc{0}d", "abd", True),
    ],
)
def test_a_sign_is_found_where_its_pattern_matches(sign: str, text: str, is_there: bool) -> None:
    assert has_sign(sign, text) == is_there == bool(re.search(sign, text))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("tool", "name", "text"),
    [
        ("megatron", "a.sh", f"{FILES['megatron'][1].strip()} --data-path {LONG}\n"),
        ("megatron", "a.sh", f"{FILES['megatron'][1].strip()} --{LONG} 1\n"),
        ("maxtext", "a.yml", FILES["maxtext"][1] + f"foo: {LONG}\n"),
        ("maxtext", "a.yml", FILES["maxtext"][1] + "".join(f"k{i}: {i}\n" for i in range(10**5))),
    ],
    ids=["value", "flag", "word", "keys"],
)
def test_a_large_file_is_recognized_in_little_time(tool: str, name: str, text: str) -> None:
    importers = importers_of(Session())
    importer_for(*FILES[tool], importers)  # tables are loaded once
    start = process_time()
    assert importer_for(name, text, importers) is importers[tool]
    assert process_time() - start < SECONDS
