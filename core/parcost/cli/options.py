"""Arguments and options that several commands share."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from parcost.api import Session
    from parcost.batch.executors import Engine
    from parcost.plugins import Plugins

F = TypeVar("F", bound=Callable[..., Any])

_PLUGINS = "parcost"  # the group of entry points; importing plugins would take longer

paths = click.argument("paths", nargs=-1, required=True, metavar="FILE|DIR...")
path = click.argument("path", metavar="FILE")
without = click.option(
    "--without",
    multiple=True,
    metavar="PLUGIN",
    help="Leave a plugin out; `parcost plugins` lists them. May be repeated.",
)
study = click.option("--study", metavar="NAME", help="Only this study of the file.")
out = click.option(
    "--out",
    metavar="FILE",
    help="Write the results into a file, which appears once it is whole.",
)
overrides = click.option(
    "--set",
    "overrides",
    multiple=True,
    metavar="NAME=VALUE",
    help="Give an attribute another value, in the words of the language: "
    "--set layout.tp=4 --set 'overlap.bucket=25 MB'. May be repeated.",
)
jobs = click.option("--jobs", type=click.IntRange(min=1), metavar="N", help="Use N processes.")
executor = click.option(
    "--executor",
    metavar="NAME://ADDRESS",
    help="Use the workers of an engine: dask://host:8786, or one that a plugin offers.",
)


def session(without: Sequence[str] = ()) -> Session:
    """Return a session with the installed plugins, less some."""
    from parcost.api import Session

    return Session(plugins(without))


def plugins(without: Sequence[str] = ()) -> Plugins:
    """Return the installed plugins, less some; an unknown name is a usage error."""
    from parcost.plugins import load

    check_without(without)
    return load(without=without)


def check_without(without: Sequence[str]) -> None:
    """Refuse to leave out a plugin that is not there."""
    from importlib.metadata import entry_points

    from parcost.diagnostics import did_you_mean

    known = entry_points(group=_PLUGINS).names if without else ()
    for name in without:
        if name not in known:
            hint = did_you_mean(name, known) or "`parcost plugins` lists them"
            raise click.UsageError(f"no plugin is called `{name}`; {hint}")


def parse_overrides(given: Sequence[str]) -> Mapping[str, str]:
    """Return ``--set`` options by attribute.

    >>> parse_overrides(["layout.tp=4", "cluster.device = h200"])
    {'layout.tp': '4', 'cluster.device': 'h200'}
    """
    values = {}
    for text in given:
        name, equals, value = (part.strip() for part in text.partition("="))
        if not (name and equals and value):
            raise click.UsageError(f"`--set {text}` sets nothing; write `--set layout.tp=4`")
        if name in values:
            raise click.UsageError(f"`--set {name}` is given twice")
        values[name] = value
    return values


def engine(jobs: int | None, executor: str | None) -> Engine | None:
    """Return where `--jobs` or `--executor` say that work is done: here, without them."""
    from parcost.batch.executors import UnknownExecutorError, named, processes

    if jobs and executor:
        raise click.UsageError("`--jobs` and `--executor` both say where work is done")
    if executor:
        try:
            return named(executor)
        except UnknownExecutorError as error:
            raise click.UsageError(f"`--executor`: {error}") from error
    return processes(jobs) if jobs and jobs > 1 else None
