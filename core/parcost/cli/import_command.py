"""``parcost import``: files of other tools as one spec."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from parcost.cli import options
from parcost.cli.messages import Reporter, write_message
from parcost.cli.output_files import OutputFile
from parcost.language.escapes import escape_line

if TYPE_CHECKING:
    from parcost.contract.importers import (
        ImportedBlock,
        ImportedKey,
        ImportedValue,
        Importer,
        ImportOptions,
        Translation,
    )
    from parcost.engine.session import Session
    from parcost.language.text import Source
    from parcost.plugins.selection import PluginSelection

_BAD_INPUT = 2
_MOST_KEYS = 500  # in a list: aliases of YAML make thousands of a few lines


@click.command("import")
@click.argument("paths", nargs=-1, metavar="[FILE...]")
@click.option("--list", "listed", is_flag=True, help="List the formats.")
@options.reading
@options.out
@options.selection
def command(
    paths: tuple[str, ...],
    listed: bool,
    reading: ImportOptions,
    out: str | None,
    selection: PluginSelection,
) -> int:
    """Write a spec from files of other tools.

    The spec goes to stdout, with the key of every value. stderr has the keys that no table knows,
    those that change no cost, and what is assumed. Nothing that a file holds is run. Several
    files make one spec: a config.json for the model, a launch script for the layout.
    """
    session = options.session(selection)
    if listed:
        _list(session)
        return 0
    if not paths:
        raise click.UsageError("name a file, or --list the formats")
    read = list(_read(paths, session, reading))
    if len(read) < len(paths):
        return _BAD_INPUT
    translation = _join([one for _, _, one in read], reading)
    target = OutputFile(out)
    try:
        target.put(_text(read, translation))
        target.finish()
    finally:
        target.abandon()
    for source, importer, one in read:
        write_message("\n".join(_remarks(source, importer, one)))
    return 0


def _list(session: Session) -> None:
    for name, importer in sorted(session.loader.importers.items()):
        write_message(f"{name:14} {importer.title}")


def _read(
    paths: Sequence[str], session: Session, reading: ImportOptions
) -> Iterator[tuple[Source, Importer, Translation]]:
    """Yield each file with its importer and its translation; report those with errors."""
    from parcost.language.errors import SpecError
    from parcost.spec import sources
    from parcost.spec.foreign import importer_for, translate

    for path in paths:
        try:
            source = sources.read(Path(path), path)
            importers = session.loader.importers
            importer = importer_for(source.name, source.text, importers, reading.tool)
            yield source, importer, translate(importer, source)
        except SpecError as error:
            Reporter()(error.diagnostics)


def _join(translations: Iterable[Translation], reading: ImportOptions) -> Translation:
    """Return several translations as one; blocks of one kind and label are joined.

    Raises:
        SpecError: Two files set an attribute to different values.
    """
    from parcost.contract.importers import ImportedValue, Translation

    uses: dict[str, ImportedValue] = {}
    blocks: list[ImportedBlock] = []
    for translation in translations:
        for use in translation.uses:
            uses.setdefault(use.value, use)
        blocks += translation.blocks
    for entry in reading.uses:
        uses.setdefault(entry, ImportedValue(name="use", value=entry))
    return Translation(uses=list(uses.values()), blocks=_merge(blocks))


def _merge(blocks: Iterable[ImportedBlock]) -> list[ImportedBlock]:
    """Return blocks of one kind and label as one block each."""
    merged: dict[tuple[str, str], ImportedBlock] = {}
    for block in blocks:
        before = merged.get((block.kind, block.label))
        merged[block.kind, block.label] = block if before is None else _both(before, block)
    return list(merged.values())


def _both(one: ImportedBlock, other: ImportedBlock) -> ImportedBlock:
    """Return the settings of both blocks; what is assumed yields to what a file states."""
    from parcost.contract.importers import ImportedBlock
    from parcost.system.files import failure

    settings: dict[str, ImportedValue] = {setting.name: setting for setting in one.settings}
    for setting in other.settings:
        before = settings.get(setting.name)
        if before is None or (before.assumption and not setting.assumption):
            settings[setting.name] = setting
        elif before.value != setting.value and not setting.assumption:
            message = (
                f"`{one.kind}.{setting.name}` is {before.value} by `{before.key}`, and "
                f"{setting.value} by `{setting.key}`"
            )
            raise failure("import-conflict", message, "", "import one of the two files by itself")
    return ImportedBlock(
        kind=one.kind,
        label=one.label,
        settings=tuple(settings.values()),
        blocks=_merge([*one.blocks, *other.blocks]),
    )


def _text(read: Iterable[tuple[Source, Importer, Translation]], translation: Translation) -> str:
    """Return the spec, under a comment that names the files."""
    from parcost.language.format import format_text
    from parcost.spec.foreign import spec_lines

    head = [
        f"# From `{escape_line(source.name)}`, {importer.title}." for source, importer, _ in read
    ]
    lines = [line.text for line in spec_lines(translation)]
    blank = [""] if translation.uses else []
    return format_text("\n".join([*head, *blank, *lines]))


def _remarks(source: Source, importer: Importer, translation: Translation) -> Iterator[str]:
    """Yield what is read of a file, what is not, and what is assumed."""
    settings = list(_settings(translation.blocks))
    counted = len({one.key for one in (*translation.uses, *settings) if one.key})
    yield (
        f"{source.name}, {importer.title}: {_keys(counted)} read, "
        f"{len(translation.ignored)} without effect, {len(translation.unknown)} unknown"
        + (f", {len(translation.missing)} not set" if translation.missing else "")
    )
    yield from _names("unknown", translation.unknown)
    yield from _names("not set", translation.missing)
    yield from _names("without effect", translation.ignored)
    for use in translation.uses:
        if use.assumption:
            yield f"  assumed: {use.value}: {use.assumption}"
    for setting in settings:
        if setting.assumption:
            yield f"  assumed: {setting.name} = {setting.value}: {setting.assumption}"


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
