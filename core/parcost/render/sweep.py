"""A sweep, told: one row for each point, and why points cannot run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from parcost.render import numbers
from parcost.render.page import Column, Heading, Item, Line, Row, Table

if TYPE_CHECKING:
    from parcost.report import Report
    from parcost.terms import Figure


def tell(report: Report) -> list[Item]:
    """Return the page of a sweep: axis values, figures, and why a point cannot run."""
    from parcost.render.narrative import cell

    figures = known_figures(report)
    axes = [name for name, _ in report.axes]
    rows = report.rows()
    refused = any(not row["feasible"] for row in rows)
    columns = [Column(name, "right") for name in axes]
    columns += [Column(figure.title, "right") for figure in figures.values()]
    columns += [Column("why not", flexible=True)] if refused else []
    drawn = []
    for row in rows:
        cells = [cell(row[name]) for name in axes]
        cells += [numbers.quantity(row.get(name), f.unit) for name, f in figures.items()]
        cells += [str(row.get("reason") or "")] if refused else []
        drawn.append(Row(cells, "plain" if row["feasible"] else "faint"))
    runs = sum(bool(row["feasible"]) for row in rows)
    return [
        Heading(report.name, 1, aside=report.path),
        Line(f"{runs:,} of {len(rows):,} points run and fit.", "good" if runs else "bad"),
        *_faults(report),
        Heading("Every point"),
        Table(columns, drawn),
    ]


def known_figures(report: Report) -> dict[str, Figure]:
    """Return the figures that any result of the report has, by name, in order."""
    found: dict[str, Any] = {}
    for result in report.results:
        for _, figure in result.figures:
            found.setdefault(figure.name, figure)
    return found


def _faults(report: Report) -> list[Item]:
    texts = {
        f"incomplete: plugin {fault.plugin} failed in `{fault.hook}`: {fault.message}"
        for result in report.results
        for fault in result.faults
    }
    return [Line(text, "bad") for text in sorted(texts)]
