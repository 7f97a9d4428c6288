"""Files of other tools as modules.

A translation is first written as a spec, one line for each attribute. The syntax tree is parsed
from this text, with spans in the original file. So `parcost import` writes the text that an
evaluation reads.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from attrs import evolve, field, fields, has

from parcost.binding.deciding import paths, with_doubts, with_questions, with_references
from parcost.binding.misspelled import with_corrections
from parcost.contract.calls import CallError, call
from parcost.contract.importers import (
    PLAIN,
    ImportedBlock,
    ImportedKey,
    ImportedValue,
    Importer,
    ImportFile,
    ImportOptions,
    ImportQuestion,
    Translation,
    no_neighbor,
)
from parcost.language import syntax as s
from parcost.language.diagnostics import Diagnostic, Severity, did_you_mean, problem, type_name
from parcost.language.errors import PluginError, SpecError
from parcost.language.parse import parse
from parcost.language.text import Source, Span
from parcost.language.writer import block_lines, provenance
from parcost.records import frozen, record
from parcost.system.files import failure

T = TypeVar("T")

_MOST_NAMES = 12  # in a message


@frozen(slots=False, eq=False)
class ForeignSource(Source):
    """The text of a file of another tool, and the *settings* that were read from it.

    *needs* maps attributes that such files may lack to the importer that has options for them.
    *questions* are settings that decide the cost and are unknown. *others* are further files of
    the job.
    """

    settings: Sequence[tuple[str, ImportedValue]] = field(default=(), repr=False)
    needs: Mapping[str, Importer] = field(factory=dict, repr=False)
    questions: Sequence[ImportQuestion] = field(default=(), repr=False)
    assumptions: Sequence[tuple[str, str, str]] = field(default=(), repr=False)
    others: Sequence[ForeignSource] = field(default=(), repr=False)

    def note(self, offset: int) -> str:
        """Return a note with the attribute that was read at *offset*, or ""."""
        for block, setting in self.settings:
            if setting.start <= offset < setting.end:
                return f"`{setting.key}` is `{block}.{setting.name}` here"
        return ""


@frozen
class SpecLine:
    """A line of a spec, and the range of characters in *file* that it was read from."""

    text: str
    start: int = 0
    end: int = 0
    file: str = ""


@record(kw_only=True)
class ImportedFile:
    """A file of another tool, and its translation."""

    source: Source
    importer: Importer
    translation: Translation
    neighbor: Callable[[str], str | None] = no_neighbor


@record(kw_only=True)
class ImportedJob:
    """Files of one job as a joint *translation*, the *files*, and *warnings*."""

    translation: Translation
    files: Sequence[ImportedFile]
    warnings: Sequence[Diagnostic] = ()


def importer_for(
    name: str,
    text: str,
    importers: Mapping[str, Importer],
    tool: str = "",
    neighbor: Callable[[str], str | None] = no_neighbor,
) -> Importer:
    """Return the importer called *tool*, or the only one that recognizes the file *name*.

    If none recognizes it, the format of the files that it starts is used, if *neighbor* has them.

    Raises:
        SpecError: There is none, or several do.
    """
    if tool:
        if tool in importers:
            return importers[tool]
        known = did_you_mean(tool, importers) or "formats: " + ", ".join(sorted(importers))
        raise failure("unknown-format", f"no plugin reads files of `{tool}`", name, known)
    found = [n for n, one in importers.items() if _call(one, one.recognizes, name, text)]
    if len(found) == 1:
        return importers[found[0]]
    if found:
        message = f"`{name}` has keys of {len(found)} formats: {_names(sorted(found))}"
        ways = " or ".join(f"`--from {one}`" for one in sorted(found))
        raise failure("ambiguous-format", message, name, f"choose one by {ways}")
    file = ImportFile(name, text, neighbor=neighbor)
    started = [found for one in importers.values() for found in _call(one, one.starts, file)]
    for one in started:
        if any(_call(it, it.recognizes, one.name, one.text) for it in importers.values()):
            return importer_for(one.name, one.text, importers)
    missing = [*dict.fromkeys(one.name for one in started if not one.text)]
    help = (
        "choose a format of `parcost import --list` with --from NAME; for a job of another tool, "
        "write a spec, or evaluate its `config.json` with options"
    )
    message = f"`{name}` is not a spec, and its format was not recognised"
    if missing:
        message = f"`{name}` starts another file, which has the job: {_names(missing)}"
        help = (
            f"put `{missing[0]}` into the folder of `{name}`, or evaluate `{missing[0]}` with "
            "--set for the values that the command changes"
        )
        if there := [one for one in missing if neighbor(one) is not None]:
            others = [f"`{one}`" for one in there[1:]]
            changing = " and ".join([", ".join(others[:_MOST_NAMES]), "the command"][not others :])
            verb = "change" if others else "changes"
            help = f"evaluate `{there[0]}`, and state by --set what {changing} {verb} of it"
    raise failure("not-a-spec", message, name, help)


def _check_match(importer: Importer, source: Source, translation: Translation) -> None:
    """Reject a file in which the importer found no key that it reads.

    Raises:
        SpecError: No key was read.
    """
    values = (*translation.uses, *(one for _, one in paths(translation.blocks)))
    if any(one.key or one.end for one in (*values, *translation.facts)):
        return
    if translation.questions or any(one.end for one in translation.missing):
        return
    keys = _names(one.name for one in translation.unknown)
    also = f"; it has {keys}" if keys else ""
    raise failure(
        "import-nothing",
        f"no key of {importer.title} was read in `{source.name}`{also}",
        source.name,
        "choose another format by `--from`: `parcost import --list` lists them",
    )


def translate(
    importer: Importer,
    source: Source,
    options: ImportOptions = PLAIN,
    neighbor: Callable[[str], str | None] | None = None,
    others: Mapping[str, str] | None = None,
) -> Translation:
    """Return the file *source* as a translation; *neighbor* returns texts of files next to it.

    *others* are the texts of further files of the job, by name.

    Raises:
        SpecError: The file has errors.
        PluginError: The importer fails.
    """
    file = ImportFile(source.name, source.text, options, others=others or {})
    if neighbor is not None:
        file = evolve(file, neighbor=neighbor)
    found: object = _call(importer, importer.read, file)
    if not isinstance(found, Translation):
        message = f"`translate` returned {type_name(found)} where Translation is expected"
        raise PluginError(f"importer `{importer.name}`: {message}")
    if found.problems:
        raise SpecError(
            [
                problem("import", p.message, Span(source, p.start, p.end), help=p.help or None)
                for p in found.problems
            ]
        )
    _check_match(importer, source, found)

    def read(other: ImportFile) -> Translation:
        return _call(importer, importer.read, other)

    asking = with_questions(importer, with_doubts(importer, found))
    return with_references(importer, with_corrections(importer, file, asking, read))


def unused_options(
    files: Sequence[ImportedFile], options: ImportOptions, spec: str = ""
) -> Iterator[Diagnostic]:
    """Yield a warning for each import option that changes the translation of no file.

    Without *files*, the options were given for a *spec*, which uses none of them.
    """
    given: list[tuple[str, ImportOptions]] = [
        (f"--set-env {name}", evolve(options, environment=_without(options.environment, name)))
        for name, _ in options.environment
    ]
    if options.recipe:
        given.append((f"--recipe {options.recipe}", evolve(options, recipe="")))
    if options.family:
        given.append((f"--as {options.family}", evolve(options, family="")))
    if options.text_only:
        given.append(("--text-only", evolve(options, text_only=False)))
    for option, without in given:
        if any(_differs(file, options, without) for file in files):
            continue
        names = [file.source.name for file in files] or [spec]
        yield Diagnostic(
            "import-option",
            f"`{option}` has no effect on {_names(names)}",
            place=names[0],
            help="leave it out, or check the name and the file",
            severity=Severity.WARNING,
        )


def _without(variables: Iterable[tuple[str, str]], name: str) -> tuple[tuple[str, str], ...]:
    return tuple(pair for pair in variables if pair[0] != name)


def _differs(file: ImportedFile, options: ImportOptions, without: ImportOptions) -> bool:
    """Return whether an importer reads a file differently without an option."""
    if type(file.importer).read is Importer.read:  # it sees no option
        return False
    source = file.source
    first, second = (
        _call(
            file.importer,
            file.importer.read,
            ImportFile(source.name, source.text, one, file.neighbor),
        )
        for one in (options, without)
    )
    return first != second


def parse_foreign(
    job: ImportedJob, given: Collection[str] = ()
) -> tuple[Source, s.Block, list[Diagnostic]]:
    """Return files of other tools as a syntax tree, and warnings about missing and unknown keys.

    The source is the first file. No warning lists a key whose attribute is *given*.

    Raises:
        PluginError: An importer writes an invalid spec.
    """
    settings = list(_settings(job.translation.blocks))
    sources: dict[str, ForeignSource] = {}
    for file in reversed(job.files):
        name = file.source.name
        sources[name] = ForeignSource(
            name,
            file.source.text,
            [one for one in settings if one[1].file in ("", name)],
            _needs(job.files),
            file.translation.questions,
            list(_assumptions(job.translation)),
            list(sources.values())[::-1],
        )
    first = sources[job.files[0].source.name]
    lines = list(spec_lines(job.translation))
    tree, errors = parse(Source(first.name, "\n".join(line.text for line in lines)))
    if errors:
        names = ", ".join(f"`{file.importer.name}`" for file in job.files)
        raise PluginError(f"importer {names} wrote: {errors[0].message}")
    placed = _Places(sources, first, lines).of(tree)
    remarks = [
        remark
        for file in job.files
        for remark in _remarks(file.importer, sources[file.source.name], file.translation, given)
    ]
    return first, placed, [*job.warnings, *remarks]


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
    """Yield the lines of the spec that a translation is written as."""
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
    read = [SpecLine("", one.start, one.end, one.file) for one in block.settings]
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
    importer: Importer, source: ForeignSource, translation: Translation, given: Collection[str]
) -> Iterator[Diagnostic]:
    """Yield warnings about keys that are in no table, and about settings that the file lacks."""
    missing = [key for key in translation.missing if key.attribute not in given]
    unknown = [key for key in translation.unknown if key.attribute not in given]
    if missing:
        first = missing[0]
        yield problem(
            "import-missing",
            f"in `{source.name}`, affects step time but could not be used: "
            f"{_names(key.name for key in missing)}",
            Span(source, first.start, first.end),
            "not set",
            help=first.reason or None,
            severity=Severity.WARNING,
        )
    strange = [key for key in unknown if not key.reason]
    if strange:
        first = strange[0]
        yield problem(
            "import-unknown",
            f"`{source.name}` has {_count(strange)} not in parcost's table of {importer.title}: "
            f"{_names(key.name for key in strange)}",
            Span(source, first.start, first.end),
            "not read",
            notes=_may_change(source, strange),
            severity=Severity.WARNING,
        )
    unread = [key for key in unknown if key.reason]
    if unread:
        first = unread[0]
        yield problem(
            "import-unread",
            f"in `{source.name}`, could not be read: {_names(key.name for key in unread)}",
            Span(source, first.start, first.end),
            "not read",
            notes=list(dict.fromkeys(f"`{k.name}`: {k.reason}" for k in unread))[:_MOST_NAMES],
            severity=Severity.WARNING,
        )


def _may_change(source: ForeignSource, keys: Iterable[ImportedKey]) -> list[str]:
    """Return a note with the assumed values that the unknown keys might change."""
    kinds = {key.attribute.partition(".")[0] for key in keys if key.attribute}
    values = [
        f"{path} = {value}"
        for path, value, _ in source.assumptions
        if not kinds or path.partition(".")[0] in kinds
    ]
    if not values:
        return []
    return [f"it might change what is assumed: {_names(values)}"]


def _count(keys: Sequence[ImportedKey]) -> str:
    return "1 key" if len(keys) == 1 else f"{len(keys)} keys"


def _names(names: Iterable[str]) -> str:
    listed = list(dict.fromkeys(names))
    more = f" and {len(listed) - _MOST_NAMES} more" if len(listed) > _MOST_NAMES else ""
    return ", ".join(f"`{name}`" for name in listed[:_MOST_NAMES]) + more


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

    def of(self, node: Any) -> Any:
        """Return a node of the syntax tree with its spans moved to the file."""
        if not self._spans:
            return node
        if isinstance(node, Span):
            return self._spans[bisect_right(self._starts, node.start) - 1]
        if isinstance(node, tuple):
            return tuple(map(self.of, node))
        if has(type(node)):
            changed = {f.alias: self.of(getattr(node, f.name)) for f in fields(type(node))}
            return evolve(node, **changed)
        return node


def _call(importer: Importer, function: Callable[..., T], *arguments: object) -> T:
    """Return the result of a function of an importer.

    Raises:
        PluginError: The function raises.
    """
    try:
        return call(function, *arguments)
    except CallError as error:
        raise PluginError(f"importer `{importer.name}` {error}") from error
