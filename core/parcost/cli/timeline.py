"""``parcost timeline``: the passes of every pipeline device over time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from parcost.cli import options
from parcost.cli.messages import Reporter, write_message
from parcost.cli.pages import paper, show
from parcost.cli.streams import put

if TYPE_CHECKING:
    from parcost.contract.importers import ImportOptions
    from parcost.contract.study import Replay
    from parcost.plugins.selection import PluginSelection
    from parcost.report.report import Report


@click.command("timeline")
@options.path
@options.study
@options.overrides
@options.reading
@options.selection
@click.option(
    "--format",
    "format_",
    type=click.Choice(["table", "json"]),
    default="table",
    help="Print a drawing, or the start and end of every pass.",
)
def command(
    path: str,
    study: str | None,
    overrides: tuple[str, ...],
    reading: ImportOptions,
    selection: PluginSelection,
    format_: str,
) -> int:
    """Draw the passes of every pipeline device over time.

    There is one line per device, cut in the middle if the page is too narrow. A table lists
    the passes of warm-up, steady state and drain of each device. It also lists idle time, and
    the most micro-batches in flight. Once-per-step terms are left out. COLUMNS sets the width.
    """
    from parcost.batch.scenarios import evaluate
    from parcost.report.rejection import Rejection

    values = options.parse_overrides(overrides)
    session = options.session(selection)
    worst = 0
    documents: list[dict[str, Any]] = []
    for entry in evaluate([path], session, overrides=values, study=study, reading=reading):
        if isinstance(entry, Rejection):
            Reporter()(entry.diagnostics)
            worst = max(worst, entry.exit_code)
            continue
        worst = max(worst, _drawn(entry, documents, drawing=format_ == "table"))
    if documents:
        import json

        from parcost.language.escapes import escape_json
        from parcost.output.data import header

        document = json.dumps({**header(), "studies": documents}, ensure_ascii=False)
        put(escape_json(document) + "\n")
    return worst


def _drawn(report: Report, documents: list[dict[str, Any]], *, drawing: bool) -> int:
    """Draw the results of *report*, or add them to *documents*; return the exit code."""
    from parcost.output import timeline
    from parcost.output.explanation import point_options

    worst = 0
    for result in report.results:
        outcome = result.outcome
        if outcome is None:
            Reporter()(result.diagnostics)
            runs = list(result.study.contributions("replays")) if result.legal else []
            if runs and not result.swept:
                _draw_replays(report, [run for _, run in runs], documents, drawing=drawing)
                continue
            if result.legal:
                why = "sweeps" if runs else "trains nothing"
                write_message(f"error: `{report.name}` of `{report.path}` {why}: no timeline")
            worst = max(worst, 1)
        elif result.swept:
            swept = " and ".join(f"`{name}`" for name, _ in result.study.axes)
            write_message(
                f"error: `{report.name}` of `{report.path}` sweeps {swept}: no single timeline"
            )
            write_message(f"  = help: pick a point, such as {point_options(report)}")
            worst = max(worst, 2)
        elif drawing:
            show(timeline.page(result, report.name, report.path, paper().width))
        else:
            devices = timeline.data(outcome.timeline())
            found = {"study": report.name, "path": report.path, "at": dict(result.at)}
            documents.append({**found, "devices": devices})
    return worst


def _draw_replays(
    report: Report, runs: Sequence[Replay], documents: list[dict[str, Any]], *, drawing: bool
) -> None:
    """Draw pipelines that stand by themselves, or add them to *documents*."""
    from parcost.contract.page import Heading
    from parcost.engine.trace import replay_activities
    from parcost.output import timeline

    for run in runs:
        devices, order = replay_activities(run)
        if drawing:
            title = Heading(f"{report.name}: {run.name}", 1, aside=report.path)
            lines = timeline.drawing(devices, order, run.pipeline, paper().width)
            show([title, *lines])
        else:
            found = {"study": report.name, "path": report.path, "at": {}, "pipeline": run.name}
            documents.append({**found, "devices": timeline.data(devices)})
