"""``parcost plugins``: what is installed, from where, and what each contributes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from parcost.cli import options
from parcost.cli.output import show, tell

if TYPE_CHECKING:
    from parcost.picked import Picked
    from parcost.plugins import Plugin, Plugins

REGISTRIES = (
    "blocks",
    "catalogues",
    "collectives",
    "libraries",
    "schedules",
    "kernels",
    "exporters",
)


@click.command("plugins")
@options.picked
def command(picked: Picked) -> int:
    """List the active plugins and what each of them has."""
    from parcost.render.page import Column, Row, Table

    active = options.plugins(picked)
    contributed = contributions(active)
    rows = [
        Row((p.name, f"{p.distribution} {p.version}", contributed[p.name])) for p in active.plugins
    ]
    columns = (Column("plugin"), Column("from"), Column("has", flexible=True))
    show([Table(columns, rows)])
    for fault in active.broken:
        tell(f"error: plugin {fault.plugin} {fault.message}")
    return 3 if active.broken else 0


def contributions(active: Plugins) -> dict[str, str]:
    """Return, by plugin, what it offers by name, and the questions that it answers."""
    offered: dict[str, dict[str, list[str]]] = {plugin.name: {} for plugin in active.plugins}
    for plugin, schema in active.ask("blocks"):
        offered[plugin.name].setdefault("blocks", []).append(schema.__block__.kind)
    for hook in REGISTRIES[1:]:
        for plugin, thing in active.ask(hook):
            offered[plugin.name].setdefault(hook, []).append(thing.name)
    return {
        plugin.name: "; ".join(
            [
                *(f"{hook}: {', '.join(names)}" for hook, names in offered[plugin.name].items()),
                *answers(plugin),
            ]
        )
        for plugin in active.plugins
    }


def answers(plugin: Plugin) -> Iterator[str]:
    """Yield the questions about a study that *plugin* answers."""
    from parcost import hookspecs

    for name, spec in vars(hookspecs).items():
        if hasattr(spec, "parcost_spec") and name not in REGISTRIES:
            implementation = getattr(plugin.module, name, None)
            if hasattr(implementation, "parcost_impl"):
                yield name
