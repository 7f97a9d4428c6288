"""Picture formats of commands that draw without a batch: searches and timelines."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from parcost_apps.cli.output_files import OutputFile

if TYPE_CHECKING:
    from parcost.contract.entries import Entry
    from parcost.contract.plugin import Plugin
    from parcost.plugins.discovery import Plugins
    from parcost_apps.batch.formats import Format


def picture_format(name: str, plugins: Plugins) -> Format | None:
    """Return the format of that name, or None if it does not draw."""
    from parcost_apps.batch.formats import Format

    found = _picture_formats(plugins).get(name)
    return None if found is None else Format(*found)


def unknown_format(what: str, name: str, others: Iterable[str], plugins: Plugins) -> str:
    """Return the message for an unknown format *name* of *what*, with the nearest known ones."""
    from parcost.language.diagnostics import did_you_mean

    known = sorted({*others, *_picture_formats(plugins)})
    hint = did_you_mean(name, known) or "formats are " + ", ".join(known)
    return f"{what} has no format `{name}`; {hint}"


def write_entries(entries: Iterable[Entry], format_: Format, out: str | None) -> None:
    """Write *entries* with pictures in a format."""
    from parcost_formats.rendering.view import View

    format_.check(out)
    with OutputFile(out) as target:
        format_.write(entries, target, View())


def _picture_formats(plugins: Plugins) -> Mapping[str, tuple[Plugin, Any]]:
    """Return the formats that draw pictures, with their plugins."""
    offered = plugins.offers("exporters")
    return {name: found for name, found in offered.items() if found[1].reads == "charts"}
