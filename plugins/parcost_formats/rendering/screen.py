"""A report on one screen: the verdict, the job, the headline figures, time and memory by cause.

For a study without a sweep, the page has 44 lines of 80 columns. With long lists, such as changes
that make a job fit, it has some more lines. Plugins mark its content: figures with a ``brief``
note, the causes of terms, and the ``lead`` rows of sections. The last line names the options that
print the rest.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from attrs import evolve, frozen

from parcost.contract.outcome import OTHER
from parcost.contract.page import Column, Heading, Item, Line, Paper, Row, Style, Table
from parcost.language import numbers
from parcost.language.diagnostics import Severity
from parcost.numeric import all_of, is_array
from parcost.report.figures import interval_of, select
from parcost_formats.rendering.assumptions import assumption_line
from parcost_formats.rendering.cells import cells, plugin_note, share
from parcost_formats.rendering.columns import ColumnScale
from parcost_formats.rendering.full_report import (
    approval,
    command_line,
    ignored_rules,
    invalid_reason,
    page_figures,
    problems,
    runs,
    section_page,
)
from parcost_formats.rendering.job import job_table
from parcost_formats.rendering.judgments import is_in_verdict, step_failure
from parcost_formats.rendering.text import lines

if TYPE_CHECKING:
    from parcost.contract.figures import Figure, Section
    from parcost.contract.outcome import Outcome
    from parcost.language.diagnostics import Diagnostic
    from parcost.report.report import Report
    from parcost.report.result import Expectation, Result
    from parcost_formats.rendering.view import View
from parcost.binding.allowances import Suppression

_BAR = 28  # blocks of the longest bar
_ROOM = 70  # characters of a title, a value and a note on one line
_LINES = 44
_PAPER = Paper(width=80)
_CAUSES = 8  # rows of the table of time
_FEWEST_CAUSES = 4  # however many warnings there are
_MEMORY_CAUSES = 6
_UNTITLED = 3  # columns of a table that are clear without titles
_WARNINGS = 3
_ASSUMED = 3  # values
_UNREAD = "import-"  # ids of warnings about keys of a file that are not read
_CLAIMS = 4  # that fail
_ANSWERS = 28  # lines of figures and tables of a study without a step
_HEAD = 5  # lines of a table besides its rows
_FIGURES = 12  # of them for figures where there are tables
_MORE = "More: --full, --section NAME, `parcost explain`, `parcost figures`"


@frozen
class _Size:
    """The number of rows of tables of causes, of warnings and of assumed values; None for all."""

    causes: int | None = None
    warnings: int | None = None
    assumed: int | None = None


def page(report: Report, view: View) -> Sequence[Item]:
    """Return the page of a report without a sweep.

    With figures in *view*, the page has only the verdict and these figures. The tables of causes
    fill the remaining lines, with at least a few rows; if space is short, warnings are counted
    instead of printed. Warnings about unread keys of a file are always printed.
    """
    if not view.hints:
        whole = [_result(result, view, _Size()) for result in report.results]
        return [Heading(report.name, 1, aside=report.path), *(i for part in whole for i in part)]
    sizes = [_Size(causes, _WARNINGS, _ASSUMED) for causes in range(_CAUSES, _FEWEST_CAUSES, -1)]
    sizes += [_Size(_FEWEST_CAUSES, _WARNINGS, shown) for shown in range(_ASSUMED, 0, -1)]
    sizes += [_Size(_FEWEST_CAUSES, shown, 1) for shown in range(_WARNINGS - 1, -1, -1)]
    for size in sizes:
        items: list[Item] = [Heading(report.name, 1, aside=report.path)]
        for result in report.results:
            items += _result(result, view, evolve(size, warnings=None) if view.warnings else size)
        items += [Line(""), Line(_MORE, "faint")]
        if sum(1 for _ in lines(items, _PAPER)) <= _LINES:
            break
    return items


def _result(result: Result, view: View, size: _Size) -> Iterator[Item]:
    names = view.figures
    sections = result.brief_sections  # first: a plugin that fails now makes this incomplete too
    outcome = result.outcome
    yield from _verdict(result, size, hints=view.hints)
    if not names:
        yield from job_table(result)
    if outcome is None:
        if result.legal:
            yield from _worksheet(result, view)
        return
    yield Line("")
    yield figure_table(result, names)
    if names:
        return
    leading = [section for _, section in sections if section.lead and section.rows]
    # A table with a command is about what is wrong: others have no room beside it.
    wrong = any(section.command for section in leading)
    if not wrong:
        yield from _interval_basis(result)
    yield from _time(outcome, size.causes)
    yield from _memory(outcome, size.causes and min(size.causes, _MEMORY_CAUSES))
    for section in leading:
        if section.command or not wrong:
            yield from _first_rows(section)


def _verdict(result: Result, size: _Size, *, hints: bool) -> Iterator[Item]:
    """Yield the verdict, the failed claims, the errors and the warnings of a study."""
    chosen = plugin_note(result.study.plugins)
    if runs(result):
        if result.outcome is not None:
            style: Style = "bad" if step_failure(result) else _claim_style(result.expectations)
            said = f"{approval(result)}{chosen}{_claim_count(result.expectations)}."
            yield Line(said, style)
        elif result.expectations:
            said = f"Valid{chosen}{_claim_count(result.expectations)}."
            yield Line(said, _claim_style(result.expectations))
        yield from _comparisons(result.expectations, _CLAIMS if hints else None)
    else:
        yield Line(f"{invalid_reason(result)}{chosen}.", "bad")
        yield from _problems(result)
        if result.outcome is not None and problems(result):
            yield Line(f"Figures below ignore {ignored_rules(result)}.", "warning")
    yield from (Line(fault.line, "bad") for fault in result.faults)
    yield from warning_lines(
        [d for d in result.diagnostics if not is_in_verdict(result, d)], size.warnings
    )
    yield from assumption_line(result, size.assumed)
    yield from suppression_count(result.suppressions)


def warning_lines(
    diagnostics: Sequence[Diagnostic], shown: int | None = _WARNINGS
) -> Iterator[Item]:
    """Yield the first *shown* warnings, by descending cost, and the number of the others.

    With None, yield all. Warnings about unread keys of a file are always included.
    """
    found = [one for one in diagnostics if one.severity is not Severity.ERROR]
    unread = [one for one in found if one.id.startswith(_UNREAD)]
    others = [one for one in found if one not in unread]
    kept = unread + (others if shown is None else others[: max(0, shown - len(unread))])
    yield from (Line(f"warning: {d.message}", "warning") for d in kept)
    if more := len(found) - len(kept):
        other = "more " if kept else ""
        yield Line(f"{more} {other}warning{'s' * (more > 1)}: --warnings", "warning")


def suppression_count(suppressions: Sequence[Suppression]) -> Iterator[Item]:
    """Yield the number of warnings that the spec switches off."""
    if suppressions:
        ids = ", ".join(dict.fromkeys(one.diagnostic.id for one in suppressions))
        plural = "s" * (len(suppressions) > 1)
        yield Line(f"{len(suppressions)} warning{plural} switched off: {ids}", "faint")


def _problems(result: Result) -> Iterator[Item]:
    shown = any(section.command for _, section in result.brief_sections)  # which says what to do
    for problem in problems(result):
        yield Line(problem.message, indent=2)
        if problem.help and not shown:
            yield Line(f"help: {problem.help}", indent=2)


def _claim_count(claims: Sequence[Expectation]) -> str:
    """Return the number of claims that are met, as a suffix for a verdict."""
    if not claims:
        return ""
    held = sum(bool(all_of(claim.holds)) for claim in claims)
    return f"; {held} of {len(claims)} expectations met"


def _claim_style(claims: Sequence[Expectation]) -> Style:
    """Return the style of a verdict: not good if a claim fails."""
    return "good" if all(all_of(claim.holds) for claim in claims) else "bad"


def _comparisons(claims: Sequence[Expectation], most: int | None = _CLAIMS) -> Iterator[Item]:
    """Yield the claims that fail, and claims whose value lies outside of an interval."""
    compared = sorted((c for c in claims if c.outcome), key=lambda claim: all_of(claim.holds))
    for claim in compared[:most]:
        if all_of(claim.holds):
            yield Line(f"{claim.text} holds: {claim.outcome}", "warning", indent=2)
        else:
            yield Line(f"FAIL: {claim.text}: {claim.outcome}", "bad", indent=2)
    more = len(compared[most:]) if most is not None else 0
    if more:
        yield Line(f"and {more} more: --full", "warning", indent=2)


def figure_table(result: Result, names: Sequence[str]) -> Table:
    """Return figures with notes and intervals: those in *names*, or the default ones."""
    shown = select(result, names) if names else [f for _, f in result.figures]
    rows: list[Row] = []
    for figure in shown:
        if names or figure.brief is not None:
            rejected = not runs(result) and problems(result)
            note = (
                f"ignoring {ignored_rules(result)}" if rejected and not rows else _caption(figure)
            )
            value = numbers.quantity(figure.value, figure.unit)
            if interval := result.interval(figure.name):
                ends = f"({interval_of(interval, figure.unit)})"
                if part := _part(figure):
                    rows.append(Row((figure.title, value, ends)))
                    rows.append(Row(("", part, _whole(figure))))
                    continue
                note = f"{note} {ends}".lstrip()
            rows.append(Row((figure.title, value, note)))
    return Table((Column(), Column(align="right"), Column(flexible=True)), rows)


def _interval_basis(result: Result) -> Iterator[Item]:
    """Yield the sources of the intervals of the screen."""
    for figure in (figure for _, figure in result.figures if figure.brief is not None):
        interval = result.interval(figure.name)
        if interval is not None and interval.basis:
            held = numbers.quantity(interval.coverage, "%")
            yield Line(f"{held}: {interval.basis}.", "faint")


def _caption(figure: Figure) -> str:
    """Return the note next to a figure: ``of 75.2 GiB usable (66.29 %)``."""
    part = _part(figure)
    return f"{_whole(figure)} ({part})" if part else figure.brief or ""


def _part(figure: Figure) -> str:
    """Return the share of a figure in its whole, in percent; "" if it has no whole."""
    if figure.whole is None or is_array(figure.whole, figure.value) or not figure.whole:
        return ""
    return numbers.quantity(figure.value / figure.whole, "%")


def _whole(figure: Figure) -> str:
    """Return the whole that a figure is a part of: ``of 75.2 GiB usable``."""
    return f"of {numbers.quantity(figure.whole, figure.unit)} {figure.brief or ''}".rstrip()


def _time(outcome: Outcome, most: int | None) -> Iterator[Item]:
    where = f" (stage {outcome.device:.0f}, busiest)" if outcome.pipeline.stages > 1 else ""
    yield Heading(f"Step time by cause{where}", 3)
    yield _bars(outcome.seconds_by_cause, outcome.step_seconds, "s", most)


def _memory(outcome: Outcome, most: int | None) -> Iterator[Item]:
    stage = f"stage {outcome.memory_device:.0f}, " if outcome.pipeline.stages > 1 else ""
    yield Heading(f"Peak memory ({stage}{outcome.memory_moment})", 3)
    yield _bars(outcome.memory_by_cause, outcome.memory_bytes, "B", most)


def _bars(sums: Mapping[str, Any], total: Any, unit: str, most: int | None) -> Table:
    """Return one row for each cause, the largest first; causes beyond *most* share the last row."""
    ranked = ranking(sums, most)
    scale = ColumnScale(total, unit, digits=4)
    longest = max((amount for _, amount in ranked), default=0.0)
    rows = [
        Row(
            (cause, f"{scale.text(amount)} {scale.unit}", f"{share(amount, total)} %", bar),
            bar_color=getattr(cause, "color", "") or OTHER.color,
        )
        for cause, amount in ranked
        for bar in [_bar(amount, longest)]
    ]
    right = Column(align="right")
    return Table((Column(), right, right, Column(optional=True)), rows)


def ranking(sums: Mapping[str, Any], most: int | None) -> Sequence[tuple[str, Any]]:
    """Return causes by descending size; causes beyond *most* rows are added to "other".

    >>> ranking({"other": 1.0, "a": 3.0, "b": 2.0, "c": 0.5, "d": 0.0}, 3)
    [('a', 3.0), ('b', 2.0), ('other', 1.5)]
    """
    known = [(cause, amount) for cause, amount in sums.items() if cause != OTHER and amount]
    known.sort(key=lambda pair: -pair[1])
    rest = sums.get(OTHER, 0.0)
    if most is not None and len(known) + bool(rest) > most:
        rest = rest + sum(amount for _, amount in known[most - 1 :])
        known = known[: most - 1]
    return [*known, (OTHER, rest)] if rest else known


def _bar(amount: Any, longest: Any) -> str:
    """Return a bar of block characters, with a length relative to *longest*.

    >>> _bar(1.0, 2.0), _bar(0.0, 2.0)
    ('██████████████', '')
    """
    return "█" * round(_BAR * amount / longest) if longest else ""


def _first_rows(section: Section) -> Iterator[Item]:
    """Yield the first rows of a section; if it has a command, with the header of the table."""
    yield Heading(section.title, 3)
    spelled = [cells(column) for column in zip(*section.rows[: section.lead], strict=True)]
    titled = section.command or len(spelled) > _UNTITLED
    heads = section.columns if titled else [""] * len(spelled)
    columns = [Column(heads[0], flexible=True), *(Column(head, "right") for head in heads[1:])]
    yield Table(columns, [Row(row) for row in zip(*spelled, strict=True)])
    yield from command_line(section)


def _worksheet(result: Result, view: View) -> Iterator[Item]:
    """Yield the results of calculations: as many figures and rows as fit on a screen."""
    names = view.figures
    if not view.hints:
        yield from _whole_worksheet(result, names)
        return
    shown = page_figures([figure for _, figure in result.figures], result.expectations)
    if names:
        shown = select(result, names)
    sections = [section for _, section in result.brief_sections if section.rows]
    listed = shown[: _FIGURES if sections else _ANSWERS]
    yield from _answers(listed)
    more = len(result.figures) - len(listed)
    if more:
        yield Line(f"`parcost figures` lists {more} more", "faint")
    room = _ANSWERS - len(listed)
    for number, section in enumerate(sections):
        kept = section.rows[:room]
        yield from section_page(evolve(section, notes=()), rows=kept)
        if left := len(section.rows) - len(kept):
            yield Line(f"{left} more rows under --full", "faint")
        room -= len(kept) + _HEAD
        if room <= _HEAD and (left := len(sections) - number - 1):
            tables = "table" if left == 1 else "tables"
            yield Line(f"{left} more {tables} under --full", "faint")
            return


def _answers(shown: Sequence[Figure]) -> Iterator[Item]:
    rows = [
        Row(
            (f.title, numbers.quantity(f.value, f.unit), f.note if f.brief is None else _caption(f))
        )
        for f in shown
    ]
    if rows:
        yield Line("")
        yield Table(*_fit_columns(rows))


def _fit_columns(rows: Sequence[Row]) -> tuple[Sequence[Column], Sequence[Row]]:
    """Return the columns and rows of figures; notes are appended to titles if space is short."""
    right = Column(align="right")
    longest = [max(map(len, column)) for column in zip(*(row.cells for row in rows), strict=True)]
    if sum(longest) <= _ROOM:
        return (Column(), right, Column(flexible=True)), rows
    joined = [
        (f"{title} ({note})" if note else title, value)
        for title, value, note in (row.cells for row in rows)
    ]
    return (Column(flexible=True), right), [Row(cells) for cells in joined]


def _whole_worksheet(result: Result, names: Sequence[str]) -> Iterator[Item]:
    yield from _answers(select(result, names) if names else [f for _, f in result.figures])
    for _, section in result.brief_sections:
        if section.rows:
            yield from section_page(section)
