"""``parcost plugins``: the installed plugins, their origin and their contributions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import click

from parcost_apps import options
from parcost_apps.cli.pages import show

if TYPE_CHECKING:
    from parcost.plugins.discovery import Plugins
    from parcost.plugins.selection import PluginSelection


@click.command("plugins")
@options.selection
def command(selection: PluginSelection) -> int:
    """List the active plugins with their contributions."""
    from parcost.contract.page import Column, Row, Table

    active = options.plugins(selection).whole
    contributed = contributions(active)
    rows = [
        Row((p.name, f"{p.distribution} {p.version}", contributed[p.name])) for p in active.plugins
    ]
    columns = (Column("plugin"), Column("from"), Column("provides", flexible=True))
    show([Table(columns, rows)])
    return 0


def contributions(active: Plugins) -> dict[str, str]:
    """Return the contributions of each plugin as text: its registered names and its hooks."""
    from parcost.plugins.registry import REGISTRIES

    offered: dict[str, dict[str, list[str]]] = {plugin.name: {} for plugin in active.plugins}
    for hook in REGISTRIES:
        for name, (plugin, _) in active.offers(hook).items():
            offered[plugin.name].setdefault(hook, []).append(name)
    questions = [hook for hook in active.registry.hooks if hook not in REGISTRIES]
    return {
        plugin.name: "; ".join(
            [
                *(f"{hook}: {', '.join(names)}" for hook, names in offered[plugin.name].items()),
                *(hook for hook in questions if plugin in active.implementers(hook)),
                *_count_of_sub_plugins(plugin.name, offered),
            ]
        )
        for plugin in active.plugins
    }


def _count_of_sub_plugins(subject: str, names: Iterable[str]) -> Iterator[str]:
    """Yield the number of active sub-plugins of a plugin, as text, if there are any."""
    count = sum(name.startswith(f"{subject}.") for name in names)
    if count:
        yield f"{count} sub-plugin" + "s" * (count > 1)
