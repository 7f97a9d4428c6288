"""Reports as comma-separated values: ``--format csv``.

One line for each point: the file, the study, the swept values, every figure in base
units (which its column names), whether the point runs and fits, and if not, why; and the
plugins that were left out, where any were. A column that a point knows nothing about
is empty. A text that a spreadsheet would take for a formula has an apostrophe in front. The head
has the columns of all points together, so they are spooled until the last is known.
"""

from __future__ import annotations

import csv
import json
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from io import StringIO
from pathlib import Path
from typing import Any

from parcost import hookimpl
from parcost.batch.entry import Entry, Part
from parcost.batch.spool import Spool
from parcost.files import LINES, read_lines
from parcost.render.escapes import csv_cell
from parcost.render.page import Paper

_FIRST = ("path", "name")
_LAST = ("feasible", "reason")
_SEAL = "# "
_MOST_OF_A_PIECE = 2**16


class Csv:
    """A line per point."""

    name = "csv"
    reads: Part = "points"

    def write(self, entries: Iterable[Entry], paper: Paper) -> Iterator[str]:  # noqa: ARG002
        """Yield the head, and then the lines."""
        yield from _written(
            {csv_cell(name): _text(name, value) for name, value in point.items()}
            for entry in entries
            for point in entry.data()
        )

    def seal(self, pieces: Iterable[str], seal: Mapping[str, Any]) -> Iterator[str]:
        """Yield the table, and the seal in a comment below it."""
        yield from pieces
        yield _SEAL + json.dumps({"shard": seal}) + "\n"

    def sealed(self, path: Path) -> Mapping[str, Any] | None:
        """Return the seal of a shard."""
        last = next(iter(deque(_lines(path), maxlen=1)), "")
        if not last.startswith(_SEAL):
            return None
        seal = json.loads(last.removeprefix(_SEAL)).get("shard")
        return seal if isinstance(seal, Mapping) else None

    def content(self, path: Path) -> Iterator[str]:
        """Yield the lines of a shard, less the last, which is its seal."""
        yield from _table(path)

    def join(self, paths: Sequence[Path]) -> Iterator[str]:
        """Yield the table of all shards."""
        yield from _written(row for path in paths for row in _rows(path))


def _written(rows: Iterable[Mapping[str, str]]) -> Iterator[str]:
    with Spool() as spool:
        for name in _FIRST:
            spool.columns[name] = len(spool.columns)
        for row in rows:
            spool.add(row)
        order = [*(n for n in spool.columns if n not in _LAST), *_LAST]
        places = [spool.columns.get(name) for name in order]
        out = StringIO()
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(order)
        for values in spool:
            writer.writerow(["" if place is None else values[place] or "" for place in places])
            if out.tell() > _MOST_OF_A_PIECE:
                yield out.getvalue()
                out.seek(0)
                out.truncate()
        yield out.getvalue()


def _rows(path: Path) -> Iterator[Mapping[str, str]]:
    """Yield the lines of a shard; a cell that is empty says nothing."""
    yield from csv.DictReader(_table(path))


def _table(path: Path) -> Iterator[str]:
    """Yield the lines of a shard, less the last, which is its seal."""
    held = ""
    for line in _lines(path):
        if held:
            yield held
        held = line


def _lines(path: Path) -> Iterator[str]:
    yield from read_lines(path, LINES)


def _text(name: str, value: Any) -> str:
    """Return a cell; a number to its last bit, and nothing for what is not known."""
    if value is None:
        return ""
    if name == "feasible":
        return "yes" if value else "no"
    if isinstance(value, str):
        return csv_cell(value)
    return repr(value) if isinstance(value, float) else str(value)


@hookimpl
def exporters() -> list[Csv]:
    """Offer comma-separated values."""
    return [Csv()]
