"""Turns reports into entries: the plain data that formats, caches and workers exchange."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from attrs import evolve

from parcost.contract.entries import Entry, Part, Problem
from parcost.contract.page import Heading, Item, Line
from parcost.language.diagnostic_text import render
from parcost.language.diagnostics import Diagnostic, Severity, did_you_mean
from parcost.language.escapes import escape_line
from parcost.language.json_encoding import encode, plain_data
from parcost.report.charts import chart_data, report_charts
from parcost.report.figures import figures_by_name, missing_names, select
from parcost.report.verdict import INVALID
from parcost_formats.rendering import report_data
from parcost_formats.rendering.judgments import claims_by_point, key_of, verdicts
from parcost_formats.rendering.rejection import Rejection, attempt
from parcost_formats.rendering.report_page import report_page
from parcost_formats.rendering.view import View

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from parcost.contract.charts import Chart
    from parcost.contract.figures import Figure
    from parcost.report.report import Report
    from parcost.report.result import Expectation, Result

_MOST_PROBLEMS = 100


def entry_of(found: Report | Rejection, part: Part, view: View | None = None) -> Entry:
    """Return the entry of a report or a rejection; *view* selects the content of its page."""
    if isinstance(found, Rejection):
        return _rejection_entry(found, part)
    entry = attempt(found.path, lambda: _report(found, part, view or View()))
    return _rejection_entry(entry, part) if isinstance(entry, Rejection) else entry


def _report(report: Report, part: Part, view: View) -> Entry:
    text = _part(report, part, view)  # some plugins are only asked now, and may fail
    code = report.exit_code
    faults = (str(fault) for result in report.results for fault in result.faults)
    return Entry(
        path=report.path,
        name=report.name,
        exit_code=code,
        problems=tuple(_first(report, code, _shown_on(part, view))),
        faults=tuple(dict.fromkeys(faults)),
        missing=(
            *missing_names(report.results, view.figures).items(),
            *_missing_picture(report, view),
        ),
        part=part,
        text=text,
    )


def _missing_picture(report: Report, view: View) -> Iterator[tuple[str, str]]:
    """Yield the name of the chosen picture and a hint, if the report has no such picture."""
    if view.picture:
        known = list(
            dict.fromkeys(
                chart.name for chart in report_charts(report.axes, report.results, report.units)
            )
        )
        if view.picture not in known:
            has = f"it has {', '.join(known)}" if known else "it has none"
            near = did_you_mean(view.picture, known) or has
            yield view.picture, f"no picture is called `{view.picture}`; {near}"


def _rejection_entry(found: Rejection, part: Part) -> Entry:
    reasons = [d.message for d in found.diagnostics]
    content: Any = []
    if part in ("data", "full"):
        content = report_data.rejection(found)
    elif part == "charts":
        content = {"page": [], "charts": []}
    elif part == "points":
        content = [
            {
                "path": found.path,
                "verdict": INVALID,
                "feasible": False,
                "reason": "; ".join(reasons),
            }
        ]
    return Entry(
        path=found.path,
        exit_code=found.exit_code,
        reasons=tuple(reasons),
        problems=tuple(_problems(found.diagnostics, found.exit_code)),
        part=part,
        text=encode(content),
    )


def _part(report: Report, part: Part, view: View) -> str:
    match part:
        case "data":
            return report_data.report(report, sections=False)
        case "full":
            return report_data.report(report)
        case "points":
            return encode(points(list(_points(report, view.figures))))
        case "page":
            return encode(page_data(report_page(report, view)))
        case "charts":
            return charts_text(report, view)


def charts_text(report: Report, view: View) -> str:
    """Return the short page of a report and its pictures, as :meth:`Entry.charts` reads them."""
    drawn = report_charts(report.axes, report.results, report.units)
    chosen = [chart for chart in drawn if chart.name == view.picture or not view.picture]
    page = report_page(report, evolve(view, kind="screen", hints=False))
    return charts_of(page, chosen)


def charts_of(page: Sequence[Item], charts: Iterable[Chart]) -> str:
    """Return a page and its charts as the JSON text of an entry."""
    return encode({"page": page_data(page), "charts": [chart_data(chart) for chart in charts]})


def _shown_on(part: Part, view: View) -> bool:
    """Return whether the page itself shows why a study is invalid."""
    return part == "page" and view.kind != "section"


def _first(report: Report, code: int, on_page: bool) -> Iterator[Problem]:
    """Yield the first problems of *report*, up to a limit: a sweep may have one for each point."""
    found = report.diagnostics
    shown = [d for result in report.results for d in verdicts(result)] if on_page else []
    yield from _problems(found[:_MOST_PROBLEMS], code, shown)
    if len(found) > _MOST_PROBLEMS:
        message = f"{len(found) - _MOST_PROBLEMS:,} further problems are not shown"
        help = "`--format jsonl` gives the reason at each point"
        more = Diagnostic("too-many-problems", message, place=report.path, help=help)
        yield from _problems([more], code)


def _problems(
    found: Sequence[Diagnostic], code: int, shown: Sequence[Diagnostic] = ()
) -> Iterator[Problem]:
    """Yield the problems of an entry.

    If the sweep as a whole succeeds, errors of single points are in its table and are skipped.
    """
    on_page = {id(diagnostic) for diagnostic in shown}
    for diagnostic in found:
        error = diagnostic.severity is Severity.ERROR
        if code or not error:
            line = _one_line(diagnostic) if error else ""
            text = render(diagnostic, color=True)
            yield Problem(text=text, line=line, shown=id(diagnostic) in on_page)


def _points(report: Report, names: Sequence[str]) -> Iterator[Mapping[str, Any]]:
    """Yield one row for each point, with the figures called *names*, or with all figures."""
    legal = [result for result in report.results if result.legal]
    every = {f.name: f for result in legal for f in _chosen_figures(result, names)}
    units = {name: figure.unit for name, figure in every.items()}
    units |= report.units
    claims = claims_by_point(report.axes, report.results)
    plugins = report.results[0].study.plugins if report.results else None
    picked = {"with": plugins.files, "without": plugins.left_out} if plugins else {}
    for row in report_data.points(report, names or tuple(every)):
        last = {
            "verdict": row["verdict"],
            "feasible": row["feasible"],
            "reason": row.get("reason") or "",
        }
        yield {
            "path": report.path,
            "name": report.name,
            **{
                report_data.key(name, units[name]) if name in units else name: value
                for name, value in row.items()
                if name not in last and (name in units or name not in names)  # no unit, no name
            },
            **{name: " ".join(plugins_) for name, plugins_ in picked.items() if plugins_},
            **_claims(claims.get(key_of(row, report.axes), ())),
            **last,
        }


def _chosen_figures(result: Result, names: Sequence[str]) -> Iterable[Figure]:
    """Return the figures *names*, or all if it is empty; all figures double the evaluation time."""
    return select(result, names) if names else figures_by_name(result).values()


def _claims(claims: Sequence[tuple[Expectation, bool]]) -> Mapping[str, Any]:
    """Return the number of claims of a point, and the text of those that fail there."""
    if not claims:
        return {}
    failed = [claim.text for claim, holds in claims if not holds]
    return {"claims": len(claims), "claims_failed": "; ".join(failed)}


def page_data(items: Sequence[Item]) -> list[Any]:
    """Return a page as plain data, as :meth:`Entry.page` reads it."""
    page: list[Any] = []
    for item in items:
        match item:
            case Heading():
                page.append(["heading", item.text, item.level, item.aside])
            case Line():
                page.append(["line", item.text, item.style, item.indent, item.verbatim])
            case _:
                columns = [[c.title, c.align, c.flexible, c.optional] for c in item.columns]
                rows = [[list(r.cells), r.style, r.indent, r.rule, r.bar_color] for r in item.rows]
                page.append(["table", columns, rows])
    return page


def points(rows: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return rows with values of JSON types; a list or an object is replaced by its text."""
    scalar = (str, int, float, bool, type(None))
    return [
        {name: plain_data(v if isinstance(v, scalar) else _label(v)) for name, v in row.items()}
        for row in rows
    ]


def _label(value: Any) -> str:
    return getattr(value, "label", "") or str(value)


def _one_line(diagnostic: Diagnostic) -> str:
    """Return a diagnostic as ``file:line:column: error[id]: message``."""
    place = diagnostic.place
    if diagnostic.labels:
        span = diagnostic.labels[0].span
        line, column = span.source.position(span.start)
        place = f"{span.source.name}:{line}:{column}"
    said = f"{diagnostic.severity.value}[{diagnostic.id}]: {diagnostic.message}"
    return escape_line(f"{place}: {said}" if place else said)
