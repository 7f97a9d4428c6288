"""Charts: pictures of plugins, as data.

A chart is a Vega-Lite specification without data, and the rows to draw. A format draws it, or
prints the rows as a table if it cannot draw. So a plugin needs no library to add a chart:

    Chart(
        name="loader",
        title="Waiting for data",
        spec={"mark": "bar", "encoding": {"x": {"field": "seconds", "type": "quantitative"}}},
        columns={"stall": "stall", "seconds": "time", "formula": "formula"},
        rows=[{"stall": "loader", "seconds": (0.2, "s"), "formula": formula("t", t=(0.2, "s"))}],
    )

A cell is a text, a number, a number with its unit, or a formula. Text from a spec must be in rows,
never in the specification: a browser evaluates parts of a specification as expressions.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from attrs import field

from parcost.contract.fields import TEXTS, Record, is_list, is_number, rule
from parcost.contract.formulas import Formula
from parcost.language.diagnostics import quote
from parcost.language.escapes import escape_line
from parcost.numeric import array_rank
from parcost.records import record

if TYPE_CHECKING:
    from parcost.contract.pipelines import Activity, Pipeline
    from parcost.numeric import Real

#: The column that explains a mark; each row has it.
FORMULA = "formula"
_NAME = re.compile(r"[a-z][a-z0-9_]*")
_RESERVED = ("data", "datasets", "config", "$schema", "usermeta")  # of a specification
_NETWORK = ("url", "href")  # channels and data that reach beyond the page
_MOST_ROWS = 20_000


def _is_plain(value: Any) -> bool:
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        return False
    return isinstance(value, Mapping)


def _are_titles(value: Any) -> bool:
    if not isinstance(value, Mapping):
        return False
    return all(
        isinstance(name, str) and _NAME.fullmatch(name) and isinstance(title, str)
        for name, title in value.items()
    )


def _are_rows(value: Any) -> bool:
    return is_list(value, lambda row: isinstance(row, Mapping)) and len(value) <= _MOST_ROWS


_SPEC = rule(_is_plain, "which is not plain data")
_COLUMNS = rule(_are_titles, "which are not names of fields with titles")
_ROWS = rule(_are_rows, f"which are not a list of up to {_MOST_ROWS:,} mappings")


@record(kw_only=True, eq=False)
class Chart(Record):
    """A picture of a report: *spec* is a Vega-Lite specification without data; *rows* are its data.

    *columns* maps the visible fields to their titles in tables and tooltips. One of them is
    ``formula``. A cell with a unit becomes a number in the base unit, under the name of its field.
    *notes* are printed below the title. Charts are sorted by *place*.
    """

    called = "the chart `{0.name}`"

    name: str
    title: str = field(converter=escape_line)
    spec: Mapping[str, Any] = field(metadata=_SPEC)
    columns: Mapping[str, str] = field(metadata=_COLUMNS)
    rows: Sequence[Mapping[str, Any]] = field(metadata=_ROWS)
    notes: Sequence[str] = field(default=(), metadata=TEXTS)
    place: int = 100

    def problem(self) -> str:
        return next(self._problems(), "")

    def _problems(self) -> Iterator[str]:
        gave = f"gave the chart {quote(self.name)}"
        if not _NAME.fullmatch(self.name):
            yield f"{gave} a name that is not a word in lower case"
        wrong = [name for name in _RESERVED if name in self.spec]
        wrong += [name for name in _keys(self.spec) if name in _NETWORK]
        if wrong:
            yield f"{gave} a spec with `{wrong[0]}`, which a format decides"
        if FORMULA not in self.columns:
            yield f"{gave} no column `{FORMULA}`"
        for row in self.rows:
            if not row.get(FORMULA):
                yield f"{gave} the row {quote(row)}, which has no `{FORMULA}`"
            for name, cell in row.items():
                if not (_NAME.fullmatch(str(name)) and _is_cell(cell)):
                    yield f"{gave} the cell {quote(name)} = {quote(cell)}, which is none"


@record(kw_only=True, eq=False)
class PassTimeline:
    """The passes of each device of a pipeline over time, of a step or of a pipeline without a step.

    *parts* maps ``(kind, stage)`` to the seconds of a pass on a virtual stage by cause, where
    known. *seconds* is the end of the last pass, in seconds.
    """

    name: str
    pipeline: Pipeline
    devices: Sequence[Sequence[Activity]]
    seconds: float
    parts: Mapping[tuple[str, int], Mapping[str, float]] = field(factory=dict)


@record(kw_only=True, eq=False)
class PointFigure:
    """A column of a :class:`PointTable`: its *title*, its *unit*, and its *formula* as text.

    *largest* is true if larger values are better.
    """

    title: str
    unit: str = ""
    formula: str = ""
    largest: bool = False


@record(kw_only=True, eq=False)
class PointTable:
    """The points of a sweep or a search, with their figures.

    *axes* are the attributes that vary, with their units. *figures* maps names to figures; the
    objective of a search is first. A row has a value for each axis and figure, in base units, and
    ``feasible`` and ``reason``. A row with a ``bound`` has lower bounds as figures, and ``bound``
    is the reason. *evaluate* replaces some values of the best layout of a search, and returns its
    row.
    """

    kind: Literal["sweep", "search"]
    axes: Mapping[str, str]  # with their units
    figures: Mapping[str, PointFigure]
    rows: Sequence[Mapping[str, Any]]
    evaluate: Callable[[Mapping[str, Any]], Mapping[str, Any]] | None = None


def _is_cell(cell: Any) -> bool:
    if cell is None or isinstance(cell, (str, Formula)):
        return True
    value: Real | Any = cell
    if isinstance(cell, tuple):
        if len(cell) != 2 or not isinstance(cell[1], str):
            return False
        value = cell[0]
    return is_number(value) and not array_rank(value)


def _keys(value: Any) -> Iterator[str]:
    """Yield every key of nested plain data."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield str(key)
            yield from _keys(inner)
    elif isinstance(value, (list, tuple)):
        for inner in value:
            yield from _keys(inner)
