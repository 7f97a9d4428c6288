"""Pictures of a command that is no batch: of timelines and of searches."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from parcost.cli.messages import Reporter, write_message
from parcost.cli.output_files import OutputFile

if TYPE_CHECKING:
    from parcost.contract.entries import Entry
    from parcost.plugins.discovery import Plugins
    from parcost.report.rejection import Rejection
    from parcost.report.report import Report

#: The formats that draw.
PICTURES = ("html", "svg", "png")


def draw_pictures(
    found: Iterable[Report | Rejection], format_: str, out: str | None, plugins: Plugins
) -> int:
    """Draw the passes of every study over time; return the exit code."""
    from parcost.batch.entries import charts_of
    from parcost.contract.entries import Entry
    from parcost.output.explanation import point_options
    from parcost.report.rejection import Rejection

    worst = 0
    entries: list[Entry] = []
    for report in found:
        if isinstance(report, Rejection):
            Reporter()(report.diagnostics)
            worst = max(worst, report.exit_code)
            continue
        if any(result.swept for result in report.results):
            swept = " and ".join(f"`{name}`" for name, _ in report.axes)
            write_message(
                f"error: `{report.name}` of `{report.path}` sweeps {swept}: no single timeline"
            )
            write_message(f"  = help: pick a point, such as {point_options(report)}")
            worst = max(worst, 2)
            continue
        for result in report.results:
            charts = [chart for _, chart in result.timeline_charts]
            if charts:
                text = charts_of([], charts)
                entries.append(Entry(path=report.path, name=report.name, part="charts", text=text))
            else:
                Reporter()(result.diagnostics)
                if result.legal:
                    why = "trains nothing: no timeline"
                    write_message(f"error: `{report.name}` of `{report.path}` {why}")
                worst = max(worst, 1)
    if entries:
        write_entries(entries, format_, out, plugins)
    return worst


def write_entries(
    entries: Iterable[Entry], format_: str, out: str | None, plugins: Plugins
) -> None:
    """Write entries with pictures in the format of that name."""
    from parcost.cli.formats import format_named
    from parcost.output.view import View

    format_found = format_named(format_, plugins)
    format_found.check(out)
    target = OutputFile(out)
    try:
        format_found.write(entries, target, View())
        target.finish()
    finally:
        target.abandon()
