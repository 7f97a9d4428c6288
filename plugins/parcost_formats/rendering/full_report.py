"""The full page of one result: its validity, its cost by term, and the reasons.

The order is that of the usual questions of a reader. This module is independent of formulas,
keywords and plugins: names, titles and units come from the terms.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal

from parcost import PASS_NAMES
from parcost.binding.allowances import Suppression
from parcost.contract.checks import check_message
from parcost.contract.page import Column, Heading, Item, Line, Row, Style, Table
from parcost.language import numbers
from parcost.language.diagnostics import Severity
from parcost.numeric import all_of
from parcost.report.figures import interval_of, select
from parcost.report.formulas import substitute
from parcost.report.verdict import INVALID, verdict_check
from parcost.report.verdict import verdict as verdict_word
from parcost_formats.rendering.assumptions import assumption_section
from parcost_formats.rendering.cells import cells, plugin_note, share
from parcost_formats.rendering.columns import ColumnScale
from parcost_formats.rendering.job import job_table
from parcost_formats.rendering.judgments import is_in_verdict, judgment_failure, step_failure
from parcost_formats.rendering.view import Order, View

if TYPE_CHECKING:
    from parcost.contract.figures import Figure, Section
    from parcost.contract.outcome import LedgerLine, Outcome
    from parcost.language.diagnostics import Diagnostic
    from parcost.report.result import Expectation, Result

_KINDS = {
    "slowdown": "compute slowdown",
    "bubble": "pipeline bubble",
    "send_recv": "pipeline send/recv",
    "once": "once per step",
}
_RIGHT: Literal["right"] = "right"
_SHORT = 78  # columns of a command that stands in one line


def result_items(result: Result, view: View) -> Iterator[Item]:
    """Yield the full page of a single point."""
    sections = result.sections  # asked first: a plugin that fails now makes this incomplete too
    yield from verdict(result)
    yield Line("")
    yield from job_table(result)
    yield from assumption_section(result)
    outcome = result.outcome
    if outcome is not None:
        if runs(result) or not problems(result):
            yield from _figures("Figures of the step", result, view.figures)
        else:
            yield from _figures(
                f"Figures of the step (ignoring {ignored_rules(result)})", result, view.figures
            )
        yield from _intervals(result)
        yield from ledger(outcome, view.order)
        yield from memory(outcome)
    elif result.legal:
        yield from _figures("Figures", result, view.figures)
    for _, section in sections:
        yield from section_page(section)
    if result.expectations and runs(result):
        yield from _expectations(result.expectations)


def runs(result: Result) -> bool:
    """Return whether the point is valid and fits in memory."""
    return result.legal and all_of(result.feasible)


def approval(result: Result) -> str:
    """Return the verdict of a valid step, or the failed plugins that make it incomplete."""
    if failure := step_failure(result):
        return failure
    named = verdict_check(result)
    found = f"Valid, {verdict_word(result)}"
    return found if named is None else f"{found}: {check_message(named, 0).message}"


def invalid_reason(result: Result) -> str:
    """Return a sentence with the reason why a point is invalid; without training, "not
    calculated".
    """
    if not problems(result) and (failure := judgment_failure(result)):
        return failure
    if not result.study.trains:
        return "Invalid: not calculated"
    if (word := _only_failure(result)) is not None:
        return word.capitalize()
    count = len(problems(result))
    rules = f"{count} rule{'s' if count > 1 else ''} violated"
    return f"Invalid: {rules}" if count else "Invalid"


def short_reason(result: Result) -> str:
    """Return the reason why a point is invalid in a word or two, for tables."""
    if not problems(result) and judgment_failure(result):
        return "not checked"
    return _only_failure(result) or INVALID


def ignored_rules(result: Result) -> str:
    """Return the limits or rules that the figures of an invalid step ignore."""
    return "these rules" if _only_failure(result) is None else "the memory limit"


def problems(result: Result) -> list[Diagnostic]:
    """Return the errors of a point, except failed claims."""
    claims = {id(e.diagnostic) for e in result.expectations}
    errors = (d for d in result.diagnostics if d.severity is Severity.ERROR)
    return [problem for problem in errors if id(problem) not in claims]


def _only_failure(result: Result) -> str | None:
    """Return the verdict that the only error of a point names, or None."""
    if len(problems(result)) != 1:
        return None
    named = verdict_check(result)
    return named.verdict if named is not None and named.severity == "error" else None


def verdict(result: Result) -> Iterator[Item]:
    """Yield the verdict, the errors and the warnings of a result."""
    chosen = plugin_note(result.study.plugins)
    if runs(result):
        if result.outcome is not None:
            style: Style = "bad" if step_failure(result) else "good"
            yield Line(f"{approval(result)}{chosen}.", style)
    else:
        yield Line(f"{invalid_reason(result)}{chosen}.", "bad")
        for problem in problems(result):
            yield Line(problem.message, indent=2)
            yield from (Line(f"note: {note}", "faint", indent=2) for note in problem.all_notes)
            if problem.help:
                yield Line(f"help: {problem.help}", indent=2)
    yield from (Line(fault.line, "bad") for fault in result.faults)
    for warning in result.diagnostics:
        if warning.severity is not Severity.ERROR and not is_in_verdict(result, warning):
            yield Line(f"warning: {warning.message}", "warning")
    yield from suppression_lines(result.suppressions)


def suppression_lines(suppressions: Sequence[Suppression]) -> Iterator[Line]:
    """Yield the number of warnings that the spec switches off, and each with its reason."""
    if not suppressions:
        return
    count = len(suppressions)
    yield Line(f"{count} warning{'s' if count > 1 else ''} switched off:", "faint")
    for one in suppressions:
        yield Line(f"{one.diagnostic.id}: {one.reason}", "faint", indent=2)


def _figures(title: str, result: Result, names: Sequence[str]) -> Iterator[Item]:
    shown = page_figures([figure for _, figure in result.figures], result.expectations)
    if names:
        shown = select(result, names)
    rows = [Row((f.title, numbers.quantity(f.value, f.unit), _caption(f, result))) for f in shown]
    if rows:
        yield Heading(title)
        yield Table((Column(), Column(align=_RIGHT), Column(flexible=True)), rows)
    more = len(result.figures) - len(shown)
    if more > 0 and not names:
        yield Line(f"`parcost figures` lists {more} more", "faint")


def _caption(figure: Figure, result: Result) -> str:
    """Return the note of a figure, and its interval."""
    interval = result.interval(figure.name)
    if interval is None:
        return figure.note
    return f"{figure.note} ({interval_of(interval, figure.unit)})".lstrip()


def _intervals(result: Result) -> Iterator[Item]:
    """Yield the formulas of the interval of each figure."""
    units = {figure.name: figure for _, figure in result.figures}
    rows = []
    for _, interval in result.intervals:
        figure, formula = units[interval.name], interval.formula
        comes = f"{substitute(formula)} to {substitute(interval.upper)}"
        ends = interval_of(interval, figure.unit)
        rows.append(Row((figure.title, ends, comes, formula.source)))
    if rows:
        yield Heading("Intervals")
        columns = ("figure", "interval", "formula", "source")
        yield Table([Column(title, flexible=i > 1) for i, title in enumerate(columns)], rows)


def page_figures(figures: Sequence[Figure], claims: Sequence[Expectation]) -> Sequence[Figure]:
    """Return the figures that a page shows: headlines, and details that a claim names."""
    claimed = {claim.figure.name for claim in claims}
    return [f for f in figures if not f.detail or f.name in claimed]


def ledger(outcome: Outcome, order: Order = "execution") -> Iterator[Item]:
    """Yield the tables of step time by term; exposed seconds add up to the step time.

    In order of execution, the terms of a pass are in the order of the reducer. In order of size,
    the largest part comes first, with its largest term first.
    """
    step = outcome.step_seconds
    scale = ColumnScale(step, "s")
    groups: dict[str, list[LedgerLine]] = {}
    small = 0
    for line in outcome.ledger:
        if scale.shows(line.exposed) or scale.shows(line.hidden):
            groups.setdefault(_group(line), []).append(line)
        else:
            small += bool(line.exposed or line.hidden)
    rows: list[Row] = []
    if order == "size":
        sizes = {title: sum(x.exposed for x in lines) for title, lines in groups.items()}
        groups = {
            title: sorted(groups[title], key=lambda line: -line.exposed)
            for title in sorted(sizes, key=lambda title: -sizes[title])
        }
    for title, lines in groups.items():
        if len(lines) == 1:
            rows.append(_time(lines[0].name, lines, step, scale, "strong"))
        else:
            rows.append(_time(title, lines, step, scale, "strong", own=False))
            rows += [_time(line.name, [line], step, scale) for line in lines]
    total = _time("step time", outcome.ledger, step, scale, "strong", own=False, rule=True)
    where = f" (stage {outcome.device:.0f})" if outcome.pipeline.stages > 1 else ""
    yield Heading(f"Step time by term, in {scale.unit}{where}")
    yield Table(
        (
            Column("term", flexible=True),
            Column("exposed", _RIGHT),
            Column("%", _RIGHT),
            Column("hidden", _RIGHT),
            Column("resource", flexible=True),
            Column("plugin", flexible=True),
        ),
        [*rows, total],
    )
    if small:
        terms = "one term is" if small == 1 else f"{small} terms are"
        yield Line(f"{terms} too short to show in {scale.unit}; --format json shows all", "faint")


def _group(line: LedgerLine) -> str:
    if line.kind == "work":
        return PASS_NAMES.get(line.pass_, line.pass_)
    return _KINDS[line.kind]


def _time(
    name: str,
    lines: Sequence[LedgerLine],
    step: Any,
    scale: ColumnScale,
    style: Style = "plain",
    *,
    own: bool = True,
    rule: bool = False,
) -> Row:
    """Return a table row for one ledger line, or for the sum of several lines."""
    exposed, hidden = sum(x.exposed for x in lines), sum(x.hidden for x in lines)
    plugin = lines[0].plugin if own else None
    return Row(
        (
            name,
            scale.text(exposed) if scale.shows(exposed) else "",
            share(exposed, step) if scale.shows(exposed) else "",
            scale.text(hidden) if scale.shows(hidden) else "",
            lines[0].resource if own else "",
            plugin.name if plugin else "",
        ),
        style,
        indent=int(style == "plain"),
        rule=rule,
    )


def memory(outcome: Outcome) -> Iterator[Item]:
    """Yield the table of memory by term, on the device with the highest peak; they add up to it."""
    total = outcome.memory_bytes
    scale = ColumnScale(total, "B", digits=5)
    lines = sorted(outcome.memory_lines, key=lambda line: -line.bytes_)
    rows = [
        Row((line.name, scale.text(line.bytes_), share(line.bytes_, total), line.plugin.name))
        for line in lines
        if line.bytes_
    ]
    rows.append(Row(("total", scale.text(total), "100", ""), "strong", rule=True))
    stage = f"stage {outcome.memory_device:.0f}, " if outcome.pipeline.stages > 1 else ""
    yield Heading(f"Memory by term, in {scale.unit} (peak: {stage}{outcome.memory_moment})")
    yield Table(
        (
            Column("term", flexible=True),
            Column("memory", _RIGHT),
            Column("%", _RIGHT),
            Column("plugin", flexible=True),
        ),
        rows,
    )


def section_page(section: Section, rows: Sequence[tuple[Any, ...]] | None = None) -> Iterator[Item]:
    """Yield the page of a section, or of some of its *rows*."""
    rows = section.rows if rows is None else rows
    yield Heading(section.title)
    columns = []
    for position, title in enumerate(section.columns):
        numeric = all(not isinstance(row[position], str) for row in rows)
        columns.append(Column(title, "right" if numeric else "left", flexible=not numeric))
    spelled = [cells(column) for column in zip(*rows, strict=True)]
    yield Table(columns, [Row(row) for row in zip(*spelled, strict=True)])
    for note in section.notes:
        yield Line(note, "faint")
    yield from command_line(section)


def command_line(section: Section) -> Iterator[Line]:
    """Yield the command that evaluates the first row of a section, if there is one."""
    if section.command:
        yield from reproduction(section.command, "the first row")


def reproduction(command: str, row: str = "#1") -> Iterator[Line]:
    """Yield the command that evaluates the first *row* of a table, in one line if it is short."""
    short = f"Reproduce {row}: {command}"
    if len(short) < _SHORT:
        yield Line(short)
    else:
        yield Line(f"Reproduce {row}:")
        yield Line(command, verbatim=True)


def _expectations(expectations: Sequence[Expectation]) -> Iterator[Item]:
    rows = []
    for expectation in expectations:
        holds = all_of(expectation.holds)
        figure = expectation.figure
        style: Style = "good" if holds else "bad"
        rows.append(
            Row(
                (
                    "pass" if holds else "FAIL",
                    expectation.text,
                    numbers.quantity(figure.value, figure.unit),
                ),
                style,
            )
        )
    yield Heading("Expectations")
    yield Table((Column(), Column("claim", flexible=True), Column("predicted", _RIGHT)), rows)
