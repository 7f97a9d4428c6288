"""Files of other tools as modules.

A translation is written as a spec first, a line for each attribute. The tree is that of this text
with the places of the file. So `parcost import` writes what an evaluation reads.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from attrs import evolve, field, fields, frozen, has

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
)
from parcost.language import syntax as s
from parcost.language.diagnostics import Diagnostic, Severity, did_you_mean, problem, type_name
from parcost.language.errors import PluginError, SpecError
from parcost.language.parse import parse
from parcost.language.text import Source, Span
from parcost.system.files import failure

T = TypeVar("T")

_INDENT = "  "
_MOST_NAMES = 12  # in a message


@frozen(slots=False, eq=False)
class ForeignSource(Source):
    """The text of a file of another tool; *settings* are what it is read as.

    *needs* are options by the attributes of a job that such files may lack. *questions* are
    settings that decide the cost and are unknown.
    """

    settings: Sequence[tuple[str, ImportedValue]] = field(default=(), repr=False)
    needs: Mapping[str, str] = field(factory=dict, repr=False)
    questions: Sequence[ImportQuestion] = field(default=(), repr=False)

    def note(self, offset: int) -> str:
        """Return which attribute is read at *offset*."""
        for block, setting in self.settings:
            if setting.start <= offset < setting.end:
                return f"`{setting.key}` is `{block}.{setting.name}` here"
        return ""


@frozen
class SpecLine:
    """A line of a spec, and the characters of the file that it comes from."""

    text: str
    start: int = 0
    end: int = 0


def importer_for(
    name: str, text: str, importers: Mapping[str, Importer], tool: str = ""
) -> Importer:
    """Return the importer called *tool*, or the one that recognizes the file *name*.

    Raises:
        SpecError: There is none.
    """
    if tool:
        if tool in importers:
            return importers[tool]
        known = did_you_mean(tool, importers) or "formats: " + ", ".join(sorted(importers))
        raise failure("unknown-format", f"no plugin reads files of `{tool}`", name, known)
    for importer in importers.values():
        if _call(importer, importer.recognizes, name, text):
            return importer
    names = ", ".join(f"`{known}`" for known in sorted(importers))
    help = f"name its format by `--from`: {names}" if names else None
    raise failure("not-a-spec", f"`{name}` is no spec, and no file of a known tool", name, help)


def translate(importer: Importer, source: Source, options: ImportOptions = PLAIN) -> Translation:
    """Return the file *source* as blocks.

    Raises:
        SpecError: The file has errors.
        PluginError: The importer fails.
    """
    file = ImportFile(source.name, source.text, options)
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
    return found


def parse_foreign(
    importer: Importer, source: Source, options: ImportOptions = PLAIN
) -> tuple[Source, s.Block, list[Diagnostic]]:
    """Return a file of another tool as a syntax tree, and what it lacks as diagnostics.

    Raises:
        SpecError: The file has errors.
        PluginError: The importer fails, or writes what is no spec.
    """
    translation = translate(importer, source, options)
    settings = tuple(_settings(translation.blocks))
    named = ForeignSource(source.name, source.text, settings, importer.needs, translation.questions)
    lines = list(spec_lines(translation))
    tree, errors = parse(Source(source.name, "\n".join(line.text for line in lines)))
    if errors:
        raise PluginError(f"importer `{importer.name}` wrote: {errors[0].message}")
    placed = _Places(named, lines).of(tree)
    return named, placed, list(_remarks(importer, named, translation))


def spec_lines(translation: Translation) -> Iterator[SpecLine]:
    """Yield the lines of the spec that a translation is."""
    for use in translation.uses:
        why = ": ".join(" ".join(text.split()) for text in (use.key, use.assumption) if text)
        comment = f"  # {why}" if why else ""
        yield SpecLine(f"use {use.value}{comment}", use.start, use.end)
    for block in translation.blocks:
        yield SpecLine("")
        yield from _block_lines(block, "")


def _block_lines(block: ImportedBlock, margin: str) -> Iterator[SpecLine]:
    places = [(one.start, one.end) for one in block.settings if one.end]
    start, end = min(places, default=(0, 0)), max(places, default=(0, 0))
    label = f" {block.label}" if block.label else ""
    yield SpecLine(f"{margin}{block.kind}{label} {{", start[0], start[1])
    wide = max((len(setting.name) for setting in block.settings), default=0)
    inner = margin + _INDENT
    for setting in block.settings:
        why = f' @assumed("{_quotable(setting.assumption)}")' if setting.assumption else ""
        key = f"  # {' '.join(setting.key.split())}" if setting.key else ""
        text = f"{inner}{setting.name:{wide}} = {setting.value}{why}{key}"
        yield SpecLine(text, setting.start, setting.end)
    for one in block.blocks:
        yield from _block_lines(one, inner)
    yield SpecLine(f"{margin}}}", *end)


def _quotable(text: str) -> str:
    return " ".join(text.replace('"', "'").split())


def _settings(blocks: Iterable[ImportedBlock]) -> Iterator[tuple[str, ImportedValue]]:
    """Yield the settings that have a place in the file, with the kind of their block."""
    for block in blocks:
        yield from ((block.kind, one) for one in block.settings if one.key and one.end)
        yield from _settings(block.blocks)


def _remarks(
    importer: Importer, source: ForeignSource, translation: Translation
) -> Iterator[Diagnostic]:
    """Yield warnings of the keys that are in no table, and of what the file does not set."""
    if translation.missing:
        first = translation.missing[0]
        yield problem(
            "import-missing",
            f"in `{source.name}`, what changes the cost and sets nothing: "
            f"{_names(key.name for key in translation.missing)}",
            Span(source, first.start, first.end),
            "not set",
            help=first.reason or None,
            severity=Severity.WARNING,
        )
    if translation.unknown:
        first = translation.unknown[0]
        yield problem(
            "import-unknown",
            f"`{source.name}` has {_count(translation.unknown)} that {importer.title} does not "
            f"have by our table: {_names(key.name for key in translation.unknown)}",
            Span(source, first.start, first.end),
            "not read",
            notes=[f"`{k.name}`: {k.reason}" for k in translation.unknown if k.reason][
                :_MOST_NAMES
            ],
            severity=Severity.WARNING,
        )


def _count(keys: Sequence[ImportedKey]) -> str:
    return "1 key" if len(keys) == 1 else f"{len(keys)} keys"


def _names(names: Iterable[str]) -> str:
    listed = list(dict.fromkeys(names))
    more = f" and {len(listed) - _MOST_NAMES} more" if len(listed) > _MOST_NAMES else ""
    return ", ".join(f"`{name}`" for name in listed[:_MOST_NAMES]) + more


class _Places:
    """The places of a spec's lines in the file of another tool."""

    def __init__(self, source: Source, lines: Sequence[SpecLine]) -> None:
        self._spans = [Span(source, line.start, line.end) for line in lines]
        self._starts: list[int] = []
        at = 0
        for line in lines:
            self._starts.append(at)
            at += len(line.text) + 1

    def of(self, node: Any) -> Any:
        """Return a node of the syntax tree, placed in the file."""
        if isinstance(node, Span):
            return self._spans[bisect_right(self._starts, node.start) - 1]
        if isinstance(node, tuple):
            return tuple(map(self.of, node))
        if has(type(node)):
            changed = {f.alias: self.of(getattr(node, f.name)) for f in fields(type(node))}
            return evolve(node, **changed)
        return node


def _call(importer: Importer, function: Callable[..., T], *arguments: object) -> T:
    """Return what a function of an importer returns.

    Raises:
        PluginError: It raises.
    """
    try:
        return call(function, *arguments)
    except CallError as error:
        raise PluginError(f"importer `{importer.name}` {error}") from error
