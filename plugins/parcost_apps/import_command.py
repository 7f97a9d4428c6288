"""``parcost import``: write files of other tools as one spec."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from parcost.language.escapes import escape_line
from parcost_apps import options
from parcost_apps.cli.messages import Reporter, write_message
from parcost_apps.cli.output_files import OutputFile
from parcost_apps.cli.streams import put

if TYPE_CHECKING:
    from parcost.contract.importers import (
        ImportedBlock,
        ImportedKey,
        ImportedValue,
        ImportOptions,
    )
    from parcost.engine.session import Session
    from parcost.language.diagnostics import Diagnostic
    from parcost.plugins.selection import PluginSelection
    from parcost_formats.imports.translation import ImportedFile, ImportedJob

_BAD_INPUT = 2
#: Errors of a spec that is a part of a job.
_LACKING = ("import-incomplete", "missing-block", "missing-attribute", "unknown-name")
_MOST_KEYS = 500  # in a list: aliases of YAML make thousands of a few lines


@click.command("import")
@click.argument("paths", nargs=-1, metavar="[FILE...]")
@click.option("--list", "listed", is_flag=True, help="List the formats.")
@options.overrides
@partial(options.add_import_options, joins=False)
@click.option("--verbose", is_flag=True, help="Also list the keys without effect.")
@options.out
@options.selection
def command(
    paths: tuple[str, ...],
    listed: bool,
    overrides: tuple[str, ...],
    reading: ImportOptions,
    verbose: bool,
    out: str | None,
    selection: PluginSelection,
) -> int:
    """Convert files of other tools into a spec.

    The spec is written to stdout, with the source key of each value as a comment. stderr lists
    unknown keys, assumed values, and the number of keys without effect. Code in the files is
    never run. Several files make one spec: a config.json for the model, a launch script for the
    layout.
    """
    session = options.session(selection)
    if listed:
        _list(session)
        return 0
    if not paths:
        raise click.UsageError("give a file, or list the formats with --list")
    if reading.anchors:
        message = (
            "`--anchor` works with `parcost eval`; `parcost import LOG` writes anchors as blocks"
        )
        raise click.UsageError(message)
    _check_names(paths, session)
    values = options.parse_overrides(overrides)
    job = _read_job(paths, reading, values, session)
    if job is None:
        return _BAD_INPUT
    Reporter()(job.warnings)
    with OutputFile(out) as target:
        target.put(_text(job))
    owners = {part: one.source.name for one in job.files for part in one.translation.parts}
    for file in job.files:
        owner = owners.get(file.source.name)
        remarks = [f"{file.source.name}, {file.importer.title}: read with `{owner}`"]
        if owner is None:
            remarks = list(_remarks(file, verbose=verbose))
        write_message("\n".join(map(escape_line, remarks)), remarks=True)
    return 0


def _read_job(
    paths: Sequence[str], reading: ImportOptions, values: Mapping[str, str], session: Session
) -> ImportedJob | None:
    """Return the files as one job with *values*; None after printing open questions."""
    from attrs import evolve

    from parcost.binding import sources
    from parcost.contract.importers import ImportedValue
    from parcost.system.files import split_recipe
    from parcost_formats.imports.questions import questions_of, with_values
    from parcost_formats.imports.reader import read_job

    first, recipe = split_recipe(paths[0])
    files = (*paths[1:], *reading.files)
    inner = next((one for one in values if one.partition(".")[0] not in session.plugins.blocks), "")
    if inner:
        message = (
            f"`--set {inner}`: an imported spec has no block `{inner.partition('.')[0]}`; give "
            "this option to `parcost eval` of the spec"
        )
        raise click.UsageError(message)
    recipe = recipe or reading.recipe
    reading = evolve(reading, recipe=recipe, files=files, settings=tuple(values.items()))
    job = read_job([(sources.read(Path(first), first), Path(first))], reading, session)
    found = questions_of(job.files) or _binding_errors(first, job, values, reading, session)
    if found:
        Reporter()(found)
        return None
    uses = {use.value: use for use in job.translation.uses}
    for entry in reading.uses:
        uses.setdefault(entry, ImportedValue(name="use", value=entry))
    return evolve(
        job, translation=with_values(evolve(job.translation, uses=list(uses.values())), values)
    )


def _binding_errors(
    path: str,
    job: ImportedJob,
    values: Mapping[str, str],
    reading: ImportOptions,
    session: Session,
) -> Sequence[Diagnostic]:
    """Return the errors in values of a job, such as those out of range; no file is read again."""
    from attrs import evolve

    from parcost.binding.modules import Buffer
    from parcost.engine.session import scenarios_of
    from parcost.language.diagnostics import Severity
    from parcost.system.files import real_path
    from parcost_formats.imports.spec_text import parse_job
    from parcost_formats.rendering.rejection import Rejection, attempt

    def bind() -> Sequence[Diagnostic]:
        file = parse_job(job, set(values))
        unread = {str(real_path(Path(path), path)): Buffer("", 0)}
        loader = evolve(session.loader, buffers=unread, read_foreign=lambda *_: file)
        module = loader.file(Path(path), path, keep=False, reading=reading)
        return scenarios_of(session, module, values)[0].warnings

    bound = attempt(path, bind)
    found = bound.diagnostics if isinstance(bound, Rejection) else ()
    return [one for one in found if one.severity is Severity.ERROR and one.id not in _LACKING]


def _list(session: Session) -> None:
    from parcost_formats.imports.reader import importers_of

    for name, importer in sorted(importers_of(session).items()):
        put(f"{name:14} {importer.title}\n")


def _check_names(paths: Sequence[str], session: Session) -> None:
    """Reject the name of a format in place of a file name."""
    from parcost_formats.imports.reader import importers_of

    for path in paths:
        if path in importers_of(session) and not Path(path).exists():
            raise click.UsageError(
                f"`{path}` is a format: write `parcost import --from {path} FILE`"
            )


def _text(job: ImportedJob) -> str:
    """Return the spec, with a comment on top that names the files."""
    from parcost.language.format import format_text
    from parcost_formats.imports.spec_text import spec_lines

    head = [f"# From `{escape_line(one.source.name)}`, {one.importer.title}." for one in job.files]
    lines = [line.text for line in spec_lines(job.translation)]
    blank = [""] if job.translation.uses else []
    return format_text("\n".join([*head, *blank, *lines]))


def _remarks(file: ImportedFile, *, verbose: bool) -> Iterator[str]:
    """Yield unknown and missing keys and assumptions; if *verbose*, keys without effect too."""
    translation = file.translation
    settings = list(_settings(translation.blocks))
    counted = len({one.key for one in (*translation.uses, *settings) if one.key})
    yield (
        f"{file.source.name}, {file.importer.title}: {_keys(counted)} read, "
        f"{len(translation.ignored)} without effect, {len(translation.unknown)} unknown"
        + (f", {len(translation.missing)} not set" if translation.missing else "")
    )
    yield from _names("unknown", translation.unknown)
    yield from _names("not set", translation.missing)
    for use in translation.uses:
        if use.assumption:
            yield f"  assumed: {use.value}: {use.assumption}"
    for setting in settings:
        if setting.assumption:
            yield f"  assumed: {setting.name} = {setting.value}: {setting.assumption}"
    if verbose:
        yield from _names("without effect", translation.ignored)
    elif translation.ignored:
        yield "  without effect: listed by --verbose"


def _settings(blocks: Iterable[ImportedBlock]) -> Iterator[ImportedValue]:
    for block in blocks:
        yield from block.settings
        yield from _settings(block.blocks)


def _keys(count: int) -> str:
    return "1 key" if count == 1 else f"{count} keys"


def _names(title: str, keys: Sequence[ImportedKey]) -> Iterator[str]:
    plain = [key.name for key in keys if not key.reason]
    if plain:
        more = f" and {len(plain) - _MOST_KEYS:,} more" if len(plain) > _MOST_KEYS else ""
        yield f"  {title}: {', '.join(plain[:_MOST_KEYS])}{more}"
    for key in keys:
        if key.reason:
            yield f"  {title}: {key.name}: {key.reason}"
