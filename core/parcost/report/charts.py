"""The charts of a report, and charts as plain data."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from parcost.contract.charts import Chart, PointFigure, PointTable
from parcost.contract.formulas import Formula
from parcost.language.escapes import escape_line
from parcost.language.json_encoding import plain_data
from parcost.language.numbers import quantity
from parcost.report.formulas import fractions, substitute
from parcost.report.rows import rows

if TYPE_CHECKING:
    from parcost.report.result import Result
    from parcost.report.rows import Axes

_TEXT = "_text"  # the field of a number with its unit, behind the name of the number
_MOST_DRAWN = 1000  # characters of a formula with its numbers


def report_charts(axes: Axes, results: Sequence[Result], units: Mapping[str, str]) -> list[Chart]:
    """Return the pictures of a report: of its step, or of its points."""
    if not axes:
        found = [chart for result in results for _, chart in result.charts]
        return sorted(found, key=lambda chart: chart.place)
    legal = [result for result in results if result.legal]
    if not legal:
        return []
    study = legal[0].study
    points = _point_table(axes, results, units)
    drawn = study.plugins.ask("charts", study.faults, points=points)
    return sorted((chart for _, chart in drawn), key=lambda chart: chart.place)


def _point_table(axes: Axes, results: Sequence[Result], units: Mapping[str, str]) -> PointTable:
    """Return the points of a sweep with their headlines."""
    listed = [
        (figure.column, figure)
        for result in results
        for _, figure in result.figures
        if figure.column is not None
    ]
    figures = {
        figure.name: PointFigure(
            title=figure.title,
            unit=figure.unit,
            formula=formula_text(figure.formula, numbers=False),
        )
        for _, figure in sorted(listed, key=lambda pair: pair[0])
    }
    points = [plain_data(row) for row in rows(axes, results)]
    base = {name: units.get(name, "") for name, _ in axes}
    return PointTable(kind="sweep", axes=base, figures=figures, rows=points)


def chart_data(chart: Chart) -> dict[str, Any]:
    """Return a chart as plain data, the input of :class:`parcost.contract.entries.ChartData`."""
    rows = [dict(_fields(row)) for row in chart.rows]
    texts = {name for row in rows for name in row if name.endswith(_TEXT)}
    columns = {
        escape_line(title): f"{name}{_TEXT}" if f"{name}{_TEXT}" in texts else name
        for name, title in chart.columns.items()
    }
    return {
        "name": chart.name,
        "title": chart.title,
        "notes": [escape_line(note) for note in chart.notes],
        "spec": plain_data(chart.spec),
        "columns": columns,
        "rows": rows,
    }


def _fields(row: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, cell in row.items():
        if isinstance(cell, tuple):
            value, unit = cell
            yield name, plain_data(value)
            yield f"{name}{_TEXT}", quantity(value, unit)
        elif isinstance(cell, Formula):
            yield name, escape_line(formula_text(cell))
        else:
            yield name, escape_line(cell) if isinstance(cell, str) else plain_data(cell)


def formula_text(of: Formula, *, numbers: bool = True) -> str:
    """Return a formula in symbols, with its numbers, and its source."""
    text = fractions(of.shown)
    in_numbers = substitute(of) if numbers and of.is_expression else ""
    if in_numbers and in_numbers != text and len(in_numbers) <= _MOST_DRAWN:
        text = f"{text} = {in_numbers}"
    return f"{text} ({of.source})" if of.source else text
