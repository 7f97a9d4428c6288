"""Tests of importers with one key or value that the tool does not have.

Such a key or value must lead to an error, a question or a warning. It must not silently leave a
default in place.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence

from parcost.contract.importers import ImportedValue, Importer, Translation
from parcost.language.errors import SpecError
from parcost.language.text import Source
from parcost.records import record
from parcost_formats.imports.subjects import paths
from parcost_formats.imports.translation import translate

STRANGE = "zorp"  # a word that no tool knows
_WORD = re.compile(r"[A-Za-z_][\w-]*")
_VALUE = re.compile(
    r"(?P<between>[\"']?(?:\s*[:=]\s*|\s+))(?P<value>\"[^\"\n]*\"|[^\s,{}\[\]\"'#]+)"
)


@record
class SpoiledFile:
    """A changed file: *written* replaces the key or the value that sets the attribute *path*."""

    path: str
    written: str
    text: str


Spoiling = Callable[[str, str, int], Iterator[tuple[str, str]]]


def renamings(text: str, key: str, at: int) -> Iterator[tuple[str, str]]:
    """Yield misspelled names of a key, each with the text in which the misspelled name replaces it.

    >>> [name for name, _ in renamings("seq_len: 8", "seq_len", 0)]
    ['seq_len_x', 'my_seq_len', 'seq_eln', 'seqLen']
    """
    joint = "-" if "-" in key or text[max(at - 2, 0) : at] == "--" else "_"
    names = [f"{key}{joint}x", f"my{joint}{key}", _swap_letters(key)]
    names.append(re.sub(r"[-_](\w)", lambda found: found[1].upper(), key))
    for name in dict.fromkeys(names):
        if name != key:
            yield name, f"{text[:at]}{name}{text[at + len(key) :]}"


def strange_values(text: str, key: str, at: int) -> Iterator[tuple[str, str]]:
    """Yield invalid values of a key, each with the text in which the invalid value replaces the old
    one.

    >>> list(strange_values('"stage": 3}', "stage", 1))
    [('stage zorp', '"stage": "zorp"}')]
    >>> list(strange_values("--optimizer adam --bf16", "optimizer", 2))
    [('optimizer zorp', '--optimizer zorp --bf16')]
    """
    found = _VALUE.match(text, at + len(key))
    if found is None or found["value"].startswith("-"):
        return
    quoted = found["value"].startswith('"') or text[at - 1 : at] == '"'
    value = f'"{STRANGE}"' if quoted else STRANGE
    yield f"{key} {STRANGE}", f"{text[: found.start('value')]}{value}{text[found.end('value') :]}"


def silent_answers(importer: Importer, source: Source, spoil: Spoiling) -> Iterator[SpoiledFile]:
    """Yield the files changed by *spoil* that an importer reads without an error or a question."""
    before = translate(importer, source)
    stated = _values(before)
    for path, one in stated.items():
        key = _key_in(source.text, one)
        if one.assumption or key is None:
            continue
        name, at = key
        for written, text in spoil(source.text, name, at):
            try:
                after = translate(importer, Source(source.name, text))
            except SpecError:
                continue
            if _is_silent(importer, path, written, before, after):
                yield SpoiledFile(path, written, text)


def _is_silent(
    importer: Importer, path: str, written: str, before: Translation, after: Translation
) -> bool:
    """Return whether the setting at *path* is missing or changed without a report."""
    if any(one not in before.questions for one in after.questions):
        return False
    name, _, value = written.partition(" ")
    now, was = _values(after).get(path), _values(before)[path]
    named = _is_named(name, after)
    if now is None:
        return not (named or path in importer.needs or path.startswith("catalog."))
    if now.assumption and now.value != was.value:
        return True
    changed = value or now.value != was.value
    return not named and bool(changed) and STRANGE not in now.value


def _is_named(name: str, translation: Translation) -> bool:
    plain = _plain(name)
    keys = (*translation.unknown, *translation.missing)
    return any(plain in _plain(one.name) for one in keys)


def _plain(name: str) -> str:
    return name.replace("-", "_").lower()


def _values(translation: Translation) -> Mapping[str, ImportedValue]:
    found = {one.value.partition(" ")[0].rpartition(".")[0]: one for one in translation.uses}
    return {**found, **dict(paths(translation.blocks))}


def _key_in(text: str, one: ImportedValue) -> tuple[str, int] | None:
    """Return the last name of a value's key, and its offset in the file, or None."""
    names: Sequence[str] = _WORD.findall(one.key.lstrip("-"))
    if not names or not one.end:
        return None
    at = text.rfind(names[-1], 0, one.end)
    return (names[-1], at) if at >= 0 else None


def _swap_letters(name: str) -> str:
    """Return a name with two letters in the middle swapped."""
    for at in range(len(name) // 2, len(name) - 1):
        one, two = name[at], name[at + 1]
        if one != two and one.isalnum() and two.isalnum():
            return f"{name[:at]}{two}{one}{name[at + 2 :]}"
    return f"{name}q"
