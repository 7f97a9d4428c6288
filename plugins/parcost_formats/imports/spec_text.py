"""A translation as the text of a spec, and the syntax tree of this text.

The spec has one line for each attribute. The syntax tree is parsed from it, with spans in the
original file. So `parcost import` writes the text that an evaluation reads.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from attrs import evolve, fields, has

from parcost.contract.importers import (
    ForeignFile,
    ImportedBlock,
    ImportedKey,
    ImportedValue,
    Importer,
    Translation,
)
from parcost.language.diagnostics import Diagnostic, Severity, problem
from parcost.language.errors import PluginError
from parcost.language.parse import parse
from parcost.language.text import Source, Span
from parcost.language.writer import block_lines, provenance
from parcost.records import frozen
from parcost_formats.imports.neighbors import path_beside
from parcost_formats.imports.questions import ToolSource
from parcost_formats.imports.subjects import paths, strange_keys
from parcost_formats.imports.translation import MOST_NAMES, ImportedFile, ImportedJob, list_names


@frozen
class SpecLine:
    """A line of a spec, and the range of characters in *file* that it was read from."""

    text: str
    start: int = 0
    end: int = 0
    file: str = ""


def parse_job(job: ImportedJob, given: Collection[str] = ()) -> ForeignFile:
    """Return files of other tools as a syntax tree, with warnings about missing and unknown keys.

    The source is the first file. No warning lists a key whose attribute is *given*.

    Raises:
        PluginError: An importer writes an invalid spec.
    """
    settings = list(_settings(job.translation.blocks))
    lines = list(spec_lines(job.translation))
    spec = "\n".join(line.text for line in lines)
    sources: dict[str, ToolSource] = {}
    for file in reversed(job.files):
        name = file.source.name
        sources[name] = ToolSource(
            name,
            file.source.text,
            list(_assumptions(job.translation)),
            [one for one in settings if one[1].file in ("", name) and not one[1].beside],
            _needs(job.files),
            file.translation.questions,
            list(sources.values())[::-1],
            spec,
            list(strange_keys(file.importer, file.translation)),
        )
    first = sources[job.files[0].source.name]
    tree, errors = parse(Source(first.name, spec))
    if errors:
        names = ", ".join(f"`{file.importer.name}`" for file in job.files)
        raise PluginError(f"importer {names} wrote: {errors[0].message}")
    beside = _sources_beside(job, first, settings)
    placed = _Places({**sources, **beside}, first, lines).move(tree)
    remarks = [
        remark
        for file in job.files
        for remark in _remarks(file.importer, sources[file.source.name], file.translation, given)
    ]
    return ForeignFile(
        source=first, tree=placed, diagnostics=[*job.warnings, *remarks], beside=job.beside
    )


def _sources_beside(
    job: ImportedJob, first: ToolSource, settings: Sequence[tuple[str, ImportedValue]]
) -> dict[str, ToolSource]:
    """Return the other files that have settings of a job, by the name that refers to them."""
    found: dict[str, ToolSource] = {}
    for name in {one.beside.name: None for _, one in settings if one.beside}:
        text = next(filter(None, (file.neighbor(name) for file in job.files)), None)
        own = [
            (block, evolve(one, start=one.beside.start, end=one.beside.end))
            for block, one in settings
            if one.beside and one.beside.name == name
        ]
        if text is not None:
            path = path_beside(first.name, name)
            found[name] = evolve(first, name=path, text=text, settings=own, others=(), unknown=())
    return found


def _needs(files: Iterable[ImportedFile]) -> Mapping[str, Importer]:
    """Return the attributes that the files may lack, each with its importer."""
    return {path: file.importer for file in files for path in file.importer.needs}


def _assumptions(translation: Translation) -> Iterator[tuple[str, str, str]]:
    """Yield the attributes that are assumed, with their values and the reasons."""
    for use in translation.uses:
        if use.assumption:
            yield use.value.rpartition(".")[0].rpartition(".")[2], use.value, use.assumption
    for path, one in paths(translation.blocks):
        if one.assumption:
            yield path, one.value, one.assumption


def spec_lines(translation: Translation) -> Iterator[SpecLine]:
    """Yield the lines of a translation as a spec."""
    for use in translation.uses:
        why = ": ".join(" ".join(text.split()) for text in (use.key, use.assumption) if text)
        comment = f"  # {why}" if why else ""
        yield SpecLine(f"use {use.value}{comment}", use.start, use.end, use.file)
    for block in translation.blocks:
        yield SpecLine("")
        yield from _block_lines(block)


def _block_lines(block: ImportedBlock) -> list[SpecLine]:
    file = next((one.file for one in block.settings if one.end), "")
    places = [(one.start, one.end) for one in block.settings if one.end and one.file == file]
    start, end = min(places, default=(0, 0)), max(places, default=(0, 0))
    values = [(one.name, f"{one.value}{_assumption(one)}{_key(one.key)}") for one in block.settings]
    inner = [line for one in block.blocks for line in _block_lines(one)]
    heading = " ".join(filter(None, (block.kind, block.label)))
    texts = block_lines(heading, values, [line.text for line in inner])
    read = [
        SpecLine("", one.beside.start, one.beside.end, one.beside.name)
        if one.beside
        else SpecLine("", one.start, one.end, one.file)
        for one in block.settings
    ]
    lines = [SpecLine("", *start, file), *read, *inner, SpecLine("", *end, file)]
    return [evolve(line, text=text) for text, line in zip(texts, lines, strict=True)]


def _assumption(one: ImportedValue) -> str:
    return provenance("assumed", one.assumption) if one.assumption else ""


def _key(key: str) -> str:
    return f"  # {' '.join(key.split())}" if key else ""


def _settings(blocks: Iterable[ImportedBlock]) -> Iterator[tuple[str, ImportedValue]]:
    """Yield the settings that were read from the file, each with the kind of its block."""
    for block in blocks:
        yield from ((block.kind, one) for one in block.settings if one.key and one.end)
        yield from _settings(block.blocks)


def _remarks(
    importer: Importer, source: ToolSource, translation: Translation, given: Collection[str]
) -> Iterator[Diagnostic]:
    """Yield warnings about keys that are in no table, and about settings that the file lacks."""
    missing = [key for key in translation.missing if key.attribute not in given]
    unknown = [key for key in translation.unknown if key.attribute not in given]
    if missing:
        message, notes = _list_reasons(missing)
        yield problem(
            "import-missing",
            f"settings in `{source.name}` that affect step time but could not be used: {message}",
            Span(source, missing[0].start, missing[0].end),
            "not set",
            notes=notes,
            severity=Severity.WARNING,
        )
    strange = [key for key in unknown if not key.reason]
    if strange:
        first = strange[0]
        yield problem(
            "import-unknown",
            f"`{source.name}` has {_count(strange)} not in parcost's table of {importer.title}: "
            f"{list_names(key.name for key in strange)}",
            Span(source, first.start, first.end),
            "not read",
            notes=_may_change(source, strange),
            severity=Severity.WARNING,
        )
    unread = [key for key in unknown if key.reason]
    if unread:
        message, notes = _list_reasons(unread)
        yield problem(
            "import-unread",
            f"settings in `{source.name}` that are not used: {message}",
            Span(source, unread[0].start, unread[0].end),
            "not read",
            notes=notes,
            severity=Severity.WARNING,
        )


def _list_reasons(keys: Sequence[ImportedKey]) -> tuple[str, Sequence[str]]:
    """Return the names of keys, with the reason of a single one, and the reasons of several."""
    names = list_names(key.name for key in keys)
    if len(keys) == 1:
        return ": ".join(filter(None, [names, keys[0].reason])), ()
    reasons = dict.fromkeys(f"`{key.name}`: {key.reason}" for key in keys if key.reason)
    return names, list(reasons)[:MOST_NAMES]


def _may_change(source: ToolSource, keys: Iterable[ImportedKey]) -> list[str]:
    """Return a note with the assumed values that the unknown keys might change."""
    kinds = {key.attribute.partition(".")[0] for key in keys if key.attribute}
    values = [
        f"{path} = {value}"
        for path, value, _ in source.assumptions
        if not kinds or path.partition(".")[0] in kinds
    ]
    if not values:
        return []
    return [f"it may change assumed values: {list_names(values)}"]


def _count(keys: Sequence[ImportedKey]) -> str:
    return "1 key" if len(keys) == 1 else f"{len(keys)} keys"


class _Places:
    """Maps offsets of the written spec to spans in the file of another tool."""

    def __init__(
        self, sources: Mapping[str, Source], first: Source, lines: Sequence[SpecLine]
    ) -> None:
        self._spans = [Span(sources.get(line.file, first), line.start, line.end) for line in lines]
        self._starts: list[int] = []
        at = 0
        for line in lines:
            self._starts.append(at)
            at += len(line.text) + 1

    def move(self, node: Any) -> Any:
        """Return a node of the syntax tree with its spans moved to the file."""
        if not self._spans:
            return node
        if isinstance(node, Span):
            return self._spans[bisect_right(self._starts, node.start) - 1]
        if isinstance(node, tuple):
            return tuple(map(self.move, node))
        if has(type(node)):
            changed = {f.alias: self.move(getattr(node, f.name)) for f in fields(type(node))}
            return evolve(node, **changed)
        return node
