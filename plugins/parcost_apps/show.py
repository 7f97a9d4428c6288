"""``parcost show``: a spec with all defaults written out.

The output is a spec itself: every block, every attribute, no import; comments name the origin of
each value. Evaluating it gives the same report. With ``--ranks`` or ``--stages`` a plugin prints a
page of the study instead.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import click

from parcost_apps import options
from parcost_apps.cli.messages import Reporter
from parcost_apps.cli.pages import paper
from parcost_apps.cli.streams import put

if TYPE_CHECKING:
    from parcost.contract.figures import Section
    from parcost.contract.plugin import Plugin
    from parcost.contract.study import Study
    from parcost.engine.scenario import Scenario
    from parcost_formats.rendering.rejection import Rejection


_LIST = re.compile(r"\d[\d, -]*")


class _WithLists(click.Command):
    """A command whose options --ranks and --stages may be given without a list."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Add the value ``all`` to each such option without a list."""
        spelled = []
        for i, arg in enumerate(args):
            after = args[i + 1] if i + 1 < len(args) else ""
            alone = arg in ("--ranks", "--stages") and not _LIST.fullmatch(after)
            spelled.append(f"{arg}={options.ALL}" if alone else arg)
        return super().parse_args(ctx, spelled)


@click.command("show", cls=_WithLists)
@options.job
@options.studies
@click.option(
    "--ranks",
    metavar="[LIST]",
    help="Print the process groups of all ranks, or of these: --ranks=0,5,96-103.",
)
@click.option(
    "--stages",
    metavar="[LIST]",
    help="Print the layers and the devices of all stages, or of these.",
)
@click.option(
    "--format",
    "format_",
    type=click.Choice(["table", "json", "md"]),
    default="table",
    help="Format of --ranks and --stages.",
)
def command(
    path: str,
    given: options.StudyOptions,
    ranks: str | None,
    stages: str | None,
    format_: str,
) -> int:
    """Print the resolved spec: every default, and the origin of each value."""
    from parcost_formats.rendering.rejection import Rejection, attempt

    asked = {"ranks": ranks, "stages": stages}
    wanted = {
        name: options.parse_numbers(name, text) for name, text in asked.items() if text is not None
    }
    if not wanted and format_ != "table":
        raise click.UsageError(
            "--format applies to --ranks and --stages only; a resolved spec is printed as a spec"
        )
    worst = 0
    documents: list[dict[str, Any]] = []
    for _, scenario in given.scenarios([path], given.session()):
        pages = (
            scenario
            if isinstance(scenario, Rejection)
            else attempt(path, lambda s=scenario: _make_pages(s, wanted, format_))  # type: ignore[misc]
        )
        if isinstance(pages, Rejection):
            Reporter()(pages.diagnostics)
            worst = max(worst, pages.exit_code)
            continue
        for page in pages:
            if isinstance(page, str):
                put(page)
            else:
                documents.append(page)
    if documents:
        put(_json(documents))
    return worst


def _make_pages(
    scenario: Scenario, wanted: dict[str, list[int]], format_: str
) -> list[str | dict[str, Any]] | Rejection:
    """Return the pages of *scenario*, or a rejection if a rule rejects the study."""
    from parcost.engine.rules import diagnose, rules
    from parcost_formats.rendering.rejection import Rejection

    found = [
        diagnose(check, study)
        for study in (scenario.studies() if wanted else ())
        if not study.axes
        for check in rules(study).failed
        if check.severity == "error"
    ]
    if found:
        return Rejection(path=scenario.path, diagnostics=found, exit_code=1)
    return list(_pages(scenario, wanted, format_))


def _pages(
    scenario: Scenario, wanted: dict[str, list[int]], format_: str
) -> Iterator[str | dict[str, Any]]:
    from parcost.language.escapes import escape_line
    from parcost.version import __version__
    from parcost_formats.rendering.resolved_spec import render_spec

    for study in scenario.studies():
        if not wanted:
            named = escape_line(f"{scenario.name} of {scenario.path}")
            text = render_spec(study) + "\n"
            count = text.count("\n") + 1
            yield f"# {named}, resolved by parcost {__version__}: {count:,} lines\n{text}"
            continue
        views = [view for name, rows in wanted.items() for view in _views(study, name, rows)]
        if format_ == "json":
            yield _document(scenario, views)
        else:
            yield _drawn(scenario, [section for _, section in views], format_)


def _views(study: Study, name: str, rows: Sequence[int]) -> list[tuple[Plugin, Section]]:
    from parcost.language.diagnostics import Diagnostic
    from parcost.language.errors import SpecError

    plugins, faults = study.plugins, study.faults
    found = [*plugins.ask("sections", faults, taking="name", study=study, name=name, rows=rows)]
    if not found:
        message = f"no plugin shows `{name}`"
        raise SpecError([Diagnostic("no-view", message, place=study.path)])
    return found


def _document(scenario: Scenario, views: list[tuple[Plugin, Section]]) -> dict[str, Any]:
    from parcost_formats.rendering.report_data import section_of

    return {
        "study": scenario.name,
        "path": scenario.path,
        "sections": [section_of(plugin, view) for plugin, view in views],
    }


def _json(documents: list[dict[str, Any]]) -> str:
    import json

    from parcost_formats.rendering.escapes import escape_json
    from parcost_formats.rendering.json_header import header

    return escape_json(json.dumps({**header(), "studies": documents}, ensure_ascii=False)) + "\n"


def _drawn(scenario: Scenario, views: list[Section], format_: str) -> str:
    from attrs import evolve

    from parcost.contract.page import Heading, Item
    from parcost_formats.rendering import markdown
    from parcost_formats.rendering.full_report import section_page
    from parcost_formats.rendering.text import draw

    items: list[Item] = [Heading(scenario.name, 1, aside=scenario.path)]
    for view in views:
        rows = [tuple(_shorten(cell) for cell in row) for row in view.rows]
        items += section_page(evolve(view, rows=rows))
    drawn = markdown.draw(items) if format_ == "md" else draw(items, paper())
    return drawn + "\n"


def _shorten(cell: Any) -> Any:
    """Return a list of whole numbers as text with ranges.

    >>> _shorten([0, 1, 2, 3]), _shorten([0, 8, 16, 24]), _shorten([3]), _shorten([])
    ('0-3', '0-24 by 8', '3', '-')
    >>> _shorten([0, 1, 2, 8, 9, 10]), _shorten([0, 4, 9])
    ('0-2, 8-10', '0, 4, 9')
    """
    if not isinstance(cell, list):
        return cell
    if not cell:
        return "-"
    steps = {b - a for a, b in pairwise(cell)}
    if len(cell) > 2 and len(steps) == 1 and steps != {1}:
        return f"{cell[0]}-{cell[-1]} by {steps.pop()}"
    runs: list[list[int]] = []
    for number in cell:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ", ".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else str(run[0]) for run in runs)
