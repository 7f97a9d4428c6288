"""Reports as comma-separated values: ``--format csv``.

There is a line for each point: the file, the study, the swept values, and every figure in the base
unit that its column names. Further columns state whether the point is valid and fits, the reason if
not, and excluded plugins. A column without a value for a point is empty. A text that a spreadsheet
would evaluate as a formula has an apostrophe in front. The header has the columns of all points, so
points are stored in a temporary file until the end.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Iterator
from io import StringIO
from tempfile import SpooledTemporaryFile
from typing import Any

from parcost import Exporter, hookimpl
from parcost.contract.entries import Entry, Part
from parcost.contract.page import Paper
from parcost_formats.rendering.escapes import csv_cell

_FIRST = ("path", "name")
_LAST = ("verdict", "feasible", "reason")
_MOST_IN_MEMORY_BYTES = 8 * 2**20
_MOST_OF_A_PIECE = 2**16


class Csv(Exporter):
    """A line per point."""

    name = "csv"
    reads: Part = "points"

    def write(self, entries: Iterable[Entry], paper: Paper) -> Iterator[str]:  # noqa: ARG002
        """Yield the header, and then the lines."""
        columns = dict.fromkeys(_FIRST)
        with SpooledTemporaryFile(
            _MOST_IN_MEMORY_BYTES, mode="w+", encoding="utf-8", errors="surrogatepass", newline="\n"
        ) as spool:
            for entry in entries:
                for point in entry.data():
                    row = {csv_cell(name): _text(name, value) for name, value in point.items()}
                    columns.update(dict.fromkeys(row))
                    spool.write(json.dumps(row, ensure_ascii=False) + "\n")
            spool.seek(0)
            out = StringIO()
            order = [*(name for name in columns if name not in _LAST), *_LAST]
            writer = csv.DictWriter(out, order, restval="", lineterminator="\n")
            writer.writeheader()
            for line in spool:
                writer.writerow(json.loads(line))
                if out.tell() > _MOST_OF_A_PIECE:
                    yield out.getvalue()
                    out.seek(0)
                    out.truncate()
            yield out.getvalue()


def _text(name: str, value: Any) -> str:
    """Return a value as a cell: numbers with all digits, "" if unknown."""
    if value is None:
        return ""
    if name == "feasible":
        return "yes" if value else "no"
    if isinstance(value, str):
        return csv_cell(value)
    return repr(value) if isinstance(value, float) else str(value)


@hookimpl
def exporters() -> list[Csv]:
    """Return the exporter of comma-separated values."""
    return [Csv()]
