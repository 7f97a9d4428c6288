"""Files of other tools that describe one job, joined into one translation.

One file describes a kind of block in full, and other files state parts of it. They are merged into
one block. A value that differs is an error at both places. If a file relies on a default of its
tool, the value of the full block is used instead. A warning lists the defaults that differ.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from attrs import evolve

from parcost.binding.values import Quantity, chain
from parcost.contract.importers import (
    ImportedBlock,
    ImportedKey,
    ImportedValue,
    Translation,
)
from parcost.contract.schema import block_type
from parcost.engine.session import Session
from parcost.language.diagnostics import Diagnostic, Severity, problem
from parcost.language.errors import SpecError
from parcost.language.numbers import spec_text
from parcost.language.parse import parse
from parcost.language.syntax import Attribute, Chain, Number
from parcost.language.text import Source, Span
from parcost.language.units import ONE, Dimension, unit
from parcost_formats.imports.spec_text import spec_lines
from parcost_formats.imports.subjects import drop_assumptions, paths
from parcost_formats.imports.translation import ImportedFile, ImportedJob


def join_files(files: Sequence[ImportedFile], session: Session) -> ImportedJob:
    """Return several files as one job.

    Raises:
        SpecError: Two files contradict one another.
    """
    warnings: list[Diagnostic] = []
    parts = {name for one in files for name in one.translation.parts}
    files = [
        evolve(one, translation=Translation()) if one.source.name in parts else _with_names(one)
        for one in files
    ]
    facts = [ImportedBlock(kind="", settings=one.translation.facts) for one in files]
    _settings("", zip((one.source for one in files), facts, strict=True))
    for kind in dict.fromkeys(kind for one in files for kind in one.importer.describes):
        owned = [(f, b) for f in files if kind in f.importer.describes for b in _of_kind(f, kind)]
        if len(owned) == 1:
            description = _Description(*owned[0], session)
            files = description.share(files)
            warnings += description.warnings
    known = [_stated_names(one, session) for one in files]
    files = [
        _drop_assumptions(file, set().union(*known[:at], *known[at + 1 :]))
        for at, file in enumerate(files)
    ]
    imported: dict[str, ImportedValue] = {}
    for use in (use for one in files for use in one.translation.uses):
        imported.setdefault(use.value, use)
    blocks = _merge([(one.source, block) for one in files for block in one.translation.blocks])
    translation = Translation(uses=list(imported.values()), blocks=blocks)
    files = [
        _part(file, blocks, set().union(*known[:at], *known[at + 1 :]))
        for at, file in enumerate(files)
    ]
    return ImportedJob(translation=translation, files=files, warnings=warnings)


def _with_names(file: ImportedFile) -> ImportedFile:
    """Return a file with its name added to each of its values."""
    name = file.source.name

    def name_block(block: ImportedBlock) -> ImportedBlock:
        settings = [evolve(one, file=name) for one in block.settings]
        return evolve(block, settings=settings, blocks=list(map(name_block, block.blocks)))

    translation = evolve(
        file.translation,
        uses=[evolve(use, file=name) for use in file.translation.uses],
        blocks=list(map(name_block, file.translation.blocks)),
    )
    return evolve(file, translation=translation)


def _of_kind(file: ImportedFile, kind: str) -> list[ImportedBlock]:
    return [block for block in file.translation.blocks if block.kind == kind]


class _Description:
    """The *block* that one file describes completely, and its merge with other files."""

    def __init__(self, file: ImportedFile, block: ImportedBlock, session: Session) -> None:
        self.warnings: list[Diagnostic] = []
        self._file, self._block, self._session = file, block, session
        self._settings = {one.name: one for one in block.settings}
        self._values = self._values_of(file.translation.uses, block)
        translation = file.translation
        keys = (*translation.ignored, *translation.unknown, *translation.missing)
        self._open = {key.attribute.partition(".")[2] for key in keys}

    def share(self, files: Sequence[ImportedFile]) -> list[ImportedFile]:
        """Return the files with one shared block; a file may use an equal catalogue entry instead.

        Raises:
            SpecError: A file states another value.
        """
        found: list[ImportedFile] = []
        is_entry = False
        for file in files:
            blocks = _of_kind(file, self._block.kind)
            if file is self._file or len(blocks) > 1:
                found.append(file)
            elif blocks:
                found.append(self._join(file, blocks[0]))
            else:
                is_entry = self._names_entry(file) or is_entry
                found.append(file)
        if not is_entry:
            return found
        kept = [block for block in self._file.translation.blocks if block is not self._block]
        rest = evolve(self._file, translation=evolve(self._file.translation, blocks=kept))
        return [rest if file is self._file else file for file in found]

    def _join(self, file: ImportedFile, block: ImportedBlock) -> ImportedFile:
        """Return a file whose *block* gets the shared label and keeps only the stated values."""
        stated = [one for one in block.settings if not one.assumption]
        names = {one.name for one in stated}
        others = self._values_of(file.translation.uses, block)
        differing = [name for name in self._differences(others) if name not in self._open]
        self._reject(file, {one.name: one for one in stated if one.name in differing})
        set_here = {one.name for one in block.settings} | self._settings.keys()
        left = [n for n in differing if n not in names and n in set_here]
        if left:
            self.warnings.append(self._default_warning(file, left, others))
        old, _, base = block.label.partition(" extends ")
        new = self._block.label
        blocks = [
            evolve(one, label=new, settings=stated)
            if one is block
            else self._rename_references(one, old, new.partition(" ")[0])
            for one in file.translation.blocks
        ]
        uses = [use for use in file.translation.uses if use.value.rpartition(".")[2] != base]
        return evolve(file, translation=evolve(file.translation, blocks=blocks, uses=uses))

    def _rename_references(self, block: ImportedBlock, old: str, new: str) -> ImportedBlock:
        """Return a block with references to label *old* replaced by label *new*."""
        type_ = self._session.plugins.blocks.get(block.kind)
        fields = type_.fields if type_ else {}  # binding reports a kind that no plugin has
        settings = [
            evolve(one, value=new)
            if one.value == old
            and one.name in fields
            and fields[one.name].target == self._block.kind
            else one
            for one in block.settings
        ]
        blocks = [self._rename_references(inner, old, new) for inner in block.blocks]
        return evolve(block, settings=settings, blocks=blocks)

    def _names_entry(self, file: ImportedFile) -> bool:
        """Return whether a file imports the block from the catalogue, with equal values.

        Raises:
            SpecError: The entry has other values than the shared block.
        """
        for use in file.translation.uses:
            for kind, label in _entries(use, self._session):
                if kind == self._block.kind:
                    others = self._values_of([use], ImportedBlock(kind=kind, label=label))
                    names = [n for n in self._differences(others) if n not in self._open]
                    stated = {n: evolve(use, name=n, value=_value_text(others[n])) for n in names}
                    self._reject(file, stated)
                    return True
        return False

    def _values_of(
        self, uses: Iterable[ImportedValue], block: ImportedBlock
    ) -> Mapping[str, object]:
        """Return the attributes of a block, with defaults; empty if the block has errors."""
        blocks = [block] if block.settings else []
        lines = spec_lines(Translation(uses=tuple(uses), blocks=blocks))
        text = "\n".join(line.text for line in lines)
        label = block.label.partition(" ")[0]
        try:
            study = self._session.load_text(text, "<import>")[0].first
        except SpecError:  # which a check of the spec reports with its place
            return {}
        for made in (one for blocks in study.blocks.values() for one in blocks):
            type_ = block_type(type(made))
            if type_.kind == block.kind and made.label == label:
                return {name: getattr(made, name) for name in type_.fields}
        return {}

    def _differences(self, others: Mapping[str, object]) -> list[str]:
        return [name for name, value in others.items() if self._values.get(name, value) != value]

    def _reject(self, file: ImportedFile, stated: Mapping[str, ImportedValue]) -> None:
        """Raise an error for each attribute that a file states with another value."""
        found = []
        for name, other in stated.items():
            own = self._settings.get(name, ImportedValue(name=name, value=""))
            value = own.value or _value_text(self._values[name])
            message = (
                f"`{self._block.kind}.{name}` is {value} in `{self._file.source.name}`, but "
                f"{other.value} in `{file.source.name}`"
            )
            found.append(_conflict(message, (self._file.source, own), (file.source, other)))
        if found:
            raise SpecError(found)

    def _default_warning(
        self, file: ImportedFile, names: Sequence[str], others: Mapping[str, object]
    ) -> Diagnostic:
        """Return the warning about defaults of a file's tool that differ from the shared block."""
        listed = ", ".join(
            f"`{name}` is {_value_text(self._values[name])} and not {_value_text(others[name])}"
            for name in names
        )
        own = self._settings.get(names[0], ImportedValue(name="", value=""))
        return problem(
            "import-default",
            f"`{file.source.name}` does not set values that `{self._file.source.name}` sets, and "
            f"the defaults of its tool differ: {listed}",
            Span(self._file.source, own.start, own.end),
            "taken",
            help=(
                f"add them to `{file.source.name}`, which otherwise runs with the defaults of its "
                "tool"
            ),
            severity=Severity.WARNING,
        )


def _value_text(value: object) -> str:
    """Return the value of an attribute as text for messages."""
    value = spec_text(value)
    return f"{value:.12g}" if isinstance(value, int | float) else str(value)


def _merge(pairs: Iterable[tuple[Source, ImportedBlock]]) -> list[ImportedBlock]:
    """Return the blocks, with blocks of equal kind and label merged."""
    groups: dict[tuple[str, str], list[tuple[Source, ImportedBlock]]] = {}
    for source, block in pairs:
        groups.setdefault((block.kind, block.label), []).append((source, block))
    return [
        ImportedBlock(
            kind=kind,
            label=label,
            settings=_settings(kind, group),
            blocks=_merge([(source, inner) for source, block in group for inner in block.blocks]),
        )
        for (kind, label), group in groups.items()
    ]


def _settings(
    kind: str, group: Iterable[tuple[Source, ImportedBlock]]
) -> tuple[ImportedValue, ...]:
    """Return the settings of several blocks merged; a stated value replaces an assumed one.

    Raises:
        SpecError: Two files set an attribute to different values.
    """
    found: dict[str, tuple[Source, ImportedValue]] = {}
    for source, setting in ((source, one) for source, block in group for one in block.settings):
        before, stated = found.get(setting.name), not setting.assumption
        if before is None or (before[1].assumption and stated):
            found[setting.name] = source, setting
        elif stated and not _are_equal(before[1].value, setting.value):
            path = f"{kind}.{setting.name}" if kind else setting.name
            message = (
                f"`{path}` is {before[1].value} in `{before[0].name}`, but {setting.value} in "
                f"`{source.name}`"
            )
            raise SpecError([_conflict(message, before, (source, setting))])
    return tuple(setting for _, setting in found.values())


def _are_equal(one: str, other: str) -> bool:
    """Return whether two expressions are the same text, or constants of one value.

    >>> _are_equal("8 * 8", "64"), _are_equal("1 KiB", "1024 B"), _are_equal("1 s", "1")
    (True, True, False)
    """
    first, second = _constant(one), _constant(other)
    return one == other or (first is not None and first == second)


def _constant(text: str) -> tuple[float, Dimension] | None:
    """Return the size and dimension of an expression of numbers, None for any other expression."""
    tree, errors = parse(Source("", f"value = {text}"))
    (item, *others) = tree.items or (None,)
    if errors or others or not isinstance(item, Attribute) or item.qualifiers:
        return None
    try:
        found = _value(item.value)
    except (SpecError, ValueError, KeyError):  # which an evaluation reports
        return None
    return found.number, found.dimension


def _value(node: object) -> Quantity:
    """Return the value of a number or of a chain of numbers.

    Raises:
        SpecError: The result is not finite.
        ValueError: The expression has names, or no number.
        KeyError: A unit is unknown.
    """
    if isinstance(node, Number):
        size, dimension = unit(node.unit) if node.unit else (1.0, ONE)
        return Quantity(float(node.text) * size, dimension)
    if isinstance(node, Chain):
        found = chain(node, [_value(one) for one in node.operands], masked=False)
        if isinstance(found, Quantity):
            return found
    raise ValueError("the value is not a constant")


def _conflict(
    message: str, first: tuple[Source, ImportedValue], second: tuple[Source, ImportedValue]
) -> Diagnostic:
    """Return an error that points at both values, or at the value whose place is known."""
    places = [
        (Span(source, one.start, one.end), f"`{one.key}`" if one.key else "")
        for source, one in (first, second)
    ]
    known = [place for place in places if place[0].end] or places
    return problem(
        "import-conflict", message, *known[0], also=known[1:], help="keep one of the two values"
    )


def _entries(use: ImportedValue, session: Session) -> list[tuple[str, str]]:
    """Return the kinds and labels of the catalogue blocks that a `use` of a file imports."""
    try:
        module = session.loader.text(f"use {use.value}", "<uses>")
    except SpecError:  # which an evaluation reports
        return []
    return [(block.kind.text, label) for _, block, label in module.imported_blocks]


def _drop_assumptions(file: ImportedFile, known: Collection[str]) -> ImportedFile:
    """Return a file without its assumptions about subjects that other files state."""
    given = {path for path in known if "." in path}
    translation = drop_assumptions(file.translation, file.importer.subjects, given)
    return evolve(file, translation=translation)


def _stated_names(file: ImportedFile, session: Session) -> set[str]:
    """Return the attributes that a file sets, and the kinds of its blocks."""
    translation = file.translation
    kinds = {block.kind for block in translation.blocks}
    kinds |= {kind for use in translation.uses for kind, _ in _entries(use, session)}
    stated = {
        path
        for path, one in paths(translation.blocks)
        if not one.assumption or path.partition(".")[0] in file.importer.describes
    }
    return kinds | stated


def _part(
    file: ImportedFile, blocks: Iterable[ImportedBlock], known: Collection[str]
) -> ImportedFile:
    """Return a file with its part of the joint job, without the *known* keys of other files."""
    used = list(paths(blocks))
    translation = file.translation

    def used_block(block: ImportedBlock) -> ImportedBlock:
        settings = [
            one
            for one in block.settings
            if not one.assumption or (f"{block.kind}.{one.name}", one) in used
        ]
        return evolve(block, settings=settings, blocks=list(map(used_block, block.blocks)))

    def open_keys(keys: Iterable[ImportedKey]) -> list[ImportedKey]:
        return [key for key in keys if key.attribute not in known]

    changed = evolve(
        translation,
        blocks=list(map(used_block, translation.blocks)),
        unknown=open_keys(translation.unknown),
        missing=open_keys(translation.missing),
        questions=[q for q in translation.questions if not {q.attribute, *q.also} & set(known)],
    )
    return evolve(file, translation=changed)
