"""The importer of a file, and its complete translation, including questions."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TypeVar

from attrs import evolve

from parcost.contract.calls import CallError, call
from parcost.contract.importers import (
    PLAIN,
    Importer,
    ImportFile,
    ImportOptions,
    ImportProblem,
    Translation,
    no_neighbor,
)
from parcost.language.diagnostics import Diagnostic, did_you_mean, problem, type_name
from parcost.language.errors import PluginError, SpecError
from parcost.language.text import Source, Span
from parcost.records import record
from parcost.system.files import failure
from parcost_formats.imports.candidates import describe, find_candidates, list_keys
from parcost_formats.imports.misspelled import with_corrections
from parcost_formats.imports.neighbors import path_beside
from parcost_formats.imports.subjects import paths, with_doubts, with_questions, with_references

T = TypeVar("T")

MOST_NAMES = 12  # in a message


@record(kw_only=True)
class ImportedFile:
    """A file of another tool, and its translation."""

    source: Source
    importer: Importer
    translation: Translation
    neighbor: Callable[[str], str | None] = no_neighbor


@record(kw_only=True)
class ImportedJob:
    """Files of one job as a joint *translation*, the *files*, and *warnings*.

    *beside* are the texts of all files that were read, except the first.
    """

    translation: Translation
    files: Sequence[ImportedFile]
    warnings: Sequence[Diagnostic] = ()
    beside: Mapping[Path, str] = MappingProxyType({})


_LONGEST = 1000  # characters of a word that may identify a tool
_LONG = re.compile(rf"[^\s\"'{{}}\[\],:;]{{{_LONGEST},}}")


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
        SpecError: No importer recognizes the file, or several do.
    """
    if tool:
        if tool in importers:
            return importers[tool]
        known = did_you_mean(tool, importers) or "formats: " + ", ".join(sorted(importers))
        raise failure("unknown-format", f"no plugin reads files of `{tool}`", name, known)
    shown = _LONG.sub(lambda word: word[0][:_LONGEST], text)
    found = [n for n, one in importers.items() if _call(one, one.recognizes, name, shown)]
    if len(found) == 1:
        return importers[found[0]]
    if found:
        message = f"`{name}` has keys of {len(found)} formats: {list_names(sorted(found))}"
        ways = " or ".join(f"`--from {one}`" for one in sorted(found))
        raise failure("ambiguous-format", message, name, f"choose one by {ways}")
    if name.lower().endswith(".par"):
        message = f"`{name}` has the suffix of a spec, but `parcost import` reads other formats"
        help = f"run `parcost eval {name}`, or `parcost show {name}` for the values"
        raise failure("not-a-spec", message, name, help)
    file = ImportFile(name, text, neighbor=neighbor)
    started = [found for one in importers.values() for found in _call(one, one.starts, file)]
    for one in started:
        if any(_call(it, it.recognizes, one.name, one.text) for it in importers.values()):
            return importer_for(one.name, one.text, importers)
    raise _unknown_format(file, importers, started)


def _unknown_format(
    file: ImportFile, importers: Mapping[str, Importer], started: Sequence[ImportFile]
) -> SpecError:
    """Return the error of a file that no importer recognizes; it starts the files *started*."""
    missing = [*dict.fromkeys(one.name for one in started if not one.text)]
    help = (
        "choose a format of `parcost import --list` with --from NAME; for a job of another tool, "
        "write a spec, or evaluate its `config.json` with options"
    )
    message = f"`{file.name}` is not a spec, and its format was not recognised"
    if missing:
        message = (
            f"`{file.name}` starts another file, which describes the job: {list_names(missing)}"
        )
        help = (
            f"put `{missing[0]}` into the folder of `{file.name}`, or evaluate `{missing[0]}` with "
            "--set for the values that the command changes"
        )
        if there := [one for one in missing if file.neighbor(one) is not None]:
            others = [f"`{one}`" for one in there[1:]]
            changing = " and ".join([", ".join(others[:MOST_NAMES]), "the command"][not others :])
            verb = "change" if others else "changes"
            help = f"evaluate `{there[0]}`, and repeat with --set what {changing} {verb} of it"
    elif why := next(
        filter(None, (_call(it, it.explain, file) for it in importers.values())), None
    ):
        place = Span(Source(file.name, file.text), why.start, why.end)
        return SpecError([problem("not-a-spec", why.message, place, help=why.help or help)])
    else:

        def recognizes(importer: Importer, changed: str) -> bool:
            return _call(importer, importer.recognizes, file.name, changed)

        if candidates := find_candidates(file.name, file.text, importers, recognizes):
            said, help = describe(candidates, list_keys(file.name, file.text))
            message = f"{message}: {said}"
    return failure("not-a-spec", message, file.name, help)


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
    keys = list_names(one.name for one in translation.unknown)
    also = f"; it has {keys}" if keys else ""
    raise failure(
        "import-nothing",
        f"no key of {importer.title} was read in `{source.name}`{also}",
        source.name,
        "choose another format with `--from`: `parcost import --list` lists them",
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
                problem("import", p.message, _place(p, source, file), help=p.help or None)
                for p in found.problems
            ]
        )
    _check_match(importer, source, found)

    def read(other: ImportFile) -> Translation:
        return _call(importer, importer.read, other)

    asking = with_questions(importer, with_doubts(importer, found))
    return with_references(importer, with_corrections(importer, file, asking, read))


def _place(error: ImportProblem, source: Source, file: ImportFile) -> Span:
    """Return the place of an error: in a file, or in the neighbouring file that has the key."""
    beside = error.beside
    text = None if beside is None else file.neighbor(beside.name)
    if beside is None or text is None:
        return Span(source, error.start, error.end)
    return Span(Source(path_beside(source.name, beside.name), text), beside.start, beside.end)


def is_read_differently(file: ImportedFile, options: ImportOptions, without: ImportOptions) -> bool:
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


def list_names(names: Iterable[str]) -> str:
    """Return names in quotes, each once; a long list is cut, with the number of omitted names."""
    listed = list(dict.fromkeys(names))
    more = f" and {len(listed) - MOST_NAMES} more" if len(listed) > MOST_NAMES else ""
    return ", ".join(f"`{name}`" for name in listed[:MOST_NAMES]) + more


def _call(importer: Importer, function: Callable[..., T], *arguments: object) -> T:
    """Return the result of a function of an importer.

    Raises:
        PluginError: The function raises.
    """
    try:
        return call(function, *arguments)
    except CallError as error:
        raise PluginError(f"importer `{importer.name}` {error}") from error
