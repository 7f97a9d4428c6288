"""The study of a page, in the evaluation process: its reports, its form, its searches."""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from attrs import evolve, field, frozen

from parcost.contract.importers import ImportOptions
from parcost.contract.offers import LiveExporter
from parcost.contract.page import Line, Table
from parcost.engine.session import Session
from parcost.language import numbers
from parcost.language.diagnostics import Diagnostic, Label, Severity
from parcost.language.errors import PluginError, SpecError
from parcost.language.escapes import escape_line, quote_word
from parcost.plugins.discovery import Plugins, load
from parcost.plugins.selection import PluginSelection
from parcost.search.goals import goal_of
from parcost.search.layout_search import layout_search
from parcost.version import __version__
from parcost_apps.batch.entries import entry_of
from parcost_apps.batch.scenarios import only_study
from parcost_apps.search import report as search_report
from parcost_apps.search.pictures import search_entry, search_for_map
from parcost_apps.search.sensitivity import neighbours
from parcost_apps.server.bodies import LONGEST_SEARCH_SECONDS, FormChange, SearchOrder
from parcost_apps.server.form import BlockOrder, block_order, form_of
from parcost_formats.rendering.diagnostics import as_data
from parcost_formats.rendering.job import job_table
from parcost_formats.rendering.judgments import verdicts
from parcost_formats.rendering.rejection import Rejection, attempt
from parcost_formats.rendering.report_page import report_page
from parcost_formats.rendering.resolved_spec import attributes, render_spec
from parcost_formats.rendering.view import View

if TYPE_CHECKING:
    from parcost.engine.scenario import Scenario
    from parcost.language.text import Span
    from parcost.report.report import Report
    from parcost.search.result import SearchResult
    from parcost.search.space import Space

_SUMMARY = ("step time", "memory")  # figures at the top of a page
_SET = "set "  # what the place of a value from outside begins with

Answer = Mapping[str, Any]


@frozen(kw_only=True)
class Subject:
    """The study of a page: its file, overrides and options of the command line."""

    path: str
    study: str | None = None
    overrides: Mapping[str, str] = field(factory=dict)
    reading: ImportOptions = field(factory=ImportOptions)
    selection: PluginSelection = field(factory=PluginSelection)


def live_exporter(plugins: Plugins) -> LiveExporter:
    """Return the first format that can render a live page.

    Raises:
        PluginError: No format can.
    """
    for _, exporter in plugins.offers("exporters").values():
        if isinstance(exporter, LiveExporter):
            return exporter
    raise PluginError("no plugin provides the page: it was removed with `--without`, or failed")


@frozen(eq=False)
class LiveStudy:
    """Answers the requests of a page with plain data."""

    subject: Subject
    session: Session
    _known_order: dict[str, Any] = field(factory=dict)  # of a module

    @classmethod
    def from_subject(cls, subject: Subject) -> LiveStudy:
        """Return the study of *subject*, with the plugins that it selects."""
        selection = subject.selection
        plugins = load(without=selection.without, files=selection.files)
        return cls(subject, Session(plugins))

    def page(self) -> Answer:
        """Return the page, without a form and a report.

        Raises:
            ParcostError: No plugin offers one, or it cannot be made.
        """
        page = self._exporter.live_page(escape_line(self.subject.path))
        return {"text": page.text, "policy": page.policy}

    def evaluate(self, change: FormChange) -> Answer:
        """Return the report and the form with a *change*, or the error that prevents the report."""
        answer: dict[str, Any] = {"command": self._command("eval", change)}
        scenario = self._scenario(change)
        if isinstance(scenario, Rejection):
            return {**answer, **self._problems(scenario.diagnostics)}
        exporter = self._exporter
        form = attempt(self.subject.path, lambda: form_of(scenario, self._order()))
        if isinstance(form, Rejection):
            return {**answer, **self._problems(form.diagnostics)}
        answer["form"] = exporter.inputs(form)
        report = attempt(self.subject.path, scenario.evaluate)
        if isinstance(report, Rejection):
            return {**answer, **self._problems(report.diagnostics, scenario, change)}
        reported: set[int] = set()  # what the report says
        if any(result.legal for result in report.results):
            answer["report"] = exporter.reports([entry_of(report, "charts")], "report")
            reported = {id(claim.diagnostic) for r in report.results for claim in r.expectations}
            reported |= {id(d) for result in report.results for d in verdicts(result)}
            answer["summary"] = _summary(report)
        faults = [str(fault) for result in report.results for fault in result.faults]
        found = [d for d in report.diagnostics if d.severity is Severity.ERROR]
        answer["faults"] = [escape_line(fault) for fault in dict.fromkeys(faults)]
        return {**answer, **self._problems(found, scenario, change, reported)}

    def spec(self, change: FormChange) -> Answer:
        """Return the resolved spec with a *change*."""
        scenario = self._scenario(change)
        if isinstance(scenario, Rejection):
            return self._problems(scenario.diagnostics)
        texts = attempt(self.subject.path, lambda: [render_spec(s) for s in scenario.studies()])
        if isinstance(texts, Rejection):
            return self._problems(texts.diagnostics)
        if len(texts) > 1:
            message = "a sweep describes several specs; choose one value to download a spec"
            return self._problems([Diagnostic("swept-spec", message, place=self.subject.path)])
        head = f"# made by `{self._command('show', change)}`, parcost {__version__}"
        return {"name": f"{scenario.name}.par", "text": f"{escape_line(head)}\n{texts[0]}"}

    def search(self, order: SearchOrder, on_progress: Callable[[str], None]) -> Answer:
        """Return the best layouts; *on_progress* may raise KeyboardInterrupt to end the search."""
        try:
            found = attempt(self.subject.path, lambda: self._search(order, on_progress))
        except KeyboardInterrupt:
            message = "the search was stopped before it had found a layout"
            return self._problems([Diagnostic("search-stopped", message)])
        return self._problems(found.diagnostics) if isinstance(found, Rejection) else found

    def _search(self, order: SearchOrder, on_progress: Callable[[str], None]) -> Answer:
        scenario = self._bound(order.change)
        wanted = layout_search(
            scenario,
            axes=order.axes,
            objective=order.objective or None,
            budget_seconds=order.budget_seconds,
        )
        if wanted.request.budget_seconds > LONGEST_SEARCH_SECONDS:
            raise SpecError([_long_budget(scenario, order, wanted.request.budget_seconds)])
        whole = wanted.space
        request = evolve(wanted.request, strict_budget=True)
        found = search_for_map(whole, request, on_progress)
        with suppress(KeyboardInterrupt):  # which ends the search, and that has ended
            on_progress("the best layouts are being compared and drawn")
        best = search_report.rank_layouts(found)
        near = list(neighbours(found, whole.axes))
        entry = search_entry(whole, found, best, near)
        return {
            "report": self._exporter.reports([entry], "search"),
            "layouts": list(_layouts(whole, found)),
            "diagnostics": [],
        }

    @property
    def _exporter(self) -> LiveExporter:
        return live_exporter(self.session.plugins)

    def _order(self) -> BlockOrder:
        """Return the order of blocks without a change, read again because the file may have
        changed.
        """
        plain = self._bound(FormChange())
        if self._known_order.get("module") is not plain.module:
            self._known_order.update(module=plain.module, order=block_order(plain))
        order: BlockOrder = self._known_order["order"]
        return order

    def _scenario(self, change: FormChange) -> Scenario | Rejection:
        return attempt(self.subject.path, lambda: self._bound(change))

    def _bound(self, change: FormChange) -> Scenario:
        """Return the scenario with a *change*.

        Raises:
            SpecError: The scenario cannot be bound.
        """
        own = self.subject
        known = {
            entry
            for type_ in self.session.plugins.blocks
            for entry in self.session.loader.entries_of(type_).values()
        }
        unknown = [use for use in change.uses if use not in known]
        if unknown:
            message = f"no catalogue has `{unknown[0]}`"
            raise SpecError([Diagnostic("unknown-import", message, place=own.path)])
        uses = tuple(dict.fromkeys((*own.reading.uses, *change.uses)))
        reading = evolve(own.reading, uses=uses)
        values = {**own.overrides, **change.values}
        found = only_study(self.session, own.path, own.study, values, reading)
        assert found.first is not None  # it is bound
        return found

    def _command(self, name: str, change: FormChange) -> str:
        """Return the command line that gives the same result."""
        own = self.subject
        uses = dict.fromkeys((*own.reading.uses, *change.uses))
        words = [
            *(("--from", own.reading.tool) if own.reading.tool else ()),
            *(word for use in uses for word in ("--use", use)),
            *(word for given in own.reading.anchors for word in ("--anchor", given)),
            *(("--study", own.study) if own.study else ()),
            *(word for plugin in own.selection.without for word in ("--without", plugin)),
            *(word for file in own.selection.files for word in ("--plugin", file)),
            *(
                word
                for path, text in {**own.overrides, **change.values}.items()
                for word in ("--set", f"{path}={text}")
            ),
        ]
        return escape_line(" ".join(("parcost", name, *map(quote_word, (own.path, *words)))))

    def _problems(
        self,
        diagnostics: Iterable[Diagnostic],
        scenario: Scenario | None = None,
        change: FormChange | None = None,
        reported: Container[int] = (),
    ) -> Answer:
        """Return *diagnostics*, each with the paths of the attributes that caused it.

        *reported* are identities of diagnostics that the report already shows.
        """
        spans: dict[str, Span] = {}
        if scenario is not None:
            for path, attribute in attributes(scenario.first).items():
                if attribute.is_given and (span := scenario.first.where(path)) is not None:
                    spans[path] = span
        changed = () if change is None else tuple(change.values)
        found = [
            _problem(d, spans, changed, reported=id(d) in reported)
            for d in dict.fromkeys(diagnostics)
        ]
        return {"diagnostics": found}


def _long_budget(scenario: Scenario, order: SearchOrder, seconds: float) -> Diagnostic:
    """Return the diagnostic that *seconds* exceed the time limit of searches on the page."""
    most = f"{LONGEST_SEARCH_SECONDS:,.0f} s"
    subject = "" if order.budget_seconds is not None else goal_of(scenario.first).subject
    span = scenario.first.where(f"{subject}.budget") if subject else None
    return Diagnostic(
        "long-budget",
        f"the budget of {seconds:,.0f} s is above the {most} that a search of the page may take",
        (Label(span),) if span else (),
        help=f"set at most {most}, or run `parcost search`, which has no limit",
        place=scenario.path,
    )


def _summary(report: Report) -> Mapping[str, Any]:
    """Return the verdict and the first figures of a report, for the top of a page."""
    page = report_page(report, View(kind="screen", hints=False))
    verdict = next((item for item in page if isinstance(item, Line) and item.text), Line(""))
    job = [*job_table(*report.results)]
    headlines = next((one for one in page if isinstance(one, Table) and one not in job), None)
    rows = () if report.axes or headlines is None else headlines.rows
    figures = [f"{row.cells[0]} {row.cells[1]}" for row in rows if row.cells[0]]
    kept = [text for text in figures if text.startswith(_SUMMARY)] or figures[:2]
    return {"text": verdict.text, "style": verdict.style, "figures": kept}


def _problem(
    diagnostic: Diagnostic, spans: Mapping[str, Span], changed: Sequence[str], *, reported: bool
) -> Mapping[str, Any]:
    """Return a diagnostic with the paths of its attributes.

    If the message names attributes that the page has changed, only those are its paths.
    """
    found = as_data(diagnostic)
    named = [p for p in changed if re.search(rf"\b{p.rpartition('.')[2]}\b", found["message"])]
    paths: list[str] = []
    for label in () if named else diagnostic.labels:
        if label.span.source.name.startswith(_SET):
            paths.append(label.span.source.name.removeprefix(_SET))
        paths += [path for path, span in spans.items() if _overlap(label.span, span)]
    return {
        "id": found["id"],
        "severity": found["severity"],
        "message": escape_line(found["message"]),
        "notes": [escape_line(note) for note in found["notes"]],
        "help": None if found["help"] is None else escape_line(found["help"]),
        "remarks": [escape_line(x["text"]) for x in found["labels"] if x["text"]],
        "paths": list(dict.fromkeys(named or paths)),
        "reported": reported,
    }


def _overlap(one: Span, other: Span) -> bool:
    same = one.source.name == other.source.name
    return same and one.start < other.end and other.start < one.end


def _layouts(whole: Space, found: SearchResult) -> Iterable[Mapping[str, Any]]:
    """Yield the best layouts, as values for the form of a page."""
    for layout in found.best:
        values = {path: whole.text(path, value) for path, value in layout.values.items()}
        yield {
            "values": values,
            "step": numbers.quantity(layout.seconds, "s"),
            "memory": numbers.quantity(layout.bytes_, "GiB"),
        }
