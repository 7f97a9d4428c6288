"""Arguments and options that several commands share."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from parcost.api import Session
    from parcost.plugins import Plugins

F = TypeVar("F", bound=Callable[..., Any])

paths = click.argument("paths", nargs=-1, required=True, metavar="FILE|DIR...")
path = click.argument("path", metavar="FILE")
without = click.option(
    "--without",
    multiple=True,
    metavar="PLUGIN",
    help="Leave a plugin out; `parcost plugins` lists them. May be repeated.",
)
study = click.option("--study", metavar="NAME", help="Only this study of the file.")
overrides = click.option(
    "--set",
    "overrides",
    multiple=True,
    metavar="NAME=VALUE",
    help="Give an attribute another value, in the words of the language: "
    "--set layout.tp=4 --set 'overlap.bucket=25 MB'. May be repeated.",
)


def session(without: Sequence[str] = ()) -> Session:
    """Return a session with the installed plugins, less some."""
    from parcost.api import Session

    return Session(plugins(without))


def plugins(without: Sequence[str] = ()) -> Plugins:
    """Return the installed plugins, less some; an unknown name is a usage error."""
    from importlib.metadata import entry_points

    from parcost.diagnostics import did_you_mean
    from parcost.plugins import GROUP, load

    if without:
        known = entry_points(group=GROUP).names
        for name in without:
            if name not in known:
                hint = did_you_mean(name, known) or "`parcost plugins` lists them"
                raise click.UsageError(f"no plugin is called `{name}`; {hint}")
    return load(without=without)


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
