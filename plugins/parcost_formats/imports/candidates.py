"""The formats that a file may have, if no importer recognizes it.

    [trainning]              # did you mean `training`?
    local_batch_size = 1

Its keys are compared with those of each importer; a key that few importers have counts more. Then a
single missing or misspelled name is searched, after whose correction the importer would recognize
the file.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, NamedTuple

from parcost.contract.importers import Importer
from parcost.language.diagnostics import nearest_names

_LONGEST = 100_000  # characters of a file that is compared
_MOST_KEYS = 300
_MOST_TRIES = 80  # names that are added to a file
_MOST_FIXES = 3
_FEWEST = 2  # keys that a file and a format have in common
_LEAST = 0.4  # of its keys
_MANY = 10  # keys in common that name a format though no missing name is found
_NEAR = 0.9  # of the best score
_TOML = re.compile(r"^[ \t]*(?:\[([\w.-]+)\]|([\w.-]+)[ \t]*=)", re.MULTILINE)
_YAML = re.compile(
    r"^([ ]*)(?:- )?[\"']?([A-Za-z_][\w./-]*)[\"']?[ ]*:(?=[ \n]|$)(.*)", re.MULTILINE
)
_FLOW = re.compile(r"[{,][ ]*[\"']?([A-Za-z_]\w*)[\"']?[ ]*:")
_Recognizes = Callable[[Importer, str], bool]


class FormatCandidate(NamedTuple):
    """A format that *has* keys of a file; *fix* is the missing part, "" if unknown."""

    importer: Importer
    has: Sequence[str]
    fix: str


def list_keys(name: str, text: str) -> Sequence[str]:
    """Return the keys of a YAML, TOML or JSON text, nested ones joined with dots.

    >>> list_keys("a.toml", "[a.b]\\nc = 1\\n"), list_keys("a.yaml", "a:\\n  b: {c: 1}\\nd: 2\\n")
    (['a.b.c'], ['a', 'a.b', 'a.b.c', 'd'])
    """
    found: Iterator[str] = iter(())
    if len(text) <= _LONGEST:
        if name.endswith(".toml"):
            found = _keys_of_toml(text)
        elif name.endswith((".yaml", ".yml")):
            found = _keys_of_yaml(text)
        elif name.endswith(".json"):
            try:
                found = _keys_of_json("", json.loads(text))
            except (ValueError, RecursionError):
                found = iter(())
    return [*dict.fromkeys(islice(found, _MOST_KEYS))]


def find_candidates(
    name: str, text: str, importers: Mapping[str, Importer], recognizes: _Recognizes
) -> Sequence[FormatCandidate]:
    """Return the formats with most of the keys of a file, the best first.

    Few keys such as ``learning_rate`` are of every tool: a name has to be found that is missing.
    """
    keys = list_keys(name, text)
    known = {one: [key for key in keys if key in it.keys] for one, it in importers.items()}
    common = {key: sum(key in found for found in known.values()) for key in keys}
    scores = {
        one: sum(1 / common[key] for key in found)
        for one, found in known.items()
        if len(found) >= max(_FEWEST, _LEAST * len(keys))
    }
    best = max(scores.values(), default=0.0)
    names = [one for one, score in scores.items() if score >= _NEAR * best]
    found = [
        FormatCandidate(it, known[one], _find_fix(it, text, name, keys, recognizes))
        for one in sorted(names, key=lambda one: -scores[one])
        for it in [importers[one]]
    ]
    return [one for one in found if one.fix or len(one.has) >= _MANY]


def _find_fix(
    importer: Importer, text: str, name: str, keys: Sequence[str], recognizes: _Recognizes
) -> str:
    """Return a sentence with the name whose correction would make an importer recognize the
    file.
    """
    sections = dict.fromkeys(one.partition(".")[0] for one in sorted(importer.keys))
    for written in dict.fromkeys(key.partition(".")[0] for key in keys):
        for meant in () if written in sections else nearest_names(written, sections, 1):
            renamed = (meant + key.removeprefix(written) for key in keys if key.startswith(written))
            if any(one in importer.keys for one in renamed):
                return f"`{written}`: did you mean `{meant}`?"
    absent = (one for one in sections if one not in keys)
    ending = "\n[{}]\n" if name.endswith(".toml") else "\n{}: x\n"
    tried = islice(absent, _MOST_TRIES)
    found = [one for one in tried if recognizes(importer, text + ending.format(one))]
    names = ", ".join(f"`{one}`" for one in found[:_MOST_FIXES])
    which = "one of " if len(found) > 1 else ""
    return f"the keys that identify the format are missing: {which}{names}" if found else ""


def _keys_of_toml(text: str) -> Iterator[str]:
    section = ""
    for found in _TOML.finditer(text):
        if found[1]:
            section = f"{found[1]}."
        else:
            yield f"{section}{found[2]}"


def _keys_of_yaml(text: str) -> Iterator[str]:
    above: list[tuple[int, str]] = []
    for found in _YAML.finditer(text):
        indent = len(found[1])
        while above and above[-1][0] >= indent:
            above.pop()
        path = f"{above[-1][1]}.{found[2]}" if above else found[2]
        above.append((indent, path))
        yield path
        if found[3].lstrip().startswith("{"):
            yield from (f"{path}.{one[1]}" for one in _FLOW.finditer(found[3]))


def _keys_of_json(path: str, value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield f"{path}{key}"
            yield from _keys_of_json(f"{path}{key}.", inner)


def describe(candidates: Sequence[FormatCandidate], keys: Collection[str]) -> tuple[str, str]:
    """Return the sentence about the nearest formats for a message, and the help."""
    titles = " or ".join(one.importer.title for one in candidates[:3])
    first = candidates[0]
    said = f"{len(first.has)} of its {len(keys)} keys are of {titles}"
    fixes = "; ".join(one.fix for one in candidates[:3] if one.fix)
    ways = " or ".join(f"--from {one.importer.name}" for one in candidates[:3])
    return said, f"{fixes}; or read it so with {ways}" if fixes else f"read it so with {ways}"
