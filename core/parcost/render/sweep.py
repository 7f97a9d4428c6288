"""A sweep, told: one row for each point, where claims hold, and why points cannot run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from parcost.evaluation.points import at
from parcost.render import numbers
from parcost.render.narrative import printed, section_page
from parcost.render.page import Column, Heading, Item, Line, Row, Style, Table
from parcost.render.words import incomplete, picked, swept

if TYPE_CHECKING:
    from parcost.report import Expectation, Report
    from parcost.terms import Figure, Section

Point = Mapping[str, Any]
Key = tuple[str, ...]  # the swept values of a point

_FIRST = ("step_time", "mfu", "memory", "tokens_per_second")  # what nearly everybody asks for
_PASS: tuple[str, Style] = ("pass", "good")
_PART: tuple[str, Style] = ("part", "warning")
_FAIL: tuple[str, Style] = ("FAIL", "bad")


def tell(report: Report) -> Iterator[Item]:
    """Yield the page of a sweep: axis values, figures, and why a point cannot run."""
    points = report.rows()
    axes = [name for name, _ in report.axes]
    every = {f.name: f for result in report.results for _, f in result.figures}
    claims = [claim for result in report.results for claim in result.expectations]
    figures = {f.name: f for f in printed(list(every.values()), claims)}
    run = [point for point in points if point["feasible"]]
    yield Heading(report.name, 1, aside=report.path)
    chosen = picked(report.results[0].study.plugins)
    trains = any(result.outcome is not None for result in report.results)
    fit = "run and fit" if trains or not run else "are legal"
    counted = f"{len(run):,} of {len(points):,} points {fit}{chosen}."
    yield Line(counted, "good" if run else "bad")
    faults = {text for result in report.results for text in incomplete(result)}
    yield from (Line(text, "bad") for text in sorted(faults))
    constant = [n for n in figures if len(run) > 1 and len({p[n] for p in run}) == 1]
    varying = [figure for name, figure in figures.items() if name not in constant]
    if run:
        yield Heading("What each point costs")
        yield _costs(report, run, varying)
    if constant:
        yield Heading("What every point has in common")
        shared = [(figures[name], run[0][name]) for name in constant]
        rows = [Row((f.title, numbers.quantity(value, f.unit), f.note)) for f, value in shared]
        yield Table((Column(), Column(align="right"), Column(flexible=True)), rows)
    if run and not trains:
        yield from _sections(report)
    if run and any(result.expectations for result in report.results):
        yield Heading("What was expected")
        yield _expected(report, run)
    if len(run) < len(points):
        yield Heading("What cannot run, and why")
        refused = [p for p in points if not p["feasible"]]
        rows = [Row([*_where(report, p), p.get("reason") or ""]) for p in refused]
        yield Table([*_axes(axes), Column("why not", flexible=True)], rows)


def _sections(report: Report) -> Iterator[Item]:
    """Yield the tables of calculations that are the same at every point, and name the others."""
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
            yield Line("It differs between the points: `--set` one of them to see it.")


def _heads(names: Sequence[str]) -> list[str]:
    """Return what to call each axis: the last part of its name if that tells."""
    last = [name.rpartition(".")[2] for name in names]
    return [s if last.count(s) == 1 else name for s, name in zip(last, names, strict=True)]


def _axes(names: Sequence[str]) -> list[Column]:
    return [Column(head, "right") for head in _heads(names)]


def _where(report: Report, point: Point) -> list[str]:
    return [swept(report, name, point[name]) for name, _ in report.axes]


def _head(figure: Figure) -> str:
    """Return the head of a column: short, and breaking at most once or twice."""
    return figure.name.replace("_per_second", "/s").replace("_per_", " /").replace("_", " ")


def _costs(report: Report, points: Sequence[Point], figures: Sequence[Figure]) -> Table:
    """Return one row for each point; what there is no room for is what tells least."""
    ranks = {name: rank for rank, name in enumerate(_FIRST)}
    figures = sorted(figures, key=lambda figure: ranks.get(figure.name, len(ranks)))
    columns = _axes([name for name, _ in report.axes])
    columns += [Column(_head(f), "right", optional=True) for f in figures]
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


def _expected(report: Report, points: Sequence[Point]) -> Table:
    """Return for each claim at how many points it holds, and the first where it does not."""
    names = [name for name, _ in report.axes]
    judged = _judged(report)
    rows = []
    for position, (claim, _) in enumerate(judged[_key(points[0], names)]):
        fails = [p for p in points if not judged[_key(p, names)][position][1]]
        held = len(points) - len(fails)
        said = f"at {held:,} of {len(points):,} points"
        word, style = _PASS if not fails else _PART if held else _FAIL
        if fails:
            values = zip(_heads(names), _where(report, fails[0]), strict=True)
            got = numbers.quantity(fails[0][claim.figure.name], claim.figure.unit)
            said += f"; not at {', '.join(map(' = '.join, values))}: {got}"
        rows.append(Row((word, claim.text, said), style))
    return Table((Column(), Column("claim", flexible=True), Column("holds", flexible=True)), rows)


def _judged(report: Report) -> Mapping[Key, Sequence[tuple[Expectation, bool]]]:
    """Return every claim at every point that was priced, and whether it holds there."""
    names = [name for name, _ in report.axes]
    judged = {}
    for result in report.results:
        axes = result.study.axes
        for i in range(len(axes[0][1]) if axes else 1):
            point = {**result.at, **{name: at(values, i) for name, values in axes}}
            claims = [(claim, bool(at(claim.holds, i))) for claim in result.expectations]
            judged[_key(point, names)] = claims
    return judged


def _key(point: Point, names: Sequence[str]) -> Key:
    return tuple(str(point[name]) for name in names)
