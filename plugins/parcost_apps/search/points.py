"""Every legal layout of a search, written as it is scored: ``--out FILE.csv|.jsonl|.parquet``.

There is a column for each axis and for each value that follows from them. The figures of the step
have the same names as in ``parcost eval``. They are empty if the layout only has a lower bound;
bounds have separate columns.
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

from parcost.language.errors import MissingExtraError, ParcostError
from parcost.search.replays import memory_limit_of, outcome_of, usable_memory_of
from parcost.search.result import plain_value
from parcost.search.space import derived_value
from parcost.system.temporary import temporary_folder
from parcost_formats.rendering.escapes import csv_cell
from parcost_formats.rendering.report_data import key

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from parcost.contract.searches import Objective
    from parcost.contract.study import Study
    from parcost.search.scored_layouts import ScoredLayouts
    from parcost.search.space import Space

_PIECE = 50_000  # layouts that are spelled together
_STEP = "step_time_seconds"
_SPLIT = ("communication_time_seconds", "idle_time_seconds")  # the rest of the step computes
_MEMORY = ("memory_bytes", "headroom_bytes")
_BOUNDS = ("step_time_lower_bound_seconds", "memory_lower_bound_bytes")
_SWITCHES = ("exact", "feasible")
FORMATS = ("csv", "jsonl", "parquet")


class PointsError(ParcostError):
    """The points cannot be written in the requested format."""


def integer_axes(space: Space) -> set[str]:
    """Return the axes whose values are all integers."""
    return {
        axis.attribute
        for axis in space.axes
        if all(isinstance(plain_value(value), int) for value in axis.values)
    }


def columns(space: Space) -> list[str]:
    """Return the names of the columns."""
    axes = [axis.attribute for axis in space.axes]
    follows = [axis.attribute for axis in space.follows]
    return [*axes, *follows, *_numbers(space), *_SWITCHES]


def _numbers(space: Space) -> list[str]:
    return [_STEP, *_objectives(space.scenario.first), *_SPLIT, *_MEMORY, *_BOUNDS]


def _objectives(study: Study) -> dict[str, Objective]:
    """Return the objectives that are columns of every result, by column name."""
    offered = [objective for _, objective in study.contributions("objectives")]
    return {key(o.name, o.unit): o for o in offered if o.short and not o.needs}


class Points:
    """Writes layouts as text in *format_*, through the function *put*."""

    def __init__(self, space: Space, format_: str, put: Callable[[str], None]) -> None:
        self._names = columns(space)
        self._follows = space.follows
        self._whole = integer_axes(space)
        self._put = put
        self._rows: Callable[[Iterator[Sequence[Any]]], str] = (
            self._as_json if format_ == "jsonl" else _as_csv if format_ == "csv" else _as_text
        )
        if format_ != "jsonl":
            put(_as_text(iter([self._names])))

    def __call__(self, scored: ScoredLayouts) -> None:
        """Write the legal layouts of *scored*."""
        flat = np.flatnonzero(scored.legal)
        for first in range(0, len(flat), _PIECE):
            self._put(self._rows(self._spec_texts(scored, flat[first : first + _PIECE])))

    def _spec_texts(self, scored: ScoredLayouts, flat: Any) -> Iterator[Sequence[Any]]:
        shape, structure = scored.legal.shape, scored.structure
        where = np.unravel_index(flat, shape)
        held: dict[str, list[Any]] = {
            name: [plain_value(value)] * len(flat) for name, value in structure.values.items()
        }
        for name, numbers in structure.degrees.items():
            own = numbers.astype(np.int64) if name in self._whole else numbers
            held[name] = own[where[-1]].tolist()
        for k, choice in enumerate(structure.choices):
            values = [plain_value(value) for value in choice.values]
            at = [scored.index] * len(flat) if k == scored.choice else where[k].tolist()
            held[choice.name] = [values[i] for i in at]
        for axis in self._follows:
            derived = np.broadcast_to(derived_value(axis, structure.study), shape[-1:])
            held[axis.attribute] = [plain_value(value) for value in derived[where[-1]].tolist()]
        held |= _figures(scored, where)
        return zip(*(held[name] for name in self._names), strict=True)

    def _as_json(self, rows: Iterator[Sequence[Any]]) -> str:
        return "".join(json.dumps(dict(zip(self._names, row, strict=True))) + "\n" for row in rows)


def _figures(scored: ScoredLayouts, where: Sequence[NDArray[np.intp]]) -> dict[str, list[Any]]:
    """Return the figures of layouts by column; None where they are not exact."""
    shape, base = scored.legal.shape, scored.structure.study
    seconds, bytes_, exact = (
        np.broadcast_to(value, shape)[where]
        for value in (scored.seconds, scored.bytes_, scored.exact)
    )
    figures = _exact_figures(scored, [index[exact] for index in where]) if exact.any() else {}
    for name, objective in _objectives(base).items():
        value = objective.value(objective.cost(np.broadcast_to(scored.seconds, shape)))
        figures[name] = np.broadcast_to(value, shape)[where][exact]
    found: dict[str, list[Any]] = {}
    for name in (_STEP, *_SPLIT, *_MEMORY, *_objectives(base)):
        column = np.full(len(exact), None)
        column[exact] = figures.get(name, np.empty(0))
        found[name] = column.tolist()
    rooms = np.broadcast_to(memory_limit_of(scored, where), exact.shape)
    feasible = np.full(len(exact), None)  # what fits by a bound may yet not fit
    feasible[bytes_ > rooms] = False
    feasible[exact] = (figures[_MEMORY[0]] <= rooms[exact]) if exact.any() else ()
    bounds = dict(zip(_BOUNDS, (seconds.tolist(), bytes_.tolist()), strict=True))
    return {**found, **bounds, "exact": exact.tolist(), "feasible": feasible.tolist()}


def _exact_figures(
    scored: ScoredLayouts, where: Sequence[NDArray[np.intp]]
) -> dict[str, NDArray[np.float64]]:
    """Return the figures of exactly scored layouts, equal to those of an evaluation."""
    study = scored.structure.study
    outcome = outcome_of(scored, where)
    links = {link.name for _, group in study.contributions("groups") for link in group.links}
    lines = [line for line in outcome.ledger if line.resource in links]
    sent = sum((line.exposed for line in lines), 0.0)
    idle = sum((line.exposed for line in outcome.ledger if line.kind == "bubble"), 0.0)
    headroom = usable_memory_of(scored, where) - outcome.memory_bytes
    values = (outcome.step_seconds, sent, idle, outcome.memory_bytes, headroom)
    count = (len(where[0]),)
    names = (_STEP, *_SPLIT, *_MEMORY)
    return {n: np.broadcast_to(np.asarray(v), count) for n, v in zip(names, values, strict=True)}


def _as_csv(rows: Iterator[Sequence[Any]]) -> str:
    """Return rows as CSV, in the same spelling as evaluations."""
    return _as_text(
        [_YES.get(cell, cell) if isinstance(cell, bool) else cell for cell in row] for row in rows
    )


_YES = {True: "yes", False: "no"}


def _as_text(rows: Iterator[Sequence[Any]]) -> str:
    out = StringIO()
    cells = ([csv_cell(c) if isinstance(c, str) else c for c in row] for row in rows)
    csv.writer(out, lineterminator="\n").writerows(cells)
    return out.getvalue()


class ParquetPoints:
    """Collects points in a temporary CSV file, which DuckDB finally converts to Parquet."""

    def __init__(self, space: Space) -> None:
        try:
            import duckdb  # noqa: F401
        except ImportError:
            message = "Parquet needs DuckDB, which is not installed"
            otherwise = "FILE.csv and FILE.jsonl need no further package"
            raise MissingExtraError(message, "parquet", otherwise) from None
        self._space = space
        self._folder = temporary_folder()
        self._text = self._folder.path / "points.csv"
        self._file = self._text.open("w", encoding="utf-8", newline="")
        self.points = Points(space, "parquet", self._put)

    def _put(self, text: str) -> None:
        with self._catch_errors():
            self._file.write(text)

    @contextmanager
    def _catch_errors(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            said = f"its points cannot be collected in `{self._folder.path}`: {error.strerror}"
            raise PointsError(said) from error

    def save(self, path: Path) -> None:
        """Write the file at *path*.

        Raises:
            PointsError: The disk is full, or DuckDB fails in another way.
        """
        import duckdb

        with self._catch_errors():
            self._file.close()
        types = dict.fromkeys(_numbers(self._space), "DOUBLE") | dict.fromkeys(_SWITCHES, "BOOLEAN")
        for axis in self._space.follows:
            types[axis.attribute] = "DOUBLE" if axis.value is None else "VARCHAR"
        for axis in self._space.axes:
            numeric = all(isinstance(value, (int, float)) for value in axis.values)
            types[axis.attribute] = "DOUBLE" if numeric else "VARCHAR"
        types |= dict.fromkeys(integer_axes(self._space), "BIGINT")
        kinds = ", ".join(f"'{name}': '{types[name]}'" for name in columns(self._space))
        source = f"read_csv('{_escape(self._text)}', header = true, columns = {{{kinds}}})"
        form = "FORMAT parquet, CODEC zstd, USE_TMP_FILE false"  # the target is a new one anyway
        query = f"COPY (FROM {source}) TO '{_escape(path)}' ({form})"
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
        """Remove the temporary file."""
        with suppress(OSError):  # what could not be written cannot be flushed either
            self._file.close()
        self._folder.remove()


def _escape(path: Path) -> str:
    return str(path).replace("'", "''")
