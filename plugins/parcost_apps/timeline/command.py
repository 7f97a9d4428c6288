"""``parcost timeline``: the passes of every pipeline device over time, in any plugin's format."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any

import click

from parcost_apps import options
from parcost_apps.batch.pictures import picture_format, unknown_format, write_entries
from parcost_apps.cli.interrupts import Interrupts
from parcost_apps.cli.messages import Reporter, write_message
from parcost_apps.cli.output_files import OutputFile, OutputFolder, write_with

if TYPE_CHECKING:
    from parcost.contract.entries import Entry
    from parcost.contract.offers import TimelineExporter, TimelineFileExporter
    from parcost.contract.plugin import Plugin
    from parcost.contract.traces import StepTrace
    from parcost.plugins.discovery import Plugins
    from parcost.report.report import Report
    from parcost_apps.batch.formats import Format
    from parcost_formats.rendering.rejection import Rejection


@click.command("timeline")
@options.job
@options.studies
@click.option(
    "--format",
    "given_format",
    show_default=options.BY_SUFFIX.format("table"),
    metavar="NAME",
    help="table, json, perfetto, chakra, svg, png, html, or a format of a plugin.",
)
@click.option(
    "--out",
    metavar="PATH",
    help="Write the timeline to PATH, atomically.",
)
@click.option(
    "--ranks",
    metavar="LIST",
    help="Only these ranks, in a format that writes ranks: --ranks=0,8,16-23.",
)
def command(
    path: str,
    given: options.StudyOptions,
    given_format: str | None,
    out: str | None,
    ranks: str | None,
) -> int:
    """Draw the passes of every pipeline device over time, or write a trace of the step.

    A table has one line per device, shortened in the middle if the terminal is too narrow. It
    counts the passes of each device in warm-up, steady state and drain. It also has the idle share
    and the peak number of micro-batches in flight. Table and JSON omit once-per-step terms; COLUMNS
    sets the width. A trace has every term: perfetto for the viewers of Perfetto and Chrome, chakra
    for simulators.
    """
    wanted = None if ranks is None else options.parse_numbers("ranks", ranks)
    format_ = options.output_format(given_format, out, ("json", "html", "svg", "png"), "table")
    session = given.session()
    active = session.plugins
    picture = None
    if format_ not in active.offers("timeline_exporters"):
        picture = picture_format(format_, active)
    if picture is not None:
        if ranks is not None:
            raise click.UsageError(f"`--ranks` has no effect on `--format {format_}`")
        picture.check(out)
        return _draw_pictures(given.evaluate([path], session), picture, out)
    plugin, exporter = _format(format_, active, out, ranks)
    found = _Traces(given.evaluate([path], session), wanted)
    traces = iter(found)
    first = next(traces, None)
    if first is not None:
        _write(plugin, exporter, chain([first], traces), out)
    return found.exit_code


def _format(
    name: str, plugins: Plugins, out: str | None, ranks: str | None
) -> tuple[Plugin, TimelineExporter | TimelineFileExporter]:
    """Return the format of that name, and its plugin; an option without effect is a usage error."""
    from parcost.contract.offers import TimelineFileExporter

    offered: Mapping[str, tuple[Plugin, Any]] = plugins.offers("timeline_exporters")
    if name not in offered:
        raise click.UsageError(unknown_format("a timeline", name, offered, plugins))
    plugin, exporter = offered[name]
    of_files = isinstance(exporter, TimelineFileExporter)
    if of_files and out is None:
        what = "FOLDER" if exporter.folder else "FILE"
        raise click.UsageError(f"`--format {name}` writes files: add --out {what}")
    if ranks is not None and not (of_files and exporter.reads_ranks):
        hint = "it shows pipeline devices, not ranks"
        raise click.UsageError(f"`--ranks` has no effect on `--format {name}`: {hint}")
    return plugin, exporter


def _write(
    plugin: Plugin,
    exporter: TimelineExporter | TimelineFileExporter,
    traces: Iterable[StepTrace],
    out: str | None,
) -> None:
    """Write *traces* in a format."""
    from parcost.contract.offers import TimelineFileExporter

    interrupts = Interrupts()
    target: OutputFile | OutputFolder
    if isinstance(exporter, TimelineFileExporter) and exporter.folder:
        target = OutputFolder(str(out))
    else:
        target = OutputFile(out, interrupts)
    with interrupts, target:
        write_with(plugin, exporter, traces, target)


class _Traces:
    """The traces of the studies of a file; prints rejections and keeps the worst exit code."""

    def __init__(self, entries: Iterable[Report | Rejection], ranks: Sequence[int] | None) -> None:
        self.exit_code = 0
        self._entries = entries
        self._ranks = ranks

    def __iter__(self) -> Iterator[StepTrace]:
        from attrs import evolve

        from parcost_formats.rendering.rejection import Rejection

        for entry in self._entries:
            if isinstance(entry, Rejection):
                Reporter()(entry.diagnostics)
                self.exit_code = max(self.exit_code, entry.exit_code)
                continue
            for trace in self._traces_of(entry):
                yield trace if self._ranks is None else evolve(trace, ranks=self._ranks)

    def _traces_of(self, report: Report) -> Iterator[StepTrace]:
        """Yield the traces of a report."""
        from parcost_apps.timeline.step_trace import replay_trace, step_trace

        for result in report.results:
            name, path, at = report.name, report.path, result.at
            if result.outcome is None:
                Reporter()(result.diagnostics)
                runs = list(result.study.contributions("replays")) if result.legal else []
                if runs and not result.swept:
                    for _, run in runs:
                        yield replay_trace(result.study, run, name=name, path=path, at={})
                    continue
                if result.legal:
                    why = "sweeps an attribute" if runs else "has no training step"
                    write_message(f"error: `{name}` of `{path}` {why}, so it has no timeline")
                self.exit_code = max(self.exit_code, 1)
            elif result.swept:
                _report_sweep(report, result.study.axes)
                self.exit_code = max(self.exit_code, 2)
            else:
                yield step_trace(result.study, result.outcome, name=name, path=path, at=at)


def _draw_pictures(found: Iterable[Report | Rejection], format_: Format, out: str | None) -> int:
    """Draw the passes of every study over time; return the exit code."""
    from parcost.contract.entries import Entry
    from parcost_apps.batch.entries import charts_of
    from parcost_formats.rendering.rejection import Rejection

    worst = 0
    entries: list[Entry] = []
    for report in found:
        if isinstance(report, Rejection):
            Reporter()(report.diagnostics)
            worst = max(worst, report.exit_code)
            continue
        if any(result.swept for result in report.results):
            _report_sweep(report, report.axes)
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
                    why = "has no training step, and so no timeline"
                    write_message(f"error: `{report.name}` of `{report.path}` {why}")
                worst = max(worst, 1)
    if entries:
        write_entries(entries, format_, out)
    return worst


def _report_sweep(report: Report, axes: Iterable[tuple[str, Any]]) -> None:
    """Report that a sweep over *axes* has no single timeline, and how to pick a point."""
    from parcost_formats.rendering.point_options import point_options

    swept = " and ".join(f"`{name}`" for name, _ in axes)
    message = f"`{report.name}` of `{report.path}` sweeps {swept}, so it has no single timeline"
    write_message(f"error: {message}")
    write_message(f"  = help: choose a point, such as {point_options(report)}")
