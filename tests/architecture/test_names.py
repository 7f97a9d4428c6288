"""Names of modules, classes and functions are nouns of the field or standard verbs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from ..syntax import find_names

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


def test_tests_are_named_by_their_assertions() -> None:
    bad = [
        f"{place}: {name}"
        for place, name in definitions("tests")
        if VAGUE.intersection(words(name).split("_"))
    ]
    assert not bad, "\n".join(bad)
