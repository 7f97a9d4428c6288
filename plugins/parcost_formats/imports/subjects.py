"""Subjects that decide the cost: each is read, assumed by a documented default, or asked for.

If the words in the name of an unread key match a subject, a default would be a guess. Then the
import asks a question instead.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from fnmatch import translate
from functools import cache

from attrs import evolve

from parcost.contract.importers import (
    ImportedBlock,
    ImportedKey,
    ImportedValue,
    Importer,
    ImportQuestion,
    ImportSubject,
    Translation,
)
from parcost.language.text import Source, Span
from parcost.records import record

_WORD = re.compile(r"[A-Z]+(?![a-z])\d*|[A-Z]?[a-z]+\d*|\d+")
_LONG = 5  # letters of a word that names a subject also inside of a longer one
_OTHERS = re.compile("tensorboard|safetensor")  # longer words that have nothing to do with it
_LONGEST = 200  # characters of a key that is compared
#: The assumption about a value that the file itself has, as the default of a variable.
_OF_THE_FILE = re.compile(r"`\w+` is not set in the file: its default there")


def with_questions(importer: Importer, translation: Translation) -> Translation:
    """Return a translation with a question for each subject that only an unknown key may set."""
    outside = _outside(importer, translation.ignored)
    if not importer.subjects or not (outside or translation.unknown or translation.missing):
        return translation
    state = _State(importer, translation)
    questions = list(translation.questions)
    asked = {one.attribute for one in questions}
    unknown: list[ImportedKey] = []
    for key in (*translation.unknown, *outside):
        found = list(_subjects_of(key, importer.subjects))
        for subject in found:
            if subject.attributes[0] not in asked and not state.is_answered(subject):
                asked.add(subject.attributes[0])
                questions.append(state.question(key, subject))
        if found and not key.attribute:
            key = evolve(key, attribute=found[0].attributes[0])  # noqa: PLW2901
        unknown.append(key)
    for key in translation.missing:
        for subject in importer.subjects if key.attribute else ():
            decides = key.attribute in subject.attributes
            if decides and key.attribute not in asked and not state.is_answered(subject):
                asked.add(key.attribute)
                questions.append(state.question(key, subject))
    ignored = [one for one in translation.ignored if one not in outside]
    return evolve(translation, questions=questions, unknown=unknown, ignored=ignored)


def with_doubts(importer: Importer, translation: Translation) -> Translation:
    """Return a translation in which values that its importer asks for are marked as assumed.

    So an answer of the user replaces them. The values are entries of catalogues and their blocks.
    """
    reasons: dict[str, str] = {}
    for question in translation.questions:
        for subject in importer.subjects:
            if question.attribute in subject.attributes:
                reasons |= dict.fromkeys(subject.attributes, question.reason)
    if not reasons:
        return translation
    uses = [
        evolve(use, assumption=use.assumption or why)
        if (why := next((reasons[name] for name in reasons if _names(use, [name])), ""))
        else use
        for use in translation.uses
    ]
    blocks = [
        evolve(
            block,
            settings=[
                evolve(one, assumption=one.assumption or reasons[block.kind])
                for one in block.settings
            ],
        )
        if block.kind in reasons
        else block
        for block in translation.blocks
    ]
    return evolve(translation, uses=uses, blocks=blocks)


def with_references(importer: Importer, translation: Translation) -> Translation:
    """Return a translation whose blocks refer to the catalogue entries that it assumes.

    In a written spec a reference such as ``training.precision`` holds the reason, which a `use`
    line cannot. The folder of a catalogue is the plural of the reference.
    """
    stated = {path for path, _ in paths(translation.blocks)}
    blocks = list(translation.blocks)
    for use in translation.uses:
        folder, _, label = use.value.partition(" ")[0].rpartition(".")
        names = (name for one in importer.subjects for name in one.attributes)
        plural = folder.rpartition(".")[2]
        path = next((one for one in names if f"{one.partition('.')[2]}s" == plural), "")
        kind, _, name = path.partition(".")
        at = next((at for at, block in enumerate(blocks) if block.kind == kind), None)
        if use.assumption and path and path not in stated and at is not None:
            one = evolve(use, name=name, value=label, key="")
            blocks[at] = evolve(blocks[at], settings=[*blocks[at].settings, one])
            stated.add(path)
    return evolve(translation, blocks=blocks)


def _outside(importer: Importer, ignored: Iterable[ImportedKey]) -> Sequence[ImportedKey]:
    """Return the ignored keys that are not in the tool's list and that may set a subject."""
    if not importer.subjects or not importer.keys:
        return ()
    keys = frozenset(importer.keys)
    return [
        one
        for one in ignored
        if not one.reason
        and not is_key(one.name, keys)
        and any(True for _ in _subjects_of(one, importer.subjects))
    ]


def is_key(name: str, keys: Collection[str]) -> bool:
    """Return whether a tool has a key: flags have hyphens where *keys* have underscores.

    For an attribute of an object, such as ``cfg.model.num_layers``, the last name counts too.

    >>> is_key("--num-layers", {"num_layers"}), is_key("num-layers", {"num_layers"})
    (True, False)
    >>> is_key("data.path", {"data.*"})
    True
    """
    plain = name.lstrip("-").replace("-", "_") if name.startswith("--") else name
    if {plain, plain.rpartition("=")[0], plain.rpartition(".")[2]}.intersection(keys):
        return True
    return bool(_sections(frozenset(keys)).match(plain))


def strange_keys(importer: Importer, translation: Translation) -> Iterator[ImportedKey]:
    """Yield the unknown keys that a file has and no list of its tool."""
    keys = frozenset(importer.keys)
    found = (one for one in translation.unknown if one.end)
    return (one for one in found if keys and not is_key(one.name, keys))


def is_answered(question: ImportQuestion, given: Collection[str]) -> bool:
    """Return whether the *given* attributes, or kinds of blocks, answer a question.

    Any attribute of a block answers a question about the whole block. It does not answer if only
    catalogue entries are answers: a model of another shape differs in more attributes. A given
    block has all of its attributes, unless the file states a part of the value.
    """
    kind = "" if question.partial else question.attribute.partition(".")[0]
    if {question.attribute, *question.also, kind} & set(given):
        return True
    if question.answers and all(way.startswith("--use ") for way in question.answers):
        return False
    return any(path.partition(".")[0] == question.attribute for path in given)


def drop_given_recipes(
    translation: Translation, subjects: Iterable[ImportSubject], given: Collection[str]
) -> Translation:
    """Return a translation without recipes that the importer asks for and the user gives."""
    asked = {one.attribute for one in translation.questions if not one.partial} & set(given)
    names = {name for one in subjects if asked & set(one.attributes) for name in one.attributes}
    if not names:
        return translation
    return evolve(
        translation,
        uses=[one for one in translation.uses if not _names(one, names)],
        blocks=[
            evolve(one, settings=[s for s in one.settings if f"{one.kind}.{s.name}" not in names])
            for one in translation.blocks
            if not (one.kind in asked and " extends " in one.label)
        ],
    )


def drop_assumptions(
    translation: Translation, subjects: Iterable[ImportSubject], given: Collection[str]
) -> Translation:
    """Return a translation without the assumptions about subjects that the user gives.

    *given* are kinds of blocks and attributes.
    """
    found = [one for one in subjects if set(one.attributes) & set(given)]
    dropped = {name for one in found for name in one.attributes}
    if not dropped:
        return translation
    return evolve(
        translation,
        uses=[use for use in translation.uses if not (use.assumption and _names(use, dropped))],
        blocks=list(_leave_out(translation.blocks, dropped)),
    )


@record(kw_only=True)
class AddedBlock:
    """A block that the command line adds from an *entry* of a catalogue, named at *place*.

    *values* are the texts of its attributes, by name.
    """

    entry: str
    place: Span
    label: str
    values: Mapping[str, str]


def with_added_values(
    translation: Translation,
    source: Source,
    needs: Collection[str],
    added: Mapping[str, AddedBlock],
    given: Collection[str],
) -> Translation:
    """Return a translation with values of the added blocks assumed in place of unknown values."""
    keys = (*translation.missing, *translation.unknown)
    unknown: list[tuple[ImportQuestion | ImportedKey, str]] = [
        *((one, one.reason) for one in translation.questions if not one.partial),
        *((one, f"`{one.name}`: {one.reason}") for one in keys),
    ]
    stated = {*given, *(path for path, _ in paths(translation.blocks))}
    blocks = list(translation.blocks)
    for one, reason in unknown:
        kind, _, name = one.attribute.partition(".")
        block = added.get(kind)
        if block is None or not one.end or one.attribute not in needs or one.attribute in stated:
            continue
        if name not in block.values:
            continue
        stated.add(one.attribute)
        setting = ImportedValue(
            name=name,
            value=block.values[name],
            start=one.start,
            end=one.end,
            assumption=f"{block.entry}; line {source.position(one.start)[0]}: {reason}",
        )
        at = next((i for i, own in enumerate(blocks) if own.kind == kind), len(blocks))
        own = blocks[at] if at < len(blocks) else ImportedBlock(kind=kind)
        blocks[at : at + 1] = [evolve(own, settings=[*own.settings, setting])]
    return evolve(translation, blocks=blocks)


def merge_into_blocks(
    translation: Translation, needs: Collection[str], labels: Mapping[str, str]
) -> Translation:
    """Return a translation whose incomplete blocks are merged into the blocks that the user adds.

    *needs* are attributes that no file of the tool has. *labels* are the labels of added blocks, by
    kind. A block of the translation without a label takes that label, and its values override those
    of the added block. So does a block of a kind that the importer asks for, unless it extends
    another. Its defaults, which no key of the file has, are left out.
    """
    kinds = {name.partition(".")[0] for name in needs if "." in name}
    asked = {one.attribute for one in translation.questions}
    blocks: list[ImportedBlock] = []
    for block in translation.blocks:
        label, settings = labels.get(block.kind), block.settings
        if label is not None and block.kind in asked and " extends " not in block.label:
            settings = [one for one in settings if one.key or not one.assumption]
        elif block.kind not in kinds or block.label:
            label = None
        blocks.append(block if label is None else evolve(block, label=label, settings=settings))
    return evolve(translation, blocks=blocks)


def stated_values(translation: Translation, subject: ImportSubject) -> Iterator[ImportedValue]:
    """Yield the values of a subject that the file states, catalogue entries first."""
    names = set(subject.attributes)
    yield from (use for use in translation.uses if not use.assumption and _names(use, names))
    for path, one in paths(translation.blocks):
        if not one.assumption and (path in names or path.partition(".")[0] in names):
            yield one


def paths(blocks: Iterable[ImportedBlock]) -> Iterator[tuple[str, ImportedValue]]:
    """Yield every setting of *blocks* under its path, such as ``layout.tp``."""
    for block in blocks:
        yield from ((f"{block.kind}.{one.name}", one) for one in block.settings)
        yield from paths(block.blocks)


def _leave_out(
    blocks: Iterable[ImportedBlock], dropped: Collection[str]
) -> Iterator[ImportedBlock]:
    for block in blocks:
        settings = [
            one
            for one in block.settings
            if not one.assumption or not ({block.kind, f"{block.kind}.{one.name}"} & set(dropped))
        ]
        inner = list(_leave_out(block.blocks, dropped))
        if settings or inner or not (block.settings or block.blocks):
            yield evolve(block, settings=settings, blocks=inner)


def _names(use: ImportedValue, names: Iterable[str]) -> bool:
    """Return whether a catalogue entry lies in one of the folders *names*."""
    return use.value.partition(" ")[0].rpartition(".")[0] in names


class _State:
    """The attributes and folders that a translation states, and those that it assumes."""

    def __init__(self, importer: Importer, translation: Translation) -> None:
        self._importer = importer
        self._stated: set[str] = set()
        self._assumed: dict[str, ImportedValue] = {}
        self._kinds = {block.kind for block in translation.blocks}
        for use in translation.uses:
            self._add(use.value.partition(" ")[0].rpartition(".")[0], use)
        for path, one in paths(translation.blocks):
            self._add(path, one)
            self._add(path.partition(".")[0], one)

    def _add(self, name: str, one: ImportedValue) -> None:
        if one.assumption and not _OF_THE_FILE.fullmatch(one.assumption):
            self._assumed.setdefault(name, one)
        else:
            self._stated.add(name)

    def is_answered(self, subject: ImportSubject) -> bool:
        """Return whether the subject is stated, or no default is used silently."""
        names = subject.attributes
        if any(name in self._stated for name in names):
            return True
        if any(name in self._assumed for name in names):
            return False
        if subject.within:
            return subject.within not in self._kinds | self._stated | self._assumed.keys()
        return any(name in self._importer.needs for name in names)

    def question(self, key: ImportedKey, subject: ImportSubject) -> ImportQuestion:
        """Return the question for a subject that *key* may set."""
        path = subject.attributes[0]
        reason = f"`{key.name}`: {key.reason}"
        if not key.reason:
            reason = f"`{key.name}`, which is not in parcost's table of {self._title}, may set it"
        assumed = next((self._assumed[n] for n in subject.attributes if n in self._assumed), None)
        answers = list(subject.answers)
        if assumed is not None:
            reason += f"; without that key it is {assumed.value} ({assumed.assumption})"
            usual = f"--set {path}={assumed.value}"
            if assumed.name == "use":
                usual = f"--use {assumed.value}"
            own = assumed.name in ("use", path.rpartition(".")[2])  # not another of the subject
            if own and "." in path and " " not in assumed.value and usual not in answers:
                answers.insert(0, usual)
        return ImportQuestion(
            attribute=path,
            reason=reason,
            answers=tuple(answers),
            start=key.start,
            end=key.end,
            also=tuple(subject.attributes[1:]),
        )

    @property
    def _title(self) -> str:
        return self._importer.title


def _subjects_of(key: ImportedKey, subjects: Sequence[ImportSubject]) -> Iterator[ImportSubject]:
    """Yield the subjects that a key may set, by its attribute or by the words of its name."""
    if key.attribute:
        kind = key.attribute.partition(".")[0]
        yield from (one for one in subjects if {key.attribute, kind} & set(one.attributes))
        return
    name = key.name[:_LONGEST]
    words = frozenset(_singular(word.lower()) for word in _WORD.findall(name))
    letters = _OTHERS.sub("", "".join(one for one in name.lower() if one.isalnum()))
    patterns = _patterns(tuple((one.name, tuple(one.words)) for one in subjects))
    yield from (
        one
        for one in subjects
        if any(
            all(word in words or (len(word) >= _LONG and word in letters) for word in pattern)
            for pattern in patterns[one.name]
        )
    )


@cache
def _patterns(
    subjects: tuple[tuple[str, tuple[str, ...]], ...],
) -> Mapping[str, Sequence[Sequence[str]]]:
    """Return the words of each subject, split."""
    return {
        name: [[_singular(word) for word in entry.split()] for entry in entries]
        for name, entries in subjects
    }


def _singular(word: str) -> str:
    """Return a word without the `s` of a plural."""
    return word[:-1] if len(word) > 3 and word.endswith("s") and not word.endswith("ss") else word


@cache
def _sections(keys: frozenset[str]) -> re.Pattern[str]:
    """Return a regular expression for the keys with a wildcard, which match whole sections."""
    return re.compile("|".join(translate(one) for one in sorted(keys) if "*" in one) or "(?!)")
