"""Calls of formats: one function has an exporter write, and names the plugin of one that fails."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from parcost.contract.calls import CallError, call
from parcost.contract.offers import FileExporter, TimelineFileExporter
from parcost.language.errors import ParcostError, PluginError

if TYPE_CHECKING:
    from parcost.contract.offers import Exporter, TimelineExporter
    from parcost.contract.page import Paper
    from parcost.contract.plugin import Plugin

    AnyExporter = Exporter | FileExporter | TimelineExporter | TimelineFileExporter


class ExportTarget(Protocol):
    """What an exporter writes to: texts, or a file or folder that it saves."""

    def put(self, text: str) -> None:
        """Write a piece of text."""

    def save_with(self, save: Callable[[Path], None]) -> None:
        """Have *save* write a file or a folder."""


def write_items(
    plugin: Plugin,
    exporter: AnyExporter,
    items: Iterable[Any],
    target: ExportTarget,
    paper: Paper,
    passing: tuple[type[BaseException], ...] = (),
) -> None:
    """Have the *exporter* of a *plugin* write *items*: entries, or traces.

    Raises:
        PluginError: It fails. Errors of parcost, of files and of the kinds *passing* are raised
            as they are.
    """

    def write_all() -> None:
        if isinstance(exporter, (FileExporter, TimelineFileExporter)):
            target.save_with(lambda path: exporter.save(items, path))
            return
        for piece in exporter.write(items, paper):
            target.put(piece)

    try:
        call(write_all, passing=(ParcostError, OSError, *passing))
    except CallError as error:
        message = f"plugin {plugin} failed to write `{exporter.name}`: {error.text}"
        raise PluginError(message) from error
