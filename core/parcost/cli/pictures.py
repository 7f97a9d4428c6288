"""Pictures of timelines and searches, which are not written by a batch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from parcost.cli.messages import Reporter, write_message
from parcost.cli.output_files import OutputFile

if TYPE_CHECKING:
    from parcost.cli.formats import Format
    from parcost.contract.entries import Entry
    from parcost.contract.plugin import Plugin
    from parcost.plugins.discovery import Plugins
    from parcost.report.rejection import Rejection
    from parcost.report.report import Report


def draw_pictures(found: Iterable[Report | Rejection], format_: Format, out: str | None) -> int:
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
        write_entries(entries, format_, out)
    return worst


def picture_format(name: str, plugins: Plugins) -> Format | None:
    """Return the format of that name, or None if it does not draw."""
    from parcost.cli.formats import Format

    found = _drawing(plugins).get(name)
    return None if found is None else Format(*found)


def unknown_format(what: str, name: str, others: Iterable[str], plugins: Plugins) -> str:
    """Return the message for an unknown format *name* of *what*, with the nearest known ones."""
    from parcost.language.diagnostics import did_you_mean

    known = sorted({*others, *_drawing(plugins)})
    hint = did_you_mean(name, known) or "formats are " + ", ".join(known)
    return f"{what} has no format `{name}`; {hint}"


def write_entries(entries: Iterable[Entry], format_: Format, out: str | None) -> None:
    """Write entries with pictures in a format."""
    from parcost.output.view import View

    format_.check(out)
    with OutputFile(out) as target:
        format_.write(entries, target, View())


def _drawing(plugins: Plugins) -> Mapping[str, tuple[Plugin, Any]]:
    """Return the formats that draw pictures, with their plugins."""
    offered = plugins.offers("exporters")
    return {name: found for name, found in offered.items() if found[1].reads == "charts"}
