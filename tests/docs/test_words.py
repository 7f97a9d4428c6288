"""No sentence of an older way of writing is left: in sources, pages, messages and documents."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from parcost.plugins.discovery import load

ROOT = Path(__file__).parents[2]
FOLDERS = (
    "core",
    "plugins",
    "grammar",
    "specs",
    "docs",
    "examples",
    "benchmarks",
    ".ci",
    ".github",
)
KINDS = {".py", ".toml", ".md", ".par", ".js", ".html", ".j2", ".css", ".ipynb", ".yml", ".lark"}
#: Parts of sentences that were rewritten, each as it stood.
GONE = [
    "What to ask plugins for every layout",
    "tells which device is busiest",
    "average share of a meeting",
    "with another message behind each",
    "how many of the layers are what is expected",
    "of the case that holds",
    "the part in which each row is left out",
    "what the results are drawn on",
    "A shard is none, or shards",
    "windows that have guests",
    "ranks that trade the sequence",
    "` has no width",
    "nothing is narrow",
    "prices every operator",
    "does not divide is rejected",
    "is priced and marked",
    "why others lose",
    "Mixtures of experts are off by",
    "What people who train large models ask",
    "It runs, and it fits",
    "It is rejected by",
    "what it would take if it ran",
    "slowdown left out",
    "the busiest, by cause",
    "the fullest, in ",
    "--figures chooses",
    "no room for tokens",
    "What every point has in common",
    "What each point costs",
    "does not have by our table",
    "is no whole job",
    "what changes the cost and sets nothing",
    "is no spec, and no file",
    "it is set under a condition",
    "nothing here reads it",
    "the family of this flavor is not known",
    "is worked out",
    "how fast is not said",
    "The first again",
    "A value that a layout does not name",
    "The step of the first stays the same",
    "few training frameworks have them",
    "of the others nothing is known",
    "below is the last one",
    "A setting is of the job",
    "No point has less of both",
    "occurs once per step is left out",
    "Answer an editor, which starts it",
    "to mend it",
    "counts as written",
    "without what is done once per step",
    "core subset of the rows",
    "stands here a second time",
    "nothing computes beyond its peak",
    "whatever N is",
    "where traffic hides under nothing",
    "the process that evaluates",
    "for want of room",
]
_BREAK = re.compile(r'\s*"\s*\n\s*[rf]?"|\s*\n\s*(?:#:? ?|[-*] )?|\s+')


def flat(text: str) -> str:
    """Return *text* in one line: texts that stand in parts are joined."""
    return _BREAK.sub(" ", text)


def sources() -> list[Path]:
    """Return every text that a user may read, and the modules that make one."""
    found = [ROOT / "README.md", ROOT / "CHANGELOG.md", ROOT / "pyproject.toml"]
    for folder in FOLDERS:
        found += [p for p in (ROOT / folder).rglob("*") if p.suffix in KINDS]
    return [path for path in found if path.is_file() and not path.name.endswith(".min.js")]


@pytest.mark.slow
def test_no_sentence_of_the_list_is_left() -> None:
    left = []
    for path in sources():
        text = flat(path.read_text(encoding="utf-8", errors="ignore"))
        left += [f"{path.relative_to(ROOT)}: {gone}" for gone in GONE if gone in text]
    assert not left, "\n".join(left)


@pytest.mark.parametrize(
    "text",
    [
        'message="it is set "\n        "under a condition"',
        "it is set\n   under a condition",
        "# it is set\n# under a condition",
    ],
)
def test_a_sentence_is_found_in_parts(text: str) -> None:
    assert "it is set under a condition" in flat(text)


def test_lines_of_the_changelog_have_at_most_120_characters() -> None:
    lines = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8").splitlines()
    assert not [number for number, line in enumerate(lines, 1) if len(line) > 120]


#: Words that no description of an attribute begins with: its noun would be missing.
FRAGMENT = re.compile(
    r"(?:of|that|which|what|how|who|whose|when|where|whether|to|by|at|as|from|beside|behind|per|"
    r"held|sent|issued|achieved|likewise|under|these|those|they)\b"
)


def test_descriptions_of_attributes_begin_with_a_noun() -> None:
    types = load().blocks.values()
    fragments = [
        f"{type_.kind}.{name}: {field.doc}"
        for type_ in types
        for name, field in type_.fields.items()
        if FRAGMENT.match(field.doc)
    ]
    assert not fragments, "\n".join(fragments)
