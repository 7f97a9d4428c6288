"""``parcost merge``: what shards have found, as if one run had found it."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING

import click

from parcost.cli import options
from parcost.cli.streams import Target, write_message

if TYPE_CHECKING:
    from parcost.plugins.selection import PluginSelection


@click.command("merge")
@click.argument("paths", nargs=-1, required=True, metavar="FILE...")
@click.option(
    "--format",
    "format_",
    metavar="NAME",
    help="By default the one that the shards were evaluated for.",
)
@options.selection
@options.out
def command(
    paths: tuple[str, ...], format_: str | None, selection: PluginSelection, out: str | None
) -> int:
    """Join what `parcost eval --shard` wrote.

    The shards may be given in any order. They have to be of one run, all of it, and as they
    were written: what is missing or was changed is said. The result is what one run
    without shards would have written.
    """
    from parcost.batch.shards import ShardError, entries_of, join_files, read_shard
    from parcost.cli.formats import format_named
    from parcost.output.view import View

    try:
        shards = {path: read_shard(path) for path in dict.fromkeys(paths)}
        ordered = join_files(shards)
    except ShardError as error:
        raise click.ClickException(str(error)) from error
    shard = shards[ordered[0]]
    found = format_named(format_ or shard.format, options.plugins(selection))
    if found.reads != shard.part:
        raise click.UsageError(
            f"`--format {format_}` is written from `{found.reads}`, and these shards hold "
            f"`{shard.part}`: write them with `--format {format_}` as well"
        )
    found.check(out)
    target = Target(out)
    try:
        entries = chain.from_iterable(map(entries_of, ordered))
        found.write(entries, target, View(kind=shard.kind))
        target.finish()
    except ShardError as error:
        raise click.ClickException(str(error)) from error
    finally:
        target.abandon()
    write_message(f"{len(ordered)} {'shard' if len(ordered) == 1 else 'shards'} joined")
    return 0
