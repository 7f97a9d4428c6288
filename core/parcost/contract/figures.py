"""Figures with their intervals, and sections: the contributions of a plugin to a report."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from attrs import field

from parcost.contract.charts import Chart
from parcost.contract.fields import (
    NAME,
    NO_FORMULA,
    NUMBER,
    Record,
    is_cell,
    is_list,
    is_within,
    plain_number,
    rule,
    split_formula,
)
from parcost.contract.formulas import Formula
from parcost.language.diagnostics import quote
from parcost.numeric import is_array
from parcost.records import record

if TYPE_CHECKING:
    from parcost.numeric import Real


_COVERAGE = rule(
    lambda n: not is_array(n) and is_within(n, 0.0, 1.0), "which is not a number between 0 and 1"
)
_CHART = rule(
    lambda chart: chart is None or isinstance(chart, Chart), "which is not a chart of a section"
)
_LEAD = rule(lambda n: n.__class__ is int and n >= 0, "which is not a number of rows")


def _cells(rows: Any) -> Any:
    """Return the rows of a table with each formula replaced by its number."""
    if not isinstance(rows, (list, tuple)):
        return rows
    return [
        tuple([cell.value if cell.__class__ is Formula else cell for cell in row])
        if isinstance(row, (list, tuple))
        else row
        for row in rows
    ]


@record(kw_only=True, eq=False)
class Figure(Record):
    """A headline number of the report; claims in ``expect`` use its *name*.

    *unit* is the unit of the language in which it is printed ("s", "B", "%", ""). A *detail* is
    printed only if a claim or the user names it; files always contain it. A figure with a *brief*
    note, which may be empty, is on the report of one screen; *brief* replaces *note* there. *whole*
    is the total that contains the value, if any. *column* is the sort key of a column in tables of
    many studies or points; None means no column. Columns that do not fit are dropped from the
    right.
    """

    called: ClassVar[str] = "the figure `{0.name}`"

    name: str
    title: str
    value: Real = field(converter=plain_number)
    unit: str
    formula: Formula = NO_FORMULA
    note: str = ""
    detail: bool = False
    brief: str | None = None
    whole: Real | None = None
    column: int | None = None

    def __attrs_post_init__(self) -> None:
        split_formula(self, "value", "formula")


@record(kw_only=True, eq=False)
class MissingFigure(Record):
    """A figure that a plugin has, but not for this study.

    *needs* completes the sentence "`NAME` needs ...", such as "a block `energy { }`".
    """

    called: ClassVar[str] = "the missing figure `{0.name}`"

    name: str = field(metadata=NAME)
    needs: str


@record(kw_only=True, eq=False)
class Interval(Record):
    """The range of the measured value of figure *name*, which holds for a share *coverage* of runs.

    *low* and *high* are in the base unit of the figure. The report prints them next to the figure;
    claims and files use the figures ``NAME_low`` and ``NAME_high``. *formula* computes *low*, and
    *upper* computes *high*. *basis* is a sentence for the screen with the source of the interval.
    """

    called: ClassVar[str] = "the interval of `{0.name}`"

    name: str
    low: Real = field(converter=plain_number, metadata=NUMBER)
    high: Real = field(converter=plain_number, metadata=NUMBER)
    coverage: float = field(metadata=_COVERAGE)
    formula: Formula = NO_FORMULA
    upper: Formula = NO_FORMULA
    basis: str = ""

    def __attrs_post_init__(self) -> None:
        split_formula(self, "high", "upper")
        split_formula(self, "low", "formula")
        upper: Any = self.upper
        object.__setattr__(self, "upper", self.formula if upper is None else upper)


@record(kw_only=True, eq=False)
class Section(Record):
    """A part of the report that a plugin adds after the figures: advice, sensitivities.

    Each row is a tuple of cells; the first column has the names of rows. The first *lead* rows are
    also on the default screen. *chart* is a picture of the section. *command* is the command that
    evaluates the study of the first row.
    """

    called: ClassVar[str] = "the section {0.title!r}"

    title: str = field(metadata=NAME)
    columns: tuple[str, ...]
    rows: Sequence[tuple[Any, ...]] = field(converter=_cells)
    notes: Sequence[str] = ()
    chart: Chart | None = field(default=None, metadata=_CHART)
    lead: int = field(default=0, metadata=_LEAD)
    command: str = ""

    def problem(self) -> str:
        if self.chart is not None and (wrong := self.chart.problem()):
            return wrong
        width = len(self.columns)
        for row in self.rows:
            if not is_list(row, is_cell) or len(row) != width:
                wrong = f"where {width} cells of text or numbers are expected"
                return f"gave the section {quote(self.title)} the row {quote(row)}, {wrong}"
        return ""
