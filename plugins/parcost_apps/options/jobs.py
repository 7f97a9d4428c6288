"""Several files of other tools on a command line: read as one job, or as separate studies."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from parcost.language.escapes import escape_line
from parcost_apps.cli.messages import write_message

if TYPE_CHECKING:
    from parcost.contract.importers import ImportOptions
    from parcost.engine.session import Session
    from parcost_formats.imports.translation import ImportedFile

#: Ends of names that are files, whether or not they are there, and no entries of a catalogue.
_SUFFIXES = (".json", ".par", ".py", ".sh", ".toml", ".yaml", ".yml")
_WHOLE = ("model", "layout")  # kinds of blocks of a file that is a job by itself


def with_files(reading: ImportOptions) -> ImportOptions:
    """Return import options in which files given by `--use` are files of the job, not entries."""
    from attrs import evolve

    named = [entry for entry in reading.uses if _is_file(entry)]
    entries = tuple(entry for entry in reading.uses if entry not in named)
    return evolve(reading, uses=entries, files=(*reading.files, *named))


def is_foreign(path: str) -> bool:
    """Return whether *path*, or the FILE of ``FILE:NAME``, is a file that is not a spec."""
    from parcost.system.files import split_recipe

    name, _ = split_recipe(path)
    return not name.endswith(".par") and os.path.isfile(name)


def join_specs(
    paths: Sequence[str], reading: ImportOptions, session: Callable[[], Session], *, only: bool
) -> tuple[tuple[str, ...], ImportOptions]:
    """Return the files to read and the options; files of one job are merged into the first."""
    from attrs import evolve

    if len(paths) < 2 or not all(map(is_foreign, paths)):
        return tuple(paths), reading
    if not only:
        found = _read_files(paths, reading, session())
        rivals = _rivals(found)
        if rivals:
            write_message(
                f"{' and '.join(map(escape_line, rivals))} are separate jobs: each file is a study"
            )
            return tuple(paths), reading
        names = ", ".join(map(escape_line, paths))
        write_message(
            f"{names} are imported as one job; to evaluate one of them, give only that file"
        )
    return (paths[0],), evolve(reading, files=(*paths[1:], *reading.files))


def directory_job(
    name: str, reading: ImportOptions, session: Callable[[], Session]
) -> tuple[tuple[str, ...], ImportOptions]:
    """Return the files to read, and the options, if *name* is a directory of a job's files."""
    from parcost_apps.batch.files import foreign_files

    files = [one for one in foreign_files(Path(name)) if _is_recognized(one, session())]
    if not files:
        return (name,), reading
    return join_specs(files, reading, session, only=False)


def _is_recognized(path: str, session: Session) -> bool:
    """Return whether an importer reads a file."""
    from parcost.binding import sources
    from parcost.language.errors import SpecError
    from parcost_formats.imports.reader import importers_of
    from parcost_formats.imports.translation import importer_for

    try:
        importer_for(path, sources.read(Path(path), path).text, importers_of(session))
    except SpecError:
        return False
    return True


def is_one_job(
    paths: Sequence[str], reading: ImportOptions, session: Callable[[], Session]
) -> bool:
    """Return whether files are of different tools, and do not describe the same part of a job."""
    if len(paths) < 2 or not all(map(is_foreign, paths)):
        return False
    found = _read_files(paths, reading, session())
    tools = {file.importer.name for file in found}
    return len(tools) == len(paths) and _rivals(found) is None


def _is_file(entry: str) -> bool:
    from parcost.system.files import split_recipe

    name, _ = split_recipe(entry)
    return os.path.isfile(name) or name.endswith(_SUFFIXES)


def _read_files(
    paths: Sequence[str], reading: ImportOptions, session: Session
) -> list[ImportedFile]:
    """Return the files that can be read on their own."""
    from attrs import evolve

    from parcost.binding import sources
    from parcost.language.errors import SpecError
    from parcost.system.files import split_recipe
    from parcost_formats.imports.reader import read_job

    found: list[ImportedFile] = []
    for named in paths:
        path, recipe = split_recipe(named)
        own = evolve(reading, files=(), uses=(), recipe=recipe or reading.recipe)
        try:
            source = sources.read(Path(path), path)
            found += read_job([(source, Path(path))], own, session).files
        except SpecError:  # which the evaluation reports
            continue
    return found


def _rivals(files: Sequence[ImportedFile]) -> tuple[str, str] | None:
    """Return the names of two files that describe the same part of a job, or None."""
    whole: list[str] = []
    models: list[str] = []
    for file in files:
        kinds = {block.kind for block in file.translation.blocks}
        if kinds.issuperset(_WHOLE):
            whole.append(file.source.name)
        elif kinds & set(file.importer.describes):
            models.append(file.source.name)
    for same in (whole, models):
        if len(same) > 1:
            return same[0], same[1]
    return None
