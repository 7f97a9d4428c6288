"""Every legal layout of a search, written as it is scored: ``--out FILE.csv|.jsonl|.parquet``.

A column for each axis, and ``step_seconds``, whether that is ``exact`` or a bound from
below, ``memory_bytes``, which is no more than the layout needs, and whether that ``fits``.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from parcost.diagnostics import ParcostError
from parcost.render.escapes import csv_cell
from parcost.search.found import plain
from parcost.temporary import temporary_folder

if TYPE_CHECKING:
    from parcost.search.score import Scored
    from parcost.search.space import Space

_PIECE = 50_000  # layouts that are spelled together
_NUMBERS = ("step_seconds", "memory_bytes")
_SWITCHES = ("exact", "fits")
FORMATS = ("csv", "jsonl", "parquet")


class PointsError(ParcostError):
    """The points cannot be written as asked."""


_LAST = ("memory_bytes", "fits")


def whole(space: Space) -> set[str]:
    """Return the axes of whole numbers."""
    return {
        axis.attribute
        for axis in space.axes
        if all(isinstance(plain(value), int) for value in axis.values)
    }


def columns(space: Space) -> list[str]:
    """Return the names of the columns."""
    return [*(axis.attribute for axis in space.axes), "step_seconds", "exact", *_LAST]


class Points:
    """Spells layouts in *format_* and hands the text to *put*."""

    def __init__(self, space: Space, format_: str, put: Callable[[str], None]) -> None:
        self._names = columns(space)
        self._whole = whole(space)
        self._put = put
        self._rows: Callable[[Iterator[Sequence[Any]]], str] = (
            self._as_json if format_ == "jsonl" else _as_csv
        )
        if format_ != "jsonl":
            put(_as_csv(iter([self._names])))

    def __call__(self, scored: Scored) -> None:
        """Write the legal layouts of *scored*."""
        flat = np.flatnonzero(scored.legal)
        for first in range(0, len(flat), _PIECE):
            self._put(self._rows(self._spelled(scored, flat[first : first + _PIECE])))

    def _spelled(self, scored: Scored, flat: Any) -> Iterator[Sequence[Any]]:
        shape, structure = scored.legal.shape, scored.structure
        where = np.unravel_index(flat, shape)

        def picked(value: Any) -> list[Any]:
            found: list[Any] = np.broadcast_to(value, shape)[where].tolist()
            return found

        fits: Any = True
        for _, room in structure.variants.base.contributions("rooms"):
            fits = fits & (scored.bytes_ <= room)
        held: dict[str, list[Any]] = {
            name: [plain(value)] * len(flat) for name, value in structure.values.items()
        }
        for name, numbers in structure.degrees.items():
            own = numbers.astype(np.int64) if name in self._whole else numbers
            held[name] = own[where[-1]].tolist()
        for k, choice in enumerate(structure.variants.choices):
            values = [plain(value) for value in choice.values]
            at = [scored.index] * len(flat) if k == scored.choice else where[k].tolist()
            held[choice.name] = [values[i] for i in at]
        held |= {"step_seconds": picked(scored.seconds), "exact": picked(scored.exact)}
        held |= {"memory_bytes": picked(scored.bytes_), "fits": picked(fits)}
        return zip(*(held[name] for name in self._names), strict=True)

    def _as_json(self, rows: Iterator[Sequence[Any]]) -> str:
        return "".join(json.dumps(dict(zip(self._names, row, strict=True))) + "\n" for row in rows)


def _as_csv(rows: Iterator[Sequence[Any]]) -> str:
    out = StringIO()
    cells = ([csv_cell(c) if isinstance(c, str) else c for c in row] for row in rows)
    csv.writer(out, lineterminator="\n").writerows(cells)
    return out.getvalue()


class Parquet:
    """Collects points as text, which DuckDB makes into Parquet in the end."""

    def __init__(self, space: Space) -> None:
        try:
            import duckdb  # noqa: F401
        except ImportError:
            raise PointsError(
                "Parquet is written by DuckDB, which is not installed: pip install "
                "'parcost[parquet]'. FILE.csv and FILE.jsonl need nothing"
            ) from None
        self._space = space
        self._folder = temporary_folder()
        self._text = self._folder.path / "points.csv"
        self._file = self._text.open("w", encoding="utf-8", newline="")
        self.points = Points(space, "csv", self._put)

    def _put(self, text: str) -> None:
        with self._collecting():
            self._file.write(text)

    @contextmanager
    def _collecting(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            said = f"its points cannot be collected in `{self._folder.path}`: {error.strerror}"
            raise PointsError(said) from error

    def save(self, path: Path) -> None:
        """Write the file at *path*.

        Raises:
            PointsError: There is no room for it, or DuckDB fails in another way.
        """
        import duckdb

        with self._collecting():
            self._file.close()
        types = dict.fromkeys(_NUMBERS, "DOUBLE") | dict.fromkeys(_SWITCHES, "BOOLEAN")
        for axis in self._space.axes:
            numeric = all(isinstance(value, (int, float)) for value in axis.values)
            types[axis.attribute] = "DOUBLE" if numeric else "VARCHAR"
        types |= dict.fromkeys(whole(self._space), "BIGINT")
        kinds = ", ".join(f"'{name}': '{types[name]}'" for name in columns(self._space))
        source = f"read_csv('{_escaped(self._text)}', header = true, columns = {{{kinds}}})"
        form = "FORMAT parquet, CODEC zstd, USE_TMP_FILE false"  # the target is a new one anyway
        query = f"COPY (FROM {source}) TO '{_escaped(path)}' ({form})"
        settings: dict[str, Any] = {
            "temp_directory": str(self._folder.path),
            "autoinstall_known_extensions": False,
        }
        try:
            with duckdb.connect(":memory:", config=settings) as base:
                base.execute("SET preserve_insertion_order = true")
                base.execute(query)
        except duckdb.Error as error:
            raise PointsError(" ".join(str(error).split())) from error

    def close(self) -> None:
        """Remove what was collected."""
        with suppress(OSError):  # what could not be written cannot be flushed either
            self._file.close()
        self._folder.remove()


def _escaped(path: Path) -> str:
    return str(path).replace("'", "''")
