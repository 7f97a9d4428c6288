"""Charts as plain data, and those of a report."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from parcost.contract.charts import Chart, PointFigure, PointTable
from parcost.contract.formulas import Formula
from parcost.language.escapes import escape_line
from parcost.language.numbers import quantity
from parcost.output.formulas import filled, fractions
from parcost.output.json_encoding import plain_data

if TYPE_CHECKING:
    from parcost.report.report import Report

_TEXT = "_text"  # the field of a number with its unit, behind the name of the number
_MOST_DRAWN = 1000  # characters of a formula with its numbers


def report_charts(report: Report) -> list[Chart]:
    """Return the pictures of a report: of its step, or of its points."""
    if not report.axes:
        found = [chart for result in report.results for _, chart in result.charts]
        return sorted(found, key=lambda chart: chart.place)
    results = [result for result in report.results if result.legal]
    if not results:
        return []
    study = results[0].study
    asked = study.plugins.ask("point_charts", study.faults, points=_point_table(report))
    return sorted((chart for _, chart in asked), key=lambda chart: chart.place)


def _point_table(report: Report) -> PointTable:
    """Return the points of a sweep with their headlines."""
    listed = [
        (figure.column, figure)
        for result in report.results
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
    rows = [plain_data(row) for row in report.rows()]
    units = {name: report.units.get(name, "") for name, _ in report.axes}
    return PointTable(kind="sweep", axes=units, figures=figures, rows=rows)


def chart_data(chart: Chart) -> dict[str, Any]:
    """Return a chart as plain data, as :class:`parcost.contract.entries.ChartData` has it."""
    rows = [dict(_fields(row)) for row in chart.rows]
    texts = {name for row in rows for name in row if name.endswith(_TEXT)}
    columns = {
        escape_line(title): f"{name}{_TEXT}" if f"{name}{_TEXT}" in texts else name
        for name, title in chart.columns.items()
    }
    return {
        "name": chart.name,
        "title": escape_line(chart.title),
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
    """Return a formula in letters, with its numbers, and its source."""
    text = fractions(of.shown)
    in_numbers = filled(of) if numbers and of.is_expression else ""
    if in_numbers and in_numbers != text and len(in_numbers) <= _MOST_DRAWN:
        text = f"{text} = {in_numbers}"
    return f"{text} ({of.source})" if of.source else text
