"""Run exporters; an error names the plugin of the exporter."""

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
    """The target of an exporter: a text stream, or a file or folder that the exporter saves."""

    def put(self, text: str) -> None:
        """Write a piece of text."""

    def save_with(self, save: Callable[[Path], None]) -> None:
        """Let *save* write a file or a folder."""


def write_items(
    plugin: Plugin,
    exporter: AnyExporter,
    items: Iterable[Any],
    target: ExportTarget,
    paper: Paper,
    passing: tuple[type[BaseException], ...] = (),
) -> None:
    """Write *items* (entries, or traces) with the *exporter* of a *plugin*.

    Raises:
        PluginError: The exporter fails. Errors of parcost, of files and of the types *passing* are
            raised unchanged.
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
