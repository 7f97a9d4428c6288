"""Tables of the names of other tools."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from fnmatch import translate
from functools import cache
from importlib.resources import files
from typing import Any

_LONGEST = 1000  # characters of a key
_WILDCARD = re.compile(r"[*?\[].*", re.DOTALL)  # and what follows it


#: Parts of a regular expression that may match nothing, and the words that remain.
_ESCAPED = re.compile(r"\\.[*+?]?|\[(?:\\.|[^\]\\])*\][*+?]?")
_GROUP = re.compile(r"\([^()]*\)(?:[*+?]|\{[^}]*\})?")
_CERTAIN = re.compile(r"[A-Za-z_]{3,}(?![\w?*{])")


@cache
def table(tool: str) -> Mapping[str, Any]:
    """Return the table of a tool."""
    return tomllib.loads((files(__name__) / f"{tool}.toml").read_text(encoding="utf-8"))


def is_listed(key: str, patterns: Iterable[str]) -> bool:
    """Return whether *key* matches one of *patterns*, exactly or by a final ``*``.

    >>> is_listed("rope_scaling.factor", ["rope_theta", "rope_scaling.*"])
    True
    >>> is_listed("rope_scaling", ["rope_scaling.*"])
    True
    """
    names, prefixes, others = _split(tuple(patterns))
    key = key[:_LONGEST]  # no name is as long, and a wildcard reads all of it
    inside = f"{key}."
    return bool(
        not names.isdisjoint((key, inside))
        or inside.startswith(prefixes)
        or (others and (others.match(key) or others.match(inside)))
    )


@cache
def required_word(pattern: str) -> str:
    r"""Return a word that every match of a regular expression contains, "" if none is certain.

    A text without it is not searched: that takes a hundredth of the time.

    >>> required_word(r"\bcolossalai\s+run\b"), required_word(r"(?:^|\s)-[bdtz]\s")
    ('colossalai', '')
    >>> required_word(r"foo|bar"), required_word(r"(?i)launch"), required_word(r"\"?width\"?\s*:")
    ('', '', 'width')
    """
    if pattern.startswith("(?"):
        return ""
    plain = _ESCAPED.sub(" ", pattern)
    before = ""
    while plain != before:
        before, plain = plain, _GROUP.sub(" ", plain)
    words = [] if "|" in plain else _CERTAIN.findall(plain)
    return max(words, key=len, default="")


def has_sign(pattern: str, text: str) -> bool:
    """Return whether a regular expression matches somewhere in a text."""
    return required_word(pattern) in text and re.search(pattern, text) is not None


def value_of_pattern(key: str, values: Mapping[str, Any]) -> Any:
    """Return the value of the first pattern that *key* matches, "" for none.

    >>> value_of_pattern("fsdp_version", {"bf16*": "precision", "fsdp*": "zero"})
    'zero'
    """
    if not is_listed(key, values):
        return ""
    return next(value for pattern, value in values.items() if is_listed(key, [pattern]))


@cache
def _split(patterns: tuple[str, ...]) -> tuple[frozenset[str], tuple[str, ...], Any]:
    """Return the names in *patterns*, the prefixes before a final ``*``, and all others as one.

    A regular expression of all patterns would take longer to compile than most files to read.
    """
    wild = [(one, at[0]) for one in patterns if (at := _WILDCARD.search(one))]
    names = frozenset(patterns).difference(one for one, _ in wild)
    initial = tuple(one[:-1] for one, tail in wild if tail == "*")
    others = [translate(one) for one, tail in wild if tail != "*"]
    return names, initial, re.compile("|".join(others)) if others else None


def unknown_words(
    entries: Mapping[str, Any], rules: Mapping[str, Any]
) -> Iterator[tuple[str, str, str]]:
    """Yield each key whose value is none of its words: the key, a message, and the known words.

    ``[[known_words]]`` of the table *rules* has the *known* words of *keys*, which are patterns. A
    key may have a list of them. An entry of *entries* has a ``value``.

    >>> from types import SimpleNamespace
    >>> rules = {"known_words": [{"keys": ["hidden_act"], "known": ["silu", "gelu"]}]}
    >>> list(unknown_words({"hidden_act": SimpleNamespace(value="foo")}, rules))
    [('hidden_act', '`foo` is not known', 'known: silu, gelu')]
    """
    for rule in rules.get("known_words", ()):
        for key in [key for key in entries if is_listed(key, rule["keys"])]:
            value = entries[key].value
            given = value if isinstance(value, list) else [] if value is None else [value]
            for one in given:
                if one not in rule["known"]:
                    help = f"known: {', '.join(rule['known'])}"
                    yield key, f"`{str(one)[:40]}` is not known", help


def find_preset(rules: Mapping[str, Any], name: str) -> tuple[Mapping[str, object], str]:
    """Return the keys of the configuration *name* that a tool ships, and why they are assumed.

    Its table *rules* has it by the end of its path. Both are empty if the tool has no such file. If
    the tool itself defines the name, such as ``zero2``, the keys are not assumptions.

    >>> rules = {"shipped_by": "axolotl", "shipped": {"configs/zero1.json": {"stage": 1}}}
    >>> find_preset(rules, "axolotl/configs/zero1.json")
    ({'stage': 1}, 'axolotl: configs/zero1.json')
    >>> find_preset(rules, "zero1.json")
    ({}, '')
    """
    known = rules.get("shipped", {})
    for one in known:
        if f"/{name}".endswith(f"/{one}"):
            keys = {**rules.get("shipped_common", {}), **known[one]}
            return keys, f"{rules['shipped_by']}: {one}" if "/" in one or "." in one else ""
    return {}, ""


def is_ignored(tool: str, key: str) -> bool:
    """Return whether a tool's table lists *key* among names without effect on cost."""
    plain, prefixes = _ignored_names(tool)
    return key in plain or key.startswith(prefixes)


@cache
def _ignored_names(tool: str) -> tuple[frozenset[str], tuple[str, ...]]:
    """Return the names without effect on cost, and the prefixes of names that end in ``*``."""
    names = table(tool)["ignored"]["names"]
    plain = frozenset(name for name in names if not name.endswith("*"))
    return plain, tuple(name[:-1] for name in names if name.endswith("*"))
