"""``parcost explain``: one number of a report, down to its inputs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from parcost_apps import options
from parcost_apps.cli.messages import Reporter, write_message
from parcost_apps.cli.pages import show

if TYPE_CHECKING:
    from parcost.report.report import Report

_PROPOSED = 3  # names that may be meant


@click.command("explain")
@options.path
@click.argument("names", nargs=-1, metavar="[FILE...] [TERM]")
@options.studies
def command(
    path: str,
    names: tuple[str, ...],
    given: options.StudyOptions,
) -> int:
    """Explain one number of a report: formula, inputs, source.

    TERM is any name of a report: a figure, a cause such as `TP communication`, a line of the
    step or of memory, a lever; or an attribute or a block of the job, such as `layout.zero`, with
    the place that sets it. The page has the formula in symbols and with numbers, its inputs,
    its source and its plugin; a cause has its terms. A term has
    its place in the step and the work that can overlap with it. In a sweep `--set` selects the
    point.
    Without TERM the names are listed.
    """
    from parcost_formats.rendering.rejection import Rejection

    if len(names) > 1:
        raise click.UsageError(
            f"only one TERM can be explained, not {len(names)}: quote a name with spaces"
        )
    term = names[0] if names else ""
    if term.endswith(".par") and not path.endswith(".par"):
        raise click.UsageError(f"the file comes first: `parcost explain {term} {path}`")
    worst = 0
    reports = []
    for entry in given.evaluate([path], given.session()):
        if isinstance(entry, Rejection):
            Reporter()(entry.diagnostics)
            worst = max(worst, entry.exit_code)
        elif entry.axes:
            _several(entry)
            worst = max(worst, 2)
        else:
            reports.append(entry)
    if not reports:
        return worst
    if not term:
        _list(reports)
        return worst
    found = [_explain(report, term) for report in reports]
    return worst if any(found) else max(worst, _report_unknown_term(reports, term))


def _several(report: Report) -> None:
    """Report that a sweep has no single explanation, and how to explain one of its points."""
    from parcost_formats.rendering.point_options import point_options

    swept = " and ".join(f"`{name}`" for name, _ in report.axes)
    write_message(
        f"error: `{report.name}` of `{report.path}` sweeps {swept}; `explain` needs one point"
    )
    write_message(f"  = help: choose one, such as {point_options(report)}")


def _explain(report: Report, term: str) -> bool:
    from parcost.contract.page import Heading, Item
    from parcost_apps.explain.explanation import explain, explain_section, explain_settings

    items: list[Item] = []
    for search in (explain, explain_settings, explain_section):  # the slowest is the last
        items = items or [item for result in report.results for item in search(result, term)]
    if items:
        show([Heading(report.name, 1, aside=report.path), *items])
    return bool(items)


def _report_unknown_term(reports: list[Report], term: str) -> int:
    from parcost.language.diagnostics import nearest_names
    from parcost.report.result import missing_message
    from parcost_apps.explain.explanation import names, setting_names

    names_of = setting_names if "." in term else names
    known = list(dict.fromkeys(n for r in reports for x in r.results for n in names_of(x)))
    if not known:
        write_message(f"error: `{reports[0].path}` is invalid, so it has no terms")
        for report in reports:
            Reporter()(report.diagnostics)
        return 1
    needed = {name: needs for r in reports for x in r.results for name, needs in x.missing.items()}
    if term in needed:
        write_message(f"error: {missing_message(term, needed)}")
        return 2
    write_message(f"error: no term or figure is called `{term}`")
    inside = [name for name in known if term.lower() in name.lower()]
    close = [*inside, *nearest_names(term.lower(), known, _PROPOSED)]
    means = " or ".join(f"`{name}`" for name in list(dict.fromkeys(close))[:_PROPOSED])
    hint = f"did you mean {means}? " if means else ""
    write_message(f"  = help: {hint}without a name, the command lists all terms and figures")
    return 2


def _list(reports: list[Report]) -> None:
    """Print the names that can be explained, grouped by the part of the report."""
    from parcost.contract.page import Heading, Item
    from parcost_apps.explain.explanation import name_tables

    for report in reports:
        page: list[Item] = [Heading(report.name, 1, aside=report.path)]
        for result in report.results:
            page += name_tables(result)
        show(page)
        if not any(result.legal for result in report.results):
            Reporter()(report.diagnostics)
