"""The page of a report, in the view that the user chose."""

from __future__ import annotations

from parcost.contract.page import Heading, Item
from parcost.report.report import Report
from parcost_formats.rendering import screen, studies, sweep
from parcost_formats.rendering.full_report import result_items
from parcost_formats.rendering.parts import part
from parcost_formats.rendering.view import View


def report_page(report: Report, view: View | None = None) -> list[Item]:
    """Return the page of a report for a *view*; without one, the full page."""
    view = view or View()
    if view.kind == "line" or (view.kind == "compare" and not report.axes):
        items_of = studies.line if view.kind == "line" else studies.column
        return list(items_of(report, view.figures))
    if report.axes:
        items = list(sweep.sweep_items(report, view))
    elif view.kind == "screen":
        return list(screen.page(report, view))
    else:
        items = [Heading(report.name, 1, aside=report.path)]
        for result in report.results:
            items += result_items(result, view)
    return part(items, view.section, report.path) if view.kind == "section" else items
