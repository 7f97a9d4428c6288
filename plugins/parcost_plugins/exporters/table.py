"""Reports as a person reads them: ``--format table``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from parcost import hookimpl
from parcost.batch import Rejected
from parcost.render.narrative import tell
from parcost.render.page import Paper, draw
from parcost.report import Report


class Table:
    """Each report as a page: the verdict, figures, ledger, memory and advice."""

    name = "table"

    def write(self, entries: Iterable[Report | Rejected], paper: Paper) -> Iterator[str]:
        """Yield one page for each report."""
        first = True
        for entry in entries:
            if isinstance(entry, Report):
                yield ("" if first else "\n\n") + draw(tell(entry), paper)
                first = False


@hookimpl
def exporters() -> list[Table]:
    """Offer the table."""
    return [Table()]
