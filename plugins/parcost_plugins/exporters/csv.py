"""Reports as comma-separated values: ``--format csv``.

One line for each point: the file, the study, the swept values, every figure in base
units (which its column names), whether the point runs and fits, and if not, why; and the
plugins that were left out, where any were. A column that a point knows nothing about
is empty.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Iterator, Mapping
from io import StringIO
from typing import Any

from parcost import hookimpl
from parcost.batch import Rejected
from parcost.render.data import key
from parcost.render.page import Paper
from parcost.report import Report

_FIRST = ("path", "name")
_LAST = ("feasible", "reason")


class Csv:
    """A line per point. All points are known before the first line is written."""

    name = "csv"

    def write(self, entries: Iterable[Report | Rejected], paper: Paper) -> Iterator[str]:  # noqa: ARG002
        """Yield the whole table: its columns are those of all reports together."""
        points: list[Mapping[str, Any]] = []
        columns = dict.fromkeys(_FIRST)
        for entry in entries:
            for point in _points(entry):
                points.append(point)
                columns |= dict.fromkeys(name for name in point if name not in _LAST)
        out = StringIO()
        writer = csv.DictWriter(out, [*columns, *_LAST], lineterminator="\n")
        writer.writeheader()
        writer.writerows(points)
        yield out.getvalue()


def _points(entry: Report | Rejected) -> Iterator[Mapping[str, Any]]:
    if isinstance(entry, Rejected):
        reason = "; ".join(d.message for d in entry.diagnostics)
        yield {"path": entry.path, "feasible": "no", "reason": reason}
        return
    units = {f.name: f.unit for result in entry.results for _, f in result.figures}
    units |= entry.units
    without = entry.results[0].study.plugins.left_out if entry.results else ()
    for row in entry.rows():
        said = {n: v for n, v in row.items() if n not in _LAST}
        yield {
            "path": entry.path,
            "name": entry.name,
            **{key(n, units[n]) if n in units else n: _text(v) for n, v in said.items()},
            **({"without": " ".join(without)} if without else {}),
            "feasible": "yes" if row["feasible"] else "no",
            "reason": row.get("reason") or "",
        }


def _text(value: Any) -> str:
    """Return a cell; a number to its last bit, and nothing for what is not known."""
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return ""
    return repr(value) if isinstance(value, float) else str(value)


@hookimpl
def exporters() -> list[Csv]:
    """Offer comma-separated values."""
    return [Csv()]
