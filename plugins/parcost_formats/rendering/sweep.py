"""The page of a sweep: one row for each point, claims by point, and reasons of invalid points."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import inf
from typing import TYPE_CHECKING, Any

from parcost.contract.page import Column, Heading, Item, Line, Row, Style, Table
from parcost.language import numbers
from parcost.report.figures import select
from parcost.report.rows import rows as rows_of
from parcost_formats.rendering.assumptions import assumption_line
from parcost_formats.rendering.cells import axis_value, plugin_note
from parcost_formats.rendering.full_report import page_figures, section_page, suppression_lines
from parcost_formats.rendering.job import job_table
from parcost_formats.rendering.judgments import (
    claims_by_point,
    judgment_failure,
    key_of,
    step_failure,
)
from parcost_formats.rendering.point_options import point_options
from parcost_formats.rendering.screen import suppression_count, warning_lines
from parcost_formats.rendering.studies import head

if TYPE_CHECKING:
    from parcost.contract.figures import Figure, Section
    from parcost.report.report import Report
    from parcost_formats.rendering.view import View

Point = Mapping[str, Any]

_POINTS = 20  # on one screen
_MOST_INVALID = 6
_PASS: tuple[str, Style] = ("pass", "good")
_PART: tuple[str, Style] = ("part", "warning")
_FAIL: tuple[str, Style] = ("FAIL", "bad")


def sweep_items(report: Report, view: View) -> Iterator[Item]:
    """Yield the page of a sweep: axis values, figures, and the reasons of invalid points."""
    points = rows_of(report.axes, report.results, view.figures)
    run = [point for point in points if point["feasible"]]
    trains = any(result.outcome is not None for result in report.results)
    yield Heading(report.name, 1, aside=report.path)
    yield _verdict(report, points, trains=trains)
    listed = " and ".join(f"`{name}`" for name, _ in report.axes)
    lists = "have lists" if len(report.axes) > 1 else "has a list"
    yield Line(f"Sweep: {listed} {lists} of values.", "faint")
    yield from _messages(report, view)
    if not view.figures:
        yield from job_table(*report.results)
    if run:
        yield from _results(report, view, run, trains=trains)
    if run and not trains:
        yield from _sections(report)
    if run and any(result.expectations for result in report.results):
        yield Heading("Expectations")
        yield _claims(report, run)
    if len(run) < len(points):
        yield from _invalid(report, view, [p for p in points if not p["feasible"]])


def _verdict(report: Report, points: Sequence[Point], *, trains: bool) -> Line:
    """Return a line with the number of valid points, or the reason why that number is unknown."""
    chosen = plugin_note(report.results[0].study.plugins)
    run = sum(bool(point["feasible"]) for point in points)
    fit = "are valid and fit in memory" if trains or not run else "are valid"
    counted = f"{run:,} of {len(points):,} points {fit}{chosen}."
    unjudged = next(filter(None, map(judgment_failure, report.results)), "")
    incomplete = next(filter(None, map(step_failure, report.results)), "")
    if unjudged and not run:
        counted = f"{unjudged}{chosen}."
    elif incomplete:
        counted = f"{incomplete}; {counted}"
    return Line(counted, "good" if run and not incomplete else "bad")


def _messages(report: Report, view: View) -> Iterator[Item]:
    """Yield faults of plugins, warnings of all points, assumptions, and suppressed warnings."""
    short = _is_short(view)
    faults = {fault.line for result in report.results for fault in result.faults}
    yield from (Line(text, "bad") for text in sorted(faults))
    every = {id(d): d for result in report.results for d in result.diagnostics}
    distinct = list({d.message: d for d in every.values()}.values())
    counted_only = short and view.hints and not view.warnings
    yield from warning_lines(distinct, *([] if counted_only else [None]))
    yield from assumption_line(report.results[0], 3 if view.hints else None)
    yield from (suppression_count if short else suppression_lines)(report.suppressions)


def _results(report: Report, view: View, run: Sequence[Point], *, trains: bool) -> Iterator[Item]:
    """Yield the figures of the valid points *run*: first the figures that vary, then the others."""
    figures, headlines = _figures(report, view), _is_short(view) and not view.figures
    constant = [n for n in figures if len(run) > 1 and len({p[n] for p in run}) == 1]
    varying = [figure for name, figure in figures.items() if name not in constant]
    if headlines:
        varying = [figure for figure in varying if figure.column is not None] or varying
        constant = [name for name in constant if figures[name].column is not None]
    yield Heading("Results")
    shown = run[:_POINTS] if _is_short(view) else run
    yield _costs(report, shown, varying, given=bool(view.figures))
    yield from _remainder(len(run) - len(shown), hints=view.hints)
    if trains and view.hints:
        yield Line(f"Full report of one point: {point_options(report)}", "faint")
    if constant:
        yield Heading("Constant over the sweep")
        shared = [(figures[name], run[0][name]) for name in constant]
        rows = [Row((f.title, numbers.quantity(value, f.unit), f.note)) for f, value in shared]
        yield Table((Column(), Column(align="right"), Column(flexible=True)), rows)


def _invalid(report: Report, view: View, rejected: Sequence[Point]) -> Iterator[Item]:
    """Yield the invalid points, and why each is rejected."""
    yield Heading("Excluded points")
    shown = rejected[:_MOST_INVALID] if _is_short(view) else rejected
    rows = [Row([*_where(report, p), p.get("reason") or ""]) for p in shown]
    axes = [name for name, _ in report.axes]
    yield Table([*_axes(axes), Column("reason", flexible=True)], rows)
    yield from _remainder(len(rejected) - len(shown), hints=view.hints)


def _is_short(view: View) -> bool:
    """Return whether the page is to fit on a screen."""
    return view.kind in ("screen", "compare")


def _figures(report: Report, view: View) -> Mapping[str, Figure]:
    """Return the figures of the page by name: the user's choice, or else headlines."""
    if view.figures:
        legal = [result for result in report.results if result.legal]
        return {f.name: f for result in legal for f in select(result, view.figures)}
    every = {f.name: f for result in report.results for _, f in result.figures}
    claims = [claim for result in report.results for claim in result.expectations]
    return {f.name: f for f in page_figures(list(every.values()), claims)}


def _remainder(left: int, *, hints: bool) -> Iterator[Item]:
    if left > 0:
        points = "point" if left == 1 else "points"
        where = ": --full, or --format csv" if hints else ""
        yield Line(f"{left:,} more {points}{where}", "faint")


def _sections(report: Report) -> Iterator[Item]:
    """Yield the tables of calculations that are equal at every point, and titles of others."""
    made: dict[str, list[Section]] = {}
    for result in report.results:
        for _, section in result.sections:
            made.setdefault(section.title, []).append(section)
    for title, sections in made.items():
        first = sections[0]
        if all(s.rows == first.rows for s in sections) and len(sections) == len(report.results):
            yield from section_page(first)
        else:
            yield Heading(title)
            yield Line("It differs between the points: choose one with `--set`.")


def _heads(names: Sequence[str]) -> list[str]:
    """Return the title of each axis: the last part of its name if it is unique."""
    last = [name.rpartition(".")[2] for name in names]
    return [s if last.count(s) == 1 else name for s, name in zip(last, names, strict=True)]


def _axes(names: Sequence[str]) -> list[Column]:
    return [Column(head.replace("_", " "), "right") for head in _heads(names)]


def _where(report: Report, point: Point) -> list[str]:
    return [axis_value(report, name, point[name]) for name, _ in report.axes]


def _costs(
    report: Report, points: Sequence[Point], figures: Sequence[Figure], *, given: bool
) -> Table:
    """Return one row for each point; columns that do not fit are dropped from the right.

    Figures that are *given* by the user stay in that order.
    """
    if not given:
        figures = sorted(figures, key=lambda f: inf if f.column is None else f.column)
    columns = _axes([name for name, _ in report.axes])
    columns += [Column(head(f), "right", optional=True) for f in figures]
    rows = [
        Row(
            [
                *_where(report, point),
                *(numbers.quantity(point[f.name], f.unit) for f in figures),
            ]
        )
        for point in points
    ]
    return Table(columns, rows)


def _claims(report: Report, points: Sequence[Point]) -> Table:
    """Return, for each claim, the number of points at which it is met, and the first failure."""
    names = [name for name, _ in report.axes]
    claims = claims_by_point(report.axes, report.results)
    rows = []
    for position, (claim, _) in enumerate(claims[key_of(points[0], report.axes)]):
        fails = [p for p in points if not claims[key_of(p, report.axes)][position][1]]
        held = len(points) - len(fails)
        said = f"at {held:,} of {len(points):,} points"
        word, style = _PASS if not fails else _PART if held else _FAIL
        if fails:
            values = zip(_heads(names), _where(report, fails[0]), strict=True)
            got = numbers.quantity(fails[0][claim.figure.name], claim.figure.unit)
            said += f"; not at {', '.join(map(' = '.join, values))}: {got}"
        rows.append(Row((word, claim.text, said), style))
    return Table((Column(), Column("claim", flexible=True), Column("met", flexible=True)), rows)
