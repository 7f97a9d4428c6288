"""``parcost merge``: the results of shards, joined as if from one run."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING

import click

from parcost_apps import options
from parcost_apps.cli.messages import write_message
from parcost_apps.cli.output_files import OutputFile

if TYPE_CHECKING:
    from parcost.plugins.selection import PluginSelection


@click.command("merge")
@click.argument("paths", nargs=-1, required=True, metavar="FILE...")
@click.option(
    "--format",
    "format_",
    metavar="NAME",
    help="Output format; by default the format of the shards.",
)
@options.selection
@options.out
def command(
    paths: tuple[str, ...], format_: str | None, selection: PluginSelection, out: str | None
) -> int:
    """Join the results of `parcost eval --shard`.

    The order of the shards does not matter. They must be all shards of one run, unchanged; a
    missing or changed one is an error. The result equals that of a run without shards.
    """
    from parcost_apps.batch.formats import find_format
    from parcost_apps.eval.shards import ShardError
    from parcost_apps.merge.files import entries_of, join_files, read_shard
    from parcost_formats.rendering.view import View

    try:
        shards = {path: read_shard(path) for path in dict.fromkeys(paths)}
        ordered = join_files(shards)
    except ShardError as error:
        raise click.ClickException(str(error)) from error
    shard = shards[ordered[0]]
    found = find_format(format_ or shard.format, options.plugins(selection))
    if found.reads != shard.part:
        raise click.UsageError(
            f"`--format {format_}` needs shards with `{found.reads}`, but these have "
            f"`{shard.part}`: write the shards with `--format {format_}` too"
        )
    found.check(out)
    try:
        with OutputFile(out) as target:
            entries = chain.from_iterable(map(entries_of, ordered))
            found.write(entries, target, View(kind=shard.kind))
    except ShardError as error:
        raise click.ClickException(str(error)) from error
    write_message(f"{len(ordered)} {'shard' if len(ordered) == 1 else 'shards'} joined")
    return 0
