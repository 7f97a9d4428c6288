"""The reader of files of other tools: from a file, with options of the command line, to one job."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import islice, permutations
from pathlib import Path

from attrs import define, evolve

from parcost.binding import sources
from parcost.binding.modules import Module, use_items
from parcost.contract.hookspecs import hookimpl
from parcost.contract.importers import (
    FileReader,
    ForeignFile,
    ImportedValue,
    Importer,
    ImportOptions,
    ImportSubject,
    Translation,
)
from parcost.engine.session import Session
from parcost.language import syntax as s
from parcost.language.diagnostics import Diagnostic, problem
from parcost.language.errors import SpecError
from parcost.language.text import Source, Span
from parcost.system.files import split_recipe
from parcost_formats.imports.joint_job import join_files
from parcost_formats.imports.neighbors import Neighbors
from parcost_formats.imports.spec_text import parse_job
from parcost_formats.imports.subjects import (
    AddedBlock,
    drop_assumptions,
    drop_given_recipes,
    is_answered,
    merge_into_blocks,
    stated_values,
    with_added_values,
)
from parcost_formats.imports.translation import (
    ImportedFile,
    ImportedJob,
    importer_for,
    is_read_differently,
    translate,
)

#: Blocks that the command line adds, by kind.
Added = Mapping[str, AddedBlock]


class ToolFiles(FileReader):
    """The reader of files of other tools, which asks the importers of the session."""

    name = "tools"

    def read(
        self, source: Source, path: Path, options: ImportOptions, session: Session
    ) -> ForeignFile:
        """Return the file as a syntax tree, together with the further files of *options*."""
        given = {*options.set_paths, *_added_blocks(options, session)}
        return parse_job(read_job([(source, path)], options, session), given)

    def tool_of(self, name: str, kind: str, session: Session) -> str:
        """Return the importer that reads blocks of *kind* from the file *name*."""
        able = {n: one for n, one in importers_of(session).items() if kind in one.describes}
        if len(able) == 1:
            return next(iter(able))
        source = sources.read(Path(name), name)
        return importer_for(name, source.text, able).name


@hookimpl
def file_readers() -> list[FileReader]:
    return [ToolFiles()]


def importers_of(session: Session) -> Mapping[str, Importer]:
    """Return the importers of a session, by name."""
    return {name: one for name, (_, one) in session.plugins.offers("importers").items()}


def read_job(
    named: Sequence[tuple[Source, Path]], reading: ImportOptions, session: Session
) -> ImportedJob:
    """Return files of other tools as one job, together with the further files of *reading*.

    Raises:
        SpecError: A file has errors, or contradicts another one or the command line.
    """
    given = _added_blocks(reading, session)
    beside: dict[Path, str] = {}
    known: list[_NamedFile] = []
    problems: list[Diagnostic] = []
    foreign = [name for name in reading.files if not name.endswith(sources.SUFFIX)]
    files = [(source, path, reading.recipe) for source, path in named]
    for name, recipe in map(split_recipe, foreign):
        path = Path(name)
        try:
            source = sources.read(path, str(path))
            beside[path.resolve()] = source.text
            files.append((source, path, recipe or reading.recipe))
        except SpecError as error:
            problems += error.diagnostics
    importers = importers_of(session)
    for source, path, recipe in files:
        others = {one.name: one.text for one, _, _ in files if one is not source}
        one = _NamedFile(path.resolve(), source, Neighbors(path))
        known.append(one)
        try:
            several = bool(others)
            one.importer = _importer(source, reading.tool, one.near, importers, several=several)
            own = evolve(reading, recipe=recipe)
            one.found = _read_file(source, own, given, one.near, others, one.importer)
        except SpecError as error:
            one.problems = error.diagnostics
        beside |= one.near.read
    _mark_parts(known)
    problems += _other_configurations(known, importers)
    problems += _distinct_problems([one for one in known if not one.is_part])
    if problems:
        raise SpecError(problems)
    read = [
        evolve(one.found, translation=Translation()) if one.is_part else one.found
        for one in known
        if one.found is not None
    ]
    names = [file.source.name for file in read]
    unused = reading.unused_warnings(
        names, lambda other: any(is_read_differently(file, reading, other) for file in read)
    )
    job = (
        ImportedJob(translation=read[0].translation, files=read)
        if len(read) == 1
        else join_files(read, session)
    )
    return evolve(job, warnings=[*unused, *job.warnings], beside=beside)


@define(eq=False)
class _NamedFile:
    """A file that the user names: its place, files read beside it, and its job or errors.

    *is_part* is set if another file of the same importer has read it: a command reads the
    configuration that it names.
    """

    path: Path
    source: Source
    near: Neighbors
    importer: Importer | None = None
    found: ImportedFile | None = None
    problems: Sequence[Diagnostic] = ()
    is_part: bool = False


def _mark_parts(files: Sequence[_NamedFile]) -> None:
    """Mark the files that another file has read as its own."""
    for one in files:
        one.is_part = any(
            other.found is not None
            and not other.is_part
            and other is not one
            and other.importer is one.importer
            and one.path in other.near.read
            for other in files
        )


def _other_configurations(
    files: Sequence[_NamedFile], importers: Mapping[str, Importer]
) -> Iterator[Diagnostic]:
    """Yield an error for each file beside a script that names another one of its kind.

    The job would be a mixture of both configurations.
    """
    for script, other in permutations(files, 2):
        same = script.importer is other.importer and _kind(script.path) != _kind(other.path)
        if not same or script.is_part or other.path in script.near.read:
            continue
        for place, text in script.near.read.items():
            if _kind(place) == _kind(other.path):
                name, own = place.name, script.source
                if _importer_or_none(name, text, importers) is not other.importer:
                    continue
                start = max(own.text.find(name), 0)
                yield problem(
                    "import-conflict",
                    f"`{own.name}` reads `{name}`, and `{other.source.name}` is another "
                    "configuration",
                    Span(own, start, start + len(name) if name in own.text else start),
                    f"`{name}`",
                    help=f"import `{other.source.name}` without `{own.name}`, or correct the name "
                    "in the script",
                )


def _kind(path: Path) -> str:
    return path.suffix.lower().replace(".yml", ".yaml")


def _importer_or_none(name: str, text: str, importers: Mapping[str, Importer]) -> Importer | None:
    try:
        return importer_for(name, text, importers)
    except SpecError:
        return None


def _distinct_problems(files: Sequence[_NamedFile]) -> list[Diagnostic]:
    """Return the errors of *files*, without those of a file at the name of another one.

    A script that starts a configuration reports the errors of its keys, as the configuration does.
    """
    found: dict[tuple[str, str, int], Diagnostic] = {}
    for one in files:
        for error in one.problems:
            span = error.labels[0].span if error.labels else None
            named = [it for it in files if span and it is not one and it.path.name in span.text]
            if any(error.message == other.message for it in named for other in it.problems):
                continue
            place = (span.source.name, span.start) if span else (one.source.name, 0)
            found.setdefault((error.message, *place), error)
    return [*found.values()]


def _read_file(
    source: Source,
    reading: ImportOptions,
    given: Added,
    neighbors: Neighbors,
    others: Mapping[str, str],
    importer: Importer,
) -> ImportedFile:
    """Return a file of another tool, without assumptions that the command line replaces.

    *others* are the texts of the other files of the job, by name.
    """
    translation = translate(importer, source, reading, neighbors, others)
    translation = drop_given_recipes(translation, importer.subjects, given)
    problems = [
        _contradiction(subject, one, source, given[kind])
        for subject in importer.subjects
        for kind in given
        if kind in subject.attributes
        for one in islice(stated_values(translation, subject), 1)
        if one.value != given[kind].entry
    ]
    if problems:
        raise SpecError(problems)
    translation = drop_assumptions(translation, importer.subjects, given)
    translation = with_added_values(translation, source, importer.needs, given, reading.set_paths)
    labels = {kind: one.label for kind, one in given.items()}
    translation = merge_into_blocks(translation, importer.needs, labels)
    known = {*given, *reading.set_paths}
    open_ones = [one for one in translation.questions if not is_answered(one, known)]
    translation = evolve(translation, questions=open_ones)
    return ImportedFile(
        source=source, importer=importer, translation=translation, neighbor=neighbors
    )


def _importer(
    source: Source,
    tool: str,
    neighbor: Neighbors,
    importers: Mapping[str, Importer],
    *,
    several: bool,
) -> Importer:
    """Return the importer of a file; with *several*, *tool* reads files that none recognizes."""
    if tool and several:
        with suppress(SpecError):
            return importer_for(source.name, source.text, importers, "", neighbor)
    return importer_for(source.name, source.text, importers, tool, neighbor)


def _added_blocks(reading: ImportOptions, session: Session) -> Added:
    """Return the blocks that `--use` adds."""
    found: dict[str, AddedBlock] = {}
    adding = Module(Source("--use", ""), None)
    for item in use_items(reading):
        before = len(adding.imported_blocks)
        session.loader.use(item, adding, None)
        entry = item.span.text.removeprefix("use").strip()
        for _, block, label in adding.imported_blocks[before:]:
            values = {
                one.name.text: one.value.span.text
                for one in block.items
                if isinstance(one, s.Attribute)
            }
            found[block.kind.text] = AddedBlock(
                entry=entry, place=item.span, label=label, values=values
            )
    return found


def _contradiction(
    subject: ImportSubject, one: ImportedValue, source: Source, added: AddedBlock
) -> Diagnostic:
    """Return an error that points at a value of a file and at the option that contradicts it."""
    return problem(
        "import-conflict",
        f"{subject.name} is {one.value} in `{source.name}`, but {added.entry} on the command line",
        Span(source, one.start, one.end),
        f"`{one.key}`" if one.key else "",
        also=[(added.place, "")],
        help=f"remove `--use {added.entry}`, or change the file",
    )
