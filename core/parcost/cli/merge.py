"""``parcost merge``: what shards have found, as if one run had found it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from parcost.cli import options
from parcost.cli.output import Target, tell

if TYPE_CHECKING:
    from parcost.batch.shards import Shard
    from parcost.picked import Picked
    from parcost.plugins import Plugins
    from parcost.terms import Joined


@click.command("merge")
@click.argument("paths", nargs=-1, required=True, metavar="FILE...")
@click.option(
    "--format",
    "format_",
    metavar="NAME",
    help="What the shards are written in; by default, what their names end in.",
)
@options.picked
@options.out
def command(paths: tuple[str, ...], format_: str | None, picked: Picked, out: str | None) -> int:
    """Join what `parcost eval --shard` wrote.

    The shards may be given in any order. They have to be of one run, all of it, and as they
    were written: what is missing or was changed is said. The result is what one run
    without shards would have written.
    """
    from parcost.batch.shards import ShardError, whole

    name = format_ or Path(paths[0]).suffix.removeprefix(".")
    joiner = _joiner(name, options.plugins(picked))
    try:
        found = {path: _sealed(joiner, path, name) for path in dict.fromkeys(paths)}
        ordered = whole(found)
    except ShardError as error:
        raise click.ClickException(str(error)) from error
    target = Target(out)
    try:
        for piece in joiner.join([Path(path) for path in ordered]):
            target.put(piece)
        target.finish()
    finally:
        target.abandon()
    tell(f"{len(ordered)} {'shard' if len(ordered) == 1 else 'shards'} joined")
    return 0


def _joiner(name: str, plugins: Plugins) -> Joined:
    from parcost.cli.writing import format_named
    from parcost.terms import Joined

    exporter = format_named(name, plugins).exporter
    if not isinstance(exporter, Joined):
        raise click.UsageError(f"shards of `{name}` cannot be joined")
    return exporter


def _sealed(joiner: Joined, path: str, name: str) -> Shard:
    from parcost.batch.shards import Shard, ShardError
    from parcost.diagnostics import ParcostError, raised

    try:
        seal = joiner.sealed(Path(path))
        shard = None if seal is None else Shard.of_seal(seal, path)
        whole = shard is not None and shard.holds(joiner.content(Path(path)))
    except ParcostError:
        raise
    except Exception as error:  # whatever the format makes of what is in the file
        said = raised(error)
        raise ShardError(f"`{path}` is no {name}, or was cut short: {said}") from error
    if shard is None:
        raise ShardError(f"`{path}` does not end in a seal: it is no shard, or was cut short")
    if not whole:
        raise ShardError(
            f"`{path}` is not what was written of shard {shard.number}/{shard.of}: something in it "
            "is missing or was changed; write it anew"
        )
    return shard
