"""Names of modules, classes and functions are nouns of the field or standard verbs."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from ..syntax import find_names, find_statements, parse_file

ROOT = Path(__file__).parents[2]
FOLDERS = ("core/parcost", "grammar", "plugins", "tests", "benchmarks", "examples")
#: Participles, adverbs, adjectives and words of our own, which do not name a thing or an action.
_NAMES = """
above absent accepted activated aligned alike alone along answered apart asked at attended attending
biased blamed bounded busiest busy called careful carried charged checked chosen claimed classified
collected combined compared compiled completed composed compressed computed contributed converted
counted covering crooked crossed dealt deduplicated defined described died dotted doubled dropped
eager encoded endless escaped evaluated even every exactly exchanged excluded executed expanded
explained exported exposed failed failing fastest fewest filled finished fitted forget formatted
found fullest further fused given gone greatest grouped guarded guessed halved hashed heard held
hidden highest idle imported impossible issued joined judged kept known laid_out largest leaving
lifted listed longest lowest made meant measured mentioned merged met misfit moved multiplied named
narrowed narrowest near nearest needed negated nominal noted nowhere observed of offered only opened
ordered outlasting outlined paired parsed parted passed picked placed plausible pressed priced
printed probed program projected published qualified quantised quoted raised ranged ranked
recommended recomputed reduced referred rejected released renamed repeated replaced replayed rounded
ruling rulings said scheduled scored searched sent settle settled sharded shipped shortened shown
signed significant slowed slower slowest sorted sound spaced spanned spared spelled spent spooled
stack stacked staged starved stated stored studied summed swept taken tell timed together told
traced traded typed unbounded undecided uneven unexpected unfit unfused unknown unlike unnamed
unread unrolled unsaid unvalued used used_by useful usual varying visited vouched waiting wanted
whoever within wrapped written
"""
FORBIDDEN = frozenset(_NAMES.split())
#: Words that no name of a test has: a test is named by what it asserts.
VAGUE = {
    "anybody",
    "asked",
    "everybody",
    "nobody",
    "said",
    "somebody",
    "spelled",
    "told",
    "whoever",
}
_FREE = ("property", "fixture")  # decorators of values, which any word may name
PRODUCT = ("core/parcost", "grammar", "plugins")

#: Words in -ed and -ing that a name of a function may begin or end with, by their reason.
_WORDS = {
    "noun of the field": """
        anchoring averaging binding clipping feed folding mapping need padding ranking rating ring
        rounding routing scaling serving sharding speed streaming training zeroing
    """,
    "noun": "heading setting string warning",
    "name of a tool": "deepspeed mindspeed sed",
}
#: Words in -ed and -ing that a noun follows.
_ADJECTIVES = {
    "of the field": """
        allocated attended closed colored compiled compressed executed exposed fitted fused gated
        gathered nested normed offloaded padded predicted published quantised received recomputed
        relayed reserved routed saved scaled shared signed staged staging timed trained unsharded updated
        visited waiting windowed
    """,
    "state of a value or a file": """
        added assigned computed copied derived dotted excluded fixed ignored imported missing
        observed ordered prefixed replaced required resolved shipped stated stored unclosed unpacked
        unquoted unsupported unused used varying
    """,
    "of a calculation": "accumulating anchored closing covered failing projected",
}
NOUNS = frozenset(" ".join(_WORDS.values()).split())
ADJECTIVES = frozenset(" ".join(_ADJECTIVES.values()).split())
#: Names that others chose or import, by their reason.
NAMES = {
    "data_received": "name of asyncio",
    "freed_by_loss": "public name of the shared formulas",
    "get_tokens_unprocessed": "name of Pygments",
    "holding_of": "public name of the shared formulas",
    "launch_blocking": "name of a CUDA variable",
    "measured": "public name of the contract",
    "missing": "public name of the contract",
    "rejected": "public name of the contract",
    "saved_by_loss": "public name of the shared formulas",
    "schedule_named": "public name of the contract",
}
#: Beginnings of questions, which end in a participle: ``is_shared``.
_QUESTIONS = ("is_", "may_be_", "test_")
LONGEST, MOST_LONG = 60, 8  # lines of a function; functions that have more
_SHORT = ("at", "forget", "note", "of")


def definitions(folder: str) -> Iterator[tuple[str, str]]:
    """Yield the place and the name of every module, class and function below *folder*."""
    for path in sorted((ROOT / folder).rglob("*.py")):
        place = str(path.relative_to(ROOT))
        yield place, path.parent.name if path.stem == "__init__" else path.stem
        for decorators, line, name in find_names(path):
            if not any(word in decorators for word in _FREE):
                yield f"{place}:{line}", name


def words(name: str) -> str:
    """Return a name in lower case, with underscores between its words, without ``test_``.

    >>> words("PairTimes"), words("_held"), words("test_sound")
    ('pair_times', 'held', 'sound')
    """
    text = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name.strip("_")).lower()
    return text.removeprefix("test_")


@pytest.mark.parametrize("folder", FOLDERS)
def test_names_are_nouns_and_verbs(folder: str) -> None:
    bad = [f"{place}: {name}" for place, name in definitions(folder) if words(name) in FORBIDDEN]
    assert not bad, "\n".join(bad)


def functions() -> Iterator[tuple[str, str]]:
    """Yield the place and the name of every function of the product, properties included."""
    for path in (path for folder in PRODUCT for path in sorted((ROOT / folder).rglob("*.py"))):
        for statement in find_statements(parse_file(path)):
            if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef)):
                place = f"{path.relative_to(ROOT)}:{statement.lineno}"
                yield place, statement.name.strip("_")


def participle(name: str) -> str:
    """Return the word that makes a name of a function a participle, "" if none does.

    >>> participle("find_shared"), participle("shared_link"), participle("sharing_of")
    ('shared', '', 'sharing')
    """
    parts = name.split("_")
    for word, allowed in ((parts[-1], NOUNS), (parts[0], NOUNS | ADJECTIVES)):
        if word in _SHORT and len(parts) == 1:
            return word
        if word.endswith(("ed", "ing")) and word not in allowed:
            return word
    return ""


def test_no_function_is_named_by_a_participle() -> None:
    bad = [
        f"{place}: {name}: `{word}`"
        for place, name in functions()
        if name not in NAMES and not name.startswith(_QUESTIONS) and (word := participle(name))
    ]
    assert not bad, "\n".join(bad)


def test_every_word_that_is_allowed_is_used() -> None:
    names = {name for _, name in functions()}
    ends = {word for name in names for word in (name.split("_")[0], name.split("_")[-1])}
    assert ends >= NOUNS | ADJECTIVES, (NOUNS | ADJECTIVES) - ends
    assert names >= NAMES.keys(), NAMES.keys() - names


def test_tests_are_named_by_their_assertions() -> None:
    bad = [
        f"{place}: {name}"
        for place, name in definitions("tests")
        if VAGUE.intersection(words(name).split("_"))
    ]
    assert not bad, "\n".join(bad)


def test_few_functions_are_long() -> None:
    """Commands are long by their parameters and their help."""
    long = [
        f"{path.relative_to(ROOT)}:{statement.lineno}: {statement.name}"
        for folder in PRODUCT
        for path in sorted((ROOT / folder).rglob("*.py"))
        for statement in find_statements(parse_file(path))
        if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef))
        and (statement.end_lineno or 0) - statement.lineno >= LONGEST
    ]
    assert len(long) <= MOST_LONG, "\n".join(long)
