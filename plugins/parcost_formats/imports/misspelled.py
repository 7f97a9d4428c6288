"""Misspelled keys: keys that a tool does not have, and that resemble one of its keys.

The file is read a second time with the correct name. The import asks for each value that the
corrected file would set. So a default is never used because of a misspelled key.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from difflib import SequenceMatcher, get_close_matches
from functools import lru_cache

from attrs import evolve

from parcost.contract.importers import (
    ImportedBlock,
    ImportedKey,
    ImportedValue,
    Importer,
    ImportFile,
    ImportQuestion,
    Translation,
)
from parcost_formats.imports.subjects import is_key, paths

_MOST_KEYS = 12  # of a file that are looked at
_MOST_READINGS = 2  # of one key
_MOST_CHARACTERS = 200_000  # of all readings
_LONGEST = 100  # characters of a key that is compared
_LONG = 5  # letters of a name that counts inside of a longer one
_CLOSE = 0.8  # of get_close_matches
_RECIPES = ("precision", "framework")  # blocks that change an entry of the catalogue


def with_corrections(
    importer: Importer,
    file: ImportFile,
    translation: Translation,
    read: Callable[[ImportFile], Translation],
) -> Translation:
    """Return a translation that asks for the values that misspelled keys would set."""
    keys = frozenset(importer.keys).union(translation.sought)
    left = _MOST_CHARACTERS
    questions = list(translation.questions)
    unknown, ignored = list(translation.unknown), list(translation.ignored)
    tried: set[tuple[str, str]] = set()
    now = _values(translation)
    read_keys = [one for _, one in paths(translation.blocks) if one.end and not one.assumption]
    stated = {_letters(one.key) for one in read_keys}
    for key in _strange_keys(importer, translation)[:_MOST_KEYS]:
        found: list[ImportQuestion] = []
        usual = ""  # the key that was meant, if its value is the one that is taken without it
        here = (key.start, key.end)  # what the words of the key ask for is less sure
        places = {(one.start, one.end) for one in questions}
        for name in nearest_keys(key.name, keys)[:_MOST_READINGS]:
            change = (key.name, name)
            size = len(file.text)
            if found or change in tried or _letters(name) in stated or size > left:
                continue
            tried.add(change)
            left -= size
            other = read(_correct_file(file, key, name))
            if not other.problems:
                then = _values(other)
                found = list(_questions(importer, key, name, now, then))
                usual = usual or _find_default_key(key.name, name, now, then) * (not found)
                lost = sorted(now.keys() - then.keys())
                if not found and lost and here not in places:
                    found = [_removal(importer, key, name, lost[0], now[lost[0]][0])]
        if not found and not usual:
            continue
        named = {one.attribute for one in found}
        questions = [
            one
            for one in questions
            if (one.start, one.end) != here and (one.end or one.attribute not in named)
        ]
        asked = {one.attribute for one in questions}
        questions += (one for one in found if not _is_asked(one.attribute, asked))
        translation = _with_open_entries(translation, found)
        if key in unknown:
            unknown.remove(key)
        else:
            ignored.remove(key)
        if found:
            unknown.append(evolve(key, attribute=found[0].attribute))
        else:
            why = f"`{usual}`, which was probably meant, has this value by default"
            unknown.append(evolve(key, attribute="", reason=why))
    return evolve(translation, questions=questions, unknown=unknown, ignored=ignored)


def _strange_keys(importer: Importer, translation: Translation) -> Sequence[ImportedKey]:
    """Return the keys outside of the tool's list: unknown ones, and those listed without reason.

    An unknown key may be in a section of which the list has no keys, such as ``model.*``.
    """
    listed = frozenset(importer.keys)
    named = frozenset(one for one in listed if not one.endswith("*"))
    ignored = [one for one in translation.ignored if listed and not one.reason]
    return [
        *(one for one in translation.unknown if not is_key(one.name, named)),
        *(one for one in ignored if not is_key(one.name, listed)),
    ]


def _with_open_entries(
    translation: Translation, questions: Collection[ImportQuestion]
) -> Translation:
    """Return a translation in which an answer replaces catalogue entries that were asked for."""
    open_paths = {path: one.reason for one in questions for path in one.also[:1]}
    if not open_paths:
        return translation
    names = {
        f"training.{path.rpartition('.')[2].removesuffix('s')}": why
        for path, why in open_paths.items()
    }

    def open_block(block: ImportedBlock) -> ImportedBlock:
        settings = [
            evolve(one, assumption=one.assumption or names.get(f"{block.kind}.{one.name}", ""))
            for one in block.settings
        ]
        return evolve(block, settings=settings, blocks=[*map(open_block, block.blocks)])

    uses = [
        evolve(one, assumption=one.assumption or open_paths.get(_folder(one), ""))
        for one in translation.uses
    ]
    return evolve(translation, uses=uses, blocks=[*map(open_block, translation.blocks)])


def _is_asked(attribute: str, asked: Collection[str]) -> bool:
    return attribute in asked or attribute.partition(".")[0] in asked


def nearest_keys(name: str, keys: Collection[str]) -> Sequence[str]:
    """Return the names that are most similar to *name*, the closest first.

    A key such as ``peft.*`` stands for a section, whose name alone is compared.

    >>> nearest_keys("--tensor-model-paralel-size", frozenset({"tensor_model_parallel_size"}))
    ['tensor_model_parallel_size']
    >>> nearest_keys("globalBatchSize", frozenset({"global_batch_size", "seq_len"}))
    ['global_batch_size']
    >>> nearest_keys("my_optimizer", frozenset({"optimizer", "seq_len"}))
    ['optimizer']
    >>> nearest_keys("lora_rank", frozenset({"lora_r", "lora_alpha"}))
    ['lora_r']
    >>> nearest_keys("model.pfet.r", frozenset({"model.peft.*"}))
    ['model.peft.r']
    """
    letters = _letters(name[:_LONGEST])
    parts = name.count(".")
    known = {at: one for at, one in _by_letters(frozenset(keys)).items() if at.count(".") == parts}
    found = [letters] if letters in known else []
    within = [one for one in known if len(one) >= _LONG and one in letters]
    turned = sorted(letters)
    found += sorted(within, key=len, reverse=True)[:1]
    found += [one for one in known if len(one) == len(letters) and sorted(one) == turned]
    found += [at for at, one in known.items() if _is_abbreviation(name, one)]
    found += get_close_matches(letters, known, n=2, cutoff=_CLOSE)
    return list(dict.fromkeys([*(known[one] for one in found), *_in_sections(name, keys)]))


def _in_sections(name: str, keys: Collection[str]) -> Iterator[str]:
    """Yield a dotted name with each section of *keys* that resembles its own section."""
    words = name[:_LONGEST].split(".")
    for key in sorted(one for one in keys if one.endswith(".*")):
        *outer, section = key.removesuffix(".*").split(".")
        at = len(outer)
        if len(words) > at + 1 and words[:at] == outer and words[at] != section:
            if any(one.startswith(f"{'.'.join(words[: at + 1])}.") for one in keys):
                continue  # the tool has this section too
            own, other = _letters(words[at]), _letters(section)
            if sorted(own) == sorted(other) or get_close_matches(own, [other], cutoff=_CLOSE):
                yield ".".join([*outer, section, *words[at + 1 :]])


def _find_default_key(name: str, other: str, now: _Values, then: _Values) -> str:
    """Return *other* if the key is a slip of it and states a value that is assumed, or "".

    Most letters of the two names agree then: none has a word that the other lacks.
    """
    own, others = _letters(name[:_LONGEST]), _letters(other)
    is_close = SequenceMatcher(None, own, others).ratio() >= _CLOSE
    return other if is_close and _states_more(now, then) else ""


def _is_abbreviation(name: str, other: str) -> bool:
    """Return whether the words of one name are the beginnings of the words of the other.

    >>> _is_abbreviation("seq_length", "sequence_len"), _is_abbreviation("n_s", "num_steps")
    (True, False)
    """
    words, others = _words(name[:_LONGEST]), _words(other)
    if len(words) != len(others):
        return False
    pairs = [sorted(pair, key=len) for pair in zip(words, others, strict=True)]
    return (
        all(longer.startswith(shorter) for shorter, longer in pairs)
        and sum(len(shorter) for shorter, _ in pairs) >= _LONG
    )


@lru_cache(10_000)  # a name is compared with each key of a tool, and a key with many names
def _words(name: str) -> list[str]:
    return re.findall(r"[a-z0-9]+", name.lower())


def _letters(name: str) -> str:
    return re.sub(r"[^a-z0-9.]", "", name.lower())


@lru_cache(100)  # the keys that a reader looked up differ from file to file
def _by_letters(keys: frozenset[str]) -> Mapping[str, str]:
    return {_letters(one): one for one in sorted(keys) if "*" not in one}


def _correct_file(file: ImportFile, key: ImportedKey, name: str) -> ImportFile:
    """Return a file with *name* instead of a key, in the file itself or in files that it names."""
    text = _correct(file.text, key, name, key.end)
    if text is not None:
        return evolve(file, text=text)

    def neighbor(path: str) -> str | None:
        found = file.neighbor(path)
        return found and (_correct(found, key, name, len(found)) or found)

    others = {
        path: _correct(other, key, name, len(other)) or other for path, other in file.others.items()
    }
    return evolve(file, neighbor=neighbor, others=others)


def _correct(text: str, key: ImportedKey, name: str, end: int) -> str | None:
    """Return a text with *name* instead of the key before *end*, or None if it is not found."""
    written = key.name.lstrip("-").split(".")
    parts = name.split(".")
    if len(written) != len(parts):
        return None
    for old, new in reversed(list(zip(written, parts, strict=True))):
        if old == new:
            continue
        at = next((at for form in _forms(old) if (at := text.rfind(form, 0, end)) >= 0), -1)
        if at < 0:
            return None
        spelled = new.replace("_", "-") if key.name.startswith("--") and "-" in old else new
        text = f"{text[:at]}{spelled}{text[at + len(old) :]}"
        end = at
    return text


def _forms(name: str) -> Sequence[str]:
    return (name, name.replace("_", "-"), name.replace("-", "_"))


_Values = Mapping[str, tuple[str, bool]]  # by path: an expression, and whether the file states it


def _values(translation: Translation) -> _Values:
    """Return the values of a translation by path; catalogue entries by their folder."""
    found = {_folder(use): (use.value, not use.assumption) for use in translation.uses}
    for path, one in paths(translation.blocks):
        found[path] = (one.value, not one.assumption)
    return found


def _states_more(now: _Values, then: _Values) -> bool:
    """Return whether a correction sets a value that is otherwise assumed, and changes no other
    value.
    """
    same = all(now.get(path, ("", False))[0] == value for path, (value, _) in then.items())
    return (
        same
        and now.keys() <= then.keys()
        and any(is_stated and not now[path][1] for path, (_, is_stated) in then.items())
    )


def _folder(use: ImportedValue) -> str:
    return use.value.partition(" ")[0].rpartition(".")[0]


def _questions(
    importer: Importer, key: ImportedKey, name: str, now: _Values, then: _Values
) -> Iterator[ImportQuestion]:
    """Yield a question for each setting that a key would set if it were called *name*."""
    own = {path.partition(".")[0] for path in then}.intersection(_RECIPES)
    every = {path for path in then if now.get(path, ("", False))[0] != then[path][0]}
    changed = {
        path
        for path in every
        if path.partition(".")[0] not in own and path.removeprefix("training.") not in own
    }
    stated = {path for path in changed if then[path][1]} or changed
    parts = {path.partition(".")[0] for path in every}.intersection(own)
    entries = {f"catalog.{kind}s" for kind in parts}  # asked for in place of parts of a recipe
    stated = stated.union(entries.intersection(then))
    shown = name.replace("_", "-") if key.name.startswith("--") else name
    dashes = "--" if key.name.startswith("--") else ""
    reason = f"`{key.name}` is not a key of {importer.title}; `{dashes}{shown}` was probably meant"
    for path in sorted(stated):
        value = then[path][0]
        also: Sequence[str] = ()
        if path.startswith("catalog."):
            answer, kind = f"--use {value}", path.rpartition(".")[2].removesuffix("s")
            attribute, also = f"training.{kind}", (path, kind)
        else:
            attribute, answer = path, f"--set {_quote(f'{path}={value}')}"
        yield ImportQuestion(
            attribute=attribute,
            reason=reason,
            answers=(answer,),
            start=key.start,
            end=key.end,
            also=also,
        )


def _removal(
    importer: Importer, key: ImportedKey, name: str, path: str, value: str
) -> ImportQuestion:
    """Return the question for the setting at *path*, which disappears if a key is renamed to
    *name*; its *value* now is an answer.
    """
    kind = path.partition(".")[0]
    attribute, answer = path, f"--set {_quote(f'{path}={value}')}"
    if kind == "catalog":
        attribute, answer = path.rpartition(".")[2].removesuffix("s"), f"--use {value}"
    elif kind in _RECIPES:
        attribute, answer = kind, ""
    return ImportQuestion(
        attribute=attribute,
        reason=f"`{key.name}` is not a key of {importer.title}; `{name}` was probably meant",
        answers=(answer,) if answer else (),
        start=key.start,
        end=key.end,
    )


def _quote(text: str) -> str:
    return f"'{text}'" if re.search(r"[\s()*|&;<>]", text) else text
