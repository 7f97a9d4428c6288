"""``parcost plugins``: what is installed, from where, and what each contributes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from parcost.cli import options
from parcost.cli.output import show, tell

if TYPE_CHECKING:
    from parcost.plugins import Plugin, Plugins


@click.command("plugins")
@options.without
def command(without: tuple[str, ...]) -> int:
    """List the active plugins and what each of them has."""
    from parcost.render.page import Column, Row, Table

    active = options.plugins(without)
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
    """Return, by plugin, what it registers by name, and the questions that it answers."""
    registered: dict[str, list[str]] = {plugin.name: [] for plugin in active.plugins}
    for plugin, schema in active.ask("blocks"):
        registered[plugin.name].append(f"block {schema.__block__.kind}")
    for hook in ("catalogues", "collectives", "schedules", "kernels", "exporters"):
        for plugin, offered in active.ask(hook):
            registered[plugin.name].append(f"{hook.removesuffix('s')} {offered.name}")
    return {
        plugin.name: ", ".join([*registered[plugin.name], *answers(plugin)])
        for plugin in active.plugins
    }


def answers(plugin: Plugin) -> Iterator[str]:
    """Yield the questions about a study that *plugin* answers."""
    from parcost import hookspecs

    registries = {"blocks", "catalogues", "collectives", "schedules", "kernels", "exporters"}
    for name, spec in vars(hookspecs).items():
        if hasattr(spec, "parcost_spec") and name not in registries:
            implementation = getattr(plugin.module, name, None)
            if hasattr(implementation, "parcost_impl"):
                yield name
