"""``parcost eval``: what a step costs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import click

from parcost.cli import options
from parcost.cli.output import Progress, Reporter, one_line, paper, put, tell

if TYPE_CHECKING:
    from parcost.batch import Rejected
    from parcost.diagnostics import Diagnostic
    from parcost.plugins import Plugin, Plugins
    from parcost.report import Report
    from parcost.terms import Exporter

    Entry = Report | Rejected

_CALLED = {
    0: "good",
    1: "failed a rule or an expectation, or did not fit",
    2: "bad input",
    3: "failed in a plugin or in parcost",
}


@click.command("eval")
@options.paths
@click.option(
    "--format",
    "format_",
    default="table",
    show_default=True,
    metavar="NAME",
    help="table, json, md, csv, or another that a plugin offers.",
)
@options.study
@options.overrides
@options.without
def command(
    paths: tuple[str, ...],
    format_: str,
    study: str | None,
    overrides: tuple[str, ...],
    without: tuple[str, ...],
) -> int:
    """Say what a training step costs, and where that goes.

    Reports go to stdout, problems to stderr. A directory stands for every .par file in
    it and below; a bad file never stops the others.
    """
    from parcost import batch

    values = options.parse_overrides(overrides)
    session = options.session(without)
    exporter = _exporter(session.plugins, format_)
    watch = Watch()
    entries = batch.evaluate(paths, session, overrides=values, study=study)
    for piece in _written(*exporter, watch(entries)):
        put(piece)
    if watch.many(paths):
        tell(watch.summary())
    return watch.exit_code


def _exporter(plugins: Plugins, name: str) -> tuple[Plugin, Exporter]:
    from parcost.diagnostics import did_you_mean

    offered = plugins.named("exporters")
    if name not in offered:
        hint = did_you_mean(name, offered) or "formats are " + ", ".join(sorted(offered))
        raise click.UsageError(f"there is no format `{name}`; {hint}")
    return offered[name]


def _written(plugin: Plugin, exporter: Exporter, entries: Iterable[Entry]) -> Iterator[str]:
    from parcost.diagnostics import PluginError

    try:
        yield from exporter.write(entries, paper())
    except Exception as error:
        said = f"plugin {plugin} failed to write `{exporter.name}`"
        raise PluginError(f"{said}: {type(error).__name__}: {error}") from error


class Watch:
    """Looks on as entries pass to the exporter: tells problems, and remembers the worst."""

    def __init__(self) -> None:
        self.exit_code = 0
        self._counts: Counter[int] = Counter()
        self._lines: list[str] = []
        self._faults: set[str] = set()
        self._progress = Progress()
        self._report = Reporter()

    def __call__(self, entries: Iterable[Entry]) -> Iterator[Entry]:
        """Yield *entries* as they are, once their problems have been told."""
        for number, entry in enumerate(entries, start=1):
            self._progress.clear()
            self._tell(entry)
            yield entry
            self._tell_faults(entry)  # some plugins are only asked as the report is written
            self._counts[entry.exit_code] += 1
            self.exit_code = max(self.exit_code, entry.exit_code)
            self._progress.show(f"{number} done, last {entry.path}")
        self._progress.clear()

    def _tell(self, entry: Entry) -> None:
        failing = errors(entry)
        # What fails at some point of a sweep that is good as a whole stands in its table.
        self._report(d for d in entry.diagnostics if entry.exit_code or d not in failing)
        if entry.exit_code:
            self._lines += map(one_line, failing)
        self._tell_faults(entry)

    def _tell_faults(self, entry: Entry) -> None:
        for fault in faults(entry):
            if fault not in self._faults:
                self._faults.add(fault)
                tell(f"error: {fault}\n")
                self._lines.append(f"error: {fault}")

    def many(self, paths: Sequence[str]) -> bool:
        """Whether there was more than one file, so that a summary is worth its lines."""
        return len(paths) > 1 or not paths[0].endswith(".par")

    def summary(self) -> str:
        """Return one line for each problem, and how many reports came out how."""
        counted = (f"{n} {_CALLED[code]}" for code, n in sorted(self._counts.items()))
        return "\n".join([*dict.fromkeys(self._lines), "; ".join(counted)])


def errors(entry: Entry) -> list[Diagnostic]:
    """Return the diagnostics that made the exit code what it is."""
    from parcost.diagnostics import Severity

    return [d for d in entry.diagnostics if d.severity is Severity.ERROR]


def faults(entry: Entry) -> list[str]:
    """Return the plugins that failed, in words."""
    found = [f for result in getattr(entry, "results", ()) for f in result.faults]
    said = (f"plugin {f.plugin} failed in `{f.hook}`: {f.message}" for f in found)
    return list(dict.fromkeys(said))
