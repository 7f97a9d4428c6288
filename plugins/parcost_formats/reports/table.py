"""Reports as a person reads them: ``--format table``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from parcost import Exporter, hookimpl
from parcost.contract.entries import Entry, Part
from parcost.contract.page import Paper
from parcost_formats.rendering.text import draw


class TableExporter(Exporter):
    """Each report as a page: the verdict, figures, ledger, memory and advice."""

    name = "table"
    reads: Part = "page"

    def write(self, entries: Iterable[Entry], paper: Paper) -> Iterator[str]:
        """Yield one page for each report."""
        first = True
        for entry in entries:
            if not entry.rejected:
                yield ("" if first else "\n\n") + draw(entry.page(), paper)
                first = False


@hookimpl
def exporters() -> list[TableExporter]:
    """Return the exporter of the table."""
    return [TableExporter()]
