"""A sweep, told: one row for each point, and why points cannot run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from parcost.render import numbers
from parcost.render.page import Column, Heading, Item, Line, Row, Table
from parcost.render.words import cell, incomplete

if TYPE_CHECKING:
    from parcost.report import Report
    from parcost.terms import Figure

Point = Mapping[str, Any]


def tell(report: Report) -> Iterator[Item]:
    """Yield the page of a sweep: axis values, figures, and why a point cannot run."""
    points = report.rows()
    axes = [name for name, _ in report.axes]
    figures = {f.name: f for result in report.results for _, f in result.figures}
    run = [point for point in points if point["feasible"]]
    yield Heading(report.name, 1, aside=report.path)
    yield Line(f"{len(run):,} of {len(points):,} points run and fit.", "good" if run else "bad")
    faults = {text for result in report.results for text in incomplete(result)}
    yield from (Line(text, "bad") for text in sorted(faults))
    constant = [n for n in figures if len(run) > 1 and len({p[n] for p in run}) == 1]
    varying = [figure for name, figure in figures.items() if name not in constant]
    if run:
        yield Heading("What each point costs")
        yield _costs(run, axes, varying)
    if constant:
        yield Heading("What every point has in common")
        shared = [(figures[name], run[0][name]) for name in constant]
        rows = [Row((f.title, numbers.quantity(value, f.unit), f.note)) for f, value in shared]
        yield Table((Column(), Column(align="right"), Column(flexible=True)), rows)
    if len(run) < len(points):
        yield Heading("What cannot run, and why")
        refused = [p for p in points if not p["feasible"]]
        rows = [Row([*(cell(p[n]) for n in axes), p.get("reason") or ""]) for p in refused]
        yield Table([*_axes(axes), Column("why not", flexible=True)], rows)


def _axes(names: Sequence[str]) -> list[Column]:
    """Return a column for each axis, headed by the last part of its name if that tells."""
    last = [name.rpartition(".")[2] for name in names]
    heads = [s if last.count(s) == 1 else name for s, name in zip(last, names, strict=True)]
    return [Column(head, "right") for head in heads]


def _costs(points: Sequence[Point], axes: Sequence[str], figures: Sequence[Figure]) -> Table:
    """Return one row for each point; what there is no room for is what tells least.

    The first figure in each unit (the step time, the MFU, the memory) tells most.
    """
    first = {figure.unit: figure for figure in reversed(figures)}
    figures = sorted(figures, key=lambda figure: first[figure.unit] is not figure)
    columns = _axes(axes)
    columns += [Column(f.name.replace("_", " "), "right", optional=True) for f in figures]
    rows = [
        Row(
            [
                *(cell(point[name]) for name in axes),
                *(numbers.quantity(point[f.name], f.unit) for f in figures),
            ]
        )
        for point in points
    ]
    return Table(columns, rows)
