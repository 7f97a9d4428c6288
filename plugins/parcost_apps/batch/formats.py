"""Output of results: the format, the file, and the messages next to them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from threading import Event, Thread
from time import monotonic
from typing import TYPE_CHECKING

import click

from parcost.records import frozen
from parcost_apps.cli.interrupts import Interrupts
from parcost_apps.cli.messages import Progress, Reporter, write_message
from parcost_apps.cli.output_files import OutputFile, write_with

if TYPE_CHECKING:
    from parcost.contract.entries import Entry, Part
    from parcost.contract.offers import Exporter, FileExporter
    from parcost.contract.plugin import Plugin
    from parcost.plugins.discovery import Plugins
    from parcost_apps.batch.cache import Cache
    from parcost_apps.batch.fingerprints import Environment
    from parcost_apps.batch.run import BatchRun
    from parcost_formats.rendering.view import View

_CALLED = {
    0: "without errors",
    1: "failed a rule or an expectation, or did not fit",
    2: "with bad input",
    3: "failed in a plugin or in parcost",
}
_VERDICT, _FAULT = 1, 3
_MORE = {  # what a group of lines is about, by exit code: the summary ends in the gravest
    _VERDICT: "verdicts",
    2: "errors in specs",
    _FAULT: "failures of plugins or parcost",
}
_FORMATS = "formats"
_MOST_OF_A_GROUP = 20
_LONG_SECONDS = 60.0  # without a result: the file that is evaluated is named


@frozen(eq=False)
class Format:
    """An exporter, and the plugin that offers it."""

    plugin: Plugin
    exporter: Exporter | FileExporter

    @property
    def reads(self) -> Part:
        """The part of the entries that the exporter reads."""
        from parcost.contract.entries import PARTS
        from parcost.language.errors import PluginError

        part = self.exporter.reads
        if part not in PARTS:
            known = ", ".join(PARTS)
            name = self.exporter.name
            message = f"`{name}` of plugin {self.plugin} reads `{part}`, which is none of: {known}"
            raise PluginError(message)
        return part

    def check(self, out: str | None) -> None:
        """Reject a format that writes files if `--out` is missing."""
        from parcost.contract.offers import FileExporter

        if out is None and isinstance(self.exporter, FileExporter):
            raise click.UsageError(f"`--format {self.exporter.name}` writes files: add --out FILE")

    def write(self, entries: Iterable[Entry], target: OutputFile, view: View) -> None:
        """Write *entries* with the exporter; *view* selects the content of pages."""
        fed = _EntryStream(entries)
        found: Iterable[Entry] = fed
        if self.reads == "page":
            found = on_one_page(fed, view, target.paper().width)
        try:
            write_with(self.plugin, self.exporter, found, target)
        except BaseException:
            if fed.failure is not None:  # whatever the exporter has made of it
                raise fed.failure from None
            raise


class _EntryStream:
    """Passes entries to an exporter; errors in creating entries are kept separate from the
    exporter's errors.
    """

    def __init__(self, entries: Iterable[Entry]) -> None:
        self.failure: BaseException | None = None  # to make them
        self._entries = entries

    def __iter__(self) -> Iterator[Entry]:
        try:
            yield from self._entries
        except GeneratorExit:  # the exporter wants no more
            raise
        except BaseException as error:
            self.failure = error
            raise


def on_one_page(entries: Iterable[Entry], view: View, width: int) -> Iterator[Entry]:
    """Yield *entries*, or a single entry if they share one page.

    Pages of few studies stay separate. Many studies share a page with one line each, and a
    comparison has one column each.
    """
    from parcost.contract.entries import Entry
    from parcost.language.json_encoding import encode
    from parcost_apps.batch.entries import page_data

    if view.kind in ("full", "section"):
        yield from entries
        return
    found = list(entries)
    kind = view.kind_among(len(found))
    if kind == "screen":
        yield from found
        return
    from parcost_formats.rendering.studies import join_pages

    page = join_pages(found, beside=kind == "compare", width=width)
    yield Entry(path="", name="", part="page", text=encode(page_data(page)))


def find_format(name: str, plugins: Plugins) -> Format:
    """Return the format of that name; an unknown one is a usage error."""
    from parcost.language.diagnostics import did_you_mean

    offered = plugins.offers("exporters")
    if name not in offered:
        hint = did_you_mean(name, offered) or "formats are " + ", ".join(sorted(offered))
        raise click.UsageError(f"there is no format `{name}`; {hint}")
    return Format(*offered[name])


def find_cached_format(name: str, environment: Environment, cache: Cache) -> Format | None:
    """Return the format of that name from the cache; only the plugin that offers it is imported."""
    from parcost.plugins.discovery import Plugins

    known = cache.fact(_FORMATS) or {}
    plugin = environment.plugin(known[name]) if name in known else None
    return None if plugin is None else find_format(name, Plugins((plugin,)))


def remember_formats(plugins: Plugins, cache: Cache) -> None:
    """Cache the name of the plugin that offers each format."""
    offered = plugins.offers("exporters")
    cache.store_value(_FORMATS, {name: plugin.name for name, (plugin, _) in offered.items()})


def progress_line(done: int, files: int, spent: float) -> str:
    """Return a text with the number of finished files after *spent* seconds, their share and the
    remaining time.

    >>> progress_line(300, 1200, 30.0)
    '300 of 1,200 files done (25 %), 90 s left'
    """
    said = f"{done:,} of {files:,} files done"
    if not 0 < done <= files:
        return said
    from parcost.language.numbers import quantity

    left = quantity(spent * (files - done) / done, "s", digits=2)
    return f"{said} ({quantity(done / files, '%', digits=2)}), {left} left"


class Watch:
    """Passes entries to the exporter, prints their problems, and keeps the worst exit code."""

    def __init__(
        self,
        run: BatchRun,
        files: int,
        inside: Progress,
        *,
        elsewhere: bool,
        warn: bool = True,
        repeat: bool = True,
    ) -> None:
        self.exit_code = 0
        self._run = run
        self._files = files
        self._warn, self._warnings = warn, 0  # what a page says is not said again
        self._elsewhere = elsewhere  # and nobody sees the page
        self._repeat = repeat  # failures in the summary, unless a page ends in them
        self._counts: Counter[int] = Counter()
        self._remembered = 0
        self._lines: dict[int, dict[str, None]] = {code: {} for code in _MORE}
        self._untold: Counter[int] = Counter()
        self._faults: set[str] = set()
        self._last = 0.0  # when the last entry came
        self._missing: dict[str, str] | None = None  # what every report so far lacks
        self._progress = Progress(elsewhere=elsewhere)
        self._inside = inside  # of a file
        self._report = Reporter()

    def __call__(self, entries: Iterable[Entry], interrupts: Interrupts) -> Iterator[Entry]:
        """Yield *entries* unchanged, after printing their problems."""
        start = self._last = monotonic()
        ended = Event()
        Thread(target=self._name_slow_files, args=(ended,), daemon=True).start()
        try:
            for entry in entries:
                self._last = monotonic()
                interrupts.check()
                self._inside.clear()
                if entry.problems or entry.faults:
                    self._progress.clear()
                    self._print_entry(entry)
                if not entry.rejected:
                    missing = dict(entry.missing)
                    before = missing if self._missing is None else self._missing
                    self._missing = {name: hint for name, hint in before.items() if name in missing}
                self._counts[entry.exit_code] += 1
                self._remembered += entry.remembered
                self.exit_code = max(self.exit_code, entry.exit_code)
                yield entry
                spent = monotonic() - start
                said = progress_line(self._run.done, self._files, spent)
                self._progress.show(f"{said}, last {entry.path}")
                self._last = monotonic()
        finally:
            ended.set()
            self._inside.clear()
            self._progress.clear()
            self._report.show_repeats()

    def _name_slow_files(self, ended: Event) -> None:
        """Print the files in evaluation, once each, if no result arrived for a while.

        A plugin may never return; the user must decide.
        """
        named = ""
        while not ended.wait(_LONG_SECONDS / 10):
            files, waited = self._current_files(), monotonic() - self._last
            if files and files != named and waited > _LONG_SECONDS:
                named = files
                self._inside.clear()
                write_message(f"{files}: still running after {waited:.0f} s; Ctrl-C stops the run")

    def _current_files(self) -> str:
        """Return the names of the files whose results come next."""
        files = self._run.current
        if len(files) > 1:
            return f"{len(files)} files, {files[0]} to {files[-1]}"
        return "".join(files)

    def _print_entry(self, entry: Entry) -> None:
        # what a report says is a verdict, also where a plugin failed beside it
        code = entry.exit_code if entry.rejected else _VERDICT
        for problem in entry.problems:
            if not (problem.line or self._warn):
                self._warnings += 1
                continue
            if self._elsewhere or not problem.shown:
                self._report.show(problem.text, entry.path)
            self._keep(problem.line, code)
        for fault in entry.faults:
            if fault not in self._faults:
                self._faults.add(fault)
                write_message(f"error: {fault}\n")
                self._keep(f"error: {fault}", _FAULT)

    def _keep(self, line: str, code: int) -> None:
        """Keep a line for the summary, up to a limit for each exit code."""
        lines = self._lines[code]
        if line and line not in lines:
            if len(lines) < _MOST_OF_A_GROUP:
                lines[line] = None
            else:
                self._untold[code] += 1

    def print_unknown_names(self) -> None:
        """Print an error for each chosen name that no report has."""
        for message in (self._missing or {}).values():
            write_message(f"error: {message}")
            self.exit_code = max(self.exit_code, 2)

    def print_interruption(self) -> None:
        """Print how many files are done, after an interruption."""
        if self._files > 1:
            kept = "; run the same command again to continue" if self._run.cache is not None else ""
            message = f"{self._run.done:,} of {self._files:,} files were done{kept}"
            if files := self._current_files():
                message += f"\nnot done: {files}"
            write_message(message)

    def summary(self) -> str:
        """Return the summary: a line per problem, the most severe last, then the number of
        reports.
        """
        lines: list[str] = []
        for code, group in self._lines.items() if self._repeat else ():
            lines += group
            if more := self._untold[code]:
                lines.append(f"and {more:,} more {_MORE[code]}")
        counted = [f"{n} {_CALLED[code]}" for code, n in sorted(self._counts.items())]
        if self._warnings:
            some = "warning" if self._warnings == 1 else "warnings"
            counted.append(f"{self._warnings} {some}: `parcost eval FILE` shows them")
        if self._remembered:
            counted.append(f"{self._remembered} of them unchanged, from the cache")
        return "\n".join([*lines, "; ".join(counted) or "nothing to evaluate"])
