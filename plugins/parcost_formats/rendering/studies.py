"""Several studies on one page: a line for each, or one column for each.

The page of a study is created in the process of its evaluation; then all pages are joined. A *line*
is a table of one row, and tables with the same header are merged. A *comparison* is tables of two
columns; the tables under one heading are merged into one with a column for each study. Errors come
last.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from attrs import evolve

from parcost.contract.page import Column, Heading, Item, Line, Row, Style, Table
from parcost.language import numbers
from parcost.language.diagnostics import Severity
from parcost.numeric import all_of
from parcost.report.figures import select
from parcost.report.rows import rows
from parcost.report.verdict import verdict
from parcost_formats.rendering.cells import share
from parcost_formats.rendering.full_report import runs, short_reason
from parcost_formats.rendering.screen import ranking
from parcost_formats.rendering.text import widths

if TYPE_CHECKING:
    from parcost.contract.entries import Entry
    from parcost.contract.figures import Figure
    from parcost.report.report import Report
    from parcost.report.result import Result

_ANSWERS = 3  # of a study without a step
_CAUSES = 9
_GAP = 2
_WITHIN = ":"  # between a file and a study of it
_MARGIN = 2


def line(report: Report, names: Sequence[str] = ()) -> Iterator[Item]:
    """Yield a study in one line, followed by a line for each error."""
    if report.axes:
        yield Line(f"{_place(report)}: {sweep_summary(report, names)}")
    else:
        yield from _study_row(report, names)
    for result in report.results:
        yield from _errors(report, result)


def _study_row(report: Report, names: Sequence[str]) -> Iterator[Item]:
    (result,) = report.results
    if not result.legal:
        return  # what is wrong stands below the others
    figures = headline_figures(result, names)
    if result.outcome is None and not names:
        said = [f"{f.title} {numbers.quantity(f.value, f.unit)}" for f in figures[:_ANSWERS]]
        yield Line(f"{_place(report)}: {'; '.join(said) or 'no figures'}")
        return
    good = runs(result)
    verdict = "" if good else short_reason(result)
    if good and not all(all_of(claim.holds) for claim in result.expectations):
        verdict = "not as expected"
    columns = [Column("study")]
    columns += [Column(head(figure), "right", optional=True) for figure in figures]
    cells = [numbers.quantity(figure.value, figure.unit) for figure in figures]
    style: Style = "bad" if verdict else "plain"
    yield Table([*columns, Column()], [Row((_place(report), *cells, verdict), style)])


def _place(report: Report) -> str:
    """Return the title of a study on a shared page: its file, and its name if that differs."""
    path = PurePath(report.path)
    file = _without_suffix(path)
    return file if path.stem == report.name else f"{file}{_WITHIN}{report.name}"


def _without_suffix(path: PurePath) -> str:
    """Return a path without its suffix."""
    return path.as_posix().removesuffix(path.suffix)


def headline_figures(result: Result, names: Sequence[str]) -> Sequence[Figure]:
    """Return the figures in *names*, or else the figures that plugins mark as columns."""
    if names:
        return select(result, names)
    figures = [figure for _, figure in result.figures if not figure.detail]
    ranked = [figure for figure in figures if figure.column is not None]
    return sorted(ranked, key=lambda figure: figure.column or 0) or figures


def head(figure: Figure) -> str:
    """Return the header of a column: short, and in few words to limit wrapping."""
    return figure.name.replace("_per_second", "/s").replace("_per_", " /").replace("_", " ")


def sweep_summary(report: Report, names: Sequence[str]) -> str:
    """Return the number of valid points of a sweep, and the range of its first figures."""
    points = rows(report.axes, report.results, names)
    run = [point for point in points if point["feasible"]]
    counted = f"{len(run):,} of {len(points):,} points are valid and fit"
    figures = {f.name: f for r in report.results for f in headline_figures(r, names) if r.legal}
    said = [
        f"{figure.title} {_range([p[name] for p in run], figure.unit)}"
        for name, figure in list(figures.items())[:_ANSWERS]
        if run
    ]
    return "; ".join([counted, *said])


def _range(values: Sequence[Any], unit: str) -> str:
    known = [value for value in values if value is not None]
    if not known:
        return "-"
    low, high = numbers.quantity(min(known), unit), numbers.quantity(max(known), unit)
    return low if low == high else f"{low} to {high}"


def _errors(report: Report, result: Result) -> Iterator[Item]:
    if report.exit_code:
        errors = [d.message for d in result.diagnostics if d.severity is Severity.ERROR]
        if errors:
            yield Line(f"{report.name} ({report.path}): {_first_message(errors)}", "bad")
    yield from (Line(f"{report.name}: {fault.line}", "bad") for fault in result.faults)


def _first_message(messages: Sequence[str]) -> str:
    """Return the first of *messages*, and the number of the others."""
    more = len(messages) - 1
    return f"{messages[0]} (and {more} more)" if more else messages[0]


def column(report: Report, names: Sequence[str] = ()) -> Iterator[Item]:
    """Yield a study without a sweep as one column of a comparison, followed by its errors."""
    (result,) = report.results
    outcome = result.outcome
    if names:
        figures = select(result, names)
    else:
        figures = [figure for _, figure in result.figures if figure.brief is not None]
        figures = figures or [figure for _, figure in result.figures if not figure.detail]
    found = [(figure.title, numbers.quantity(figure.value, figure.unit)) for figure in figures]
    if outcome is not None:
        found.append(("verdict", verdict(result)))
    yield from _comparison("Studies side by side", _place(report), found)
    if outcome is not None and not names:
        step, memory = outcome.step_seconds, outcome.memory_bytes
        yield from _comparison(
            "Step time by cause", _place(report), _shares(outcome.seconds_by_cause, step, "s")
        )
        yield from _comparison(
            "Peak memory by cause", _place(report), _shares(outcome.memory_by_cause, memory, "GiB")
        )
    yield from _errors(report, result)


def _shares(sums: Mapping[str, Any], total: Any, unit: str) -> list[tuple[str, str]]:
    return [
        (cause, f"{numbers.quantity(amount, unit)} {share(amount, total):>5} %")
        for cause, amount in ranking(sums, _CAUSES)
    ]


def _comparison(title: str, name: str, rows: Sequence[tuple[str, str]]) -> Iterator[Item]:
    yield Heading(title, 3)
    yield Table((Column("", flexible=True), Column(name, "right")), [Row(row) for row in rows])


def join_pages(entries: Sequence[Entry], *, beside: bool, width: int) -> list[Item]:
    """Return one page of all *entries*: as rows, or as columns *beside* each other."""
    pages = [entry.page() for entry in entries if not entry.rejected]
    whole = [item for page in pages if _has_title(page) for item in page]
    pages = [page for page in pages if not _has_title(page)]
    common = _common_start(entries)
    pages = [[_strip_common(item, common) for item in page] for page in pages]
    tables = _align(pages, width) if beside else _join_tables(pages)
    lines = [item for page in pages for item in page if isinstance(item, Line)]
    said = [item for item in lines if item.style != "bad"]
    failed = [item for item in lines if item.style == "bad"]
    rejected = [entry for entry in entries if entry.rejected and entry.reasons]
    errors = Counter(f"{entry.path}: {_first_message(entry.reasons)}" for entry in rejected)
    for text, count in errors.items():  # the file has an error in the place of each of its studies
        failed.append(Line(f"{text} ({count} studies)" if count > 1 else text, "bad"))
    return [*tables, *whole, *said, *failed]


def _has_title(page: Sequence[Item]) -> bool:
    """Return whether *page* has a title of its own, like the page of a sweep in a comparison."""
    return bool(page) and isinstance(page[0], Heading) and page[0].level == 1


def _strip_common(item: Item, common: str) -> Item:
    """Return an item of a page with the *common* prefix removed from the names of studies."""
    match item:
        case Line(style="bad"):
            return item  # it names the file as the user does
        case Line():
            return evolve(item, text=item.text.removeprefix(common))
        case Table():
            columns = [evolve(c, title=c.title.removeprefix(common)) for c in item.columns]
            rows = [
                evolve(row, cells=[row.cells[0].removeprefix(common), *row.cells[1:]])
                for row in item.rows
            ]
            return Table(columns, rows)
    return item


def _common_start(entries: Sequence[Entry]) -> str:
    """Return the common prefix of names: the file of all studies, or the folder of all files."""
    paths = {PurePath(entry.path) for entry in entries}
    if len(paths) == 1:
        return _without_suffix(paths.pop()) + _WITHIN
    parents = [path.parent.parts for path in paths]
    common = [parts[0] for parts in zip(*parents, strict=False) if len(set(parts)) == 1]
    return PurePath(*common).as_posix() + "/" if common else ""


def _join_tables(pages: Sequence[Sequence[Item]]) -> list[Item]:
    """Return the tables of *pages*, with tables of the same header joined."""
    found: dict[tuple[str, ...], tuple[Table, list[Row]]] = {}
    for page in pages:
        for table in page:
            if isinstance(table, Table):
                titles = tuple(column.title for column in table.columns)
                found.setdefault(titles, (table, []))[1].extend(table.rows)
    return [Table(first.columns, list(_group_by_file(rows))) for first, rows in found.values()]


def _group_by_file(rows: Sequence[Row]) -> Iterator[Row]:
    """Yield *rows*, with a header row for each file that has several studies."""
    last = ""
    for row in rows:
        file, within, name = row.cells[0].rpartition(_WITHIN)
        if within and file != last:
            yield Row((file, *("" for _ in row.cells[1:])))
        last = file if within else name
        yield evolve(row, cells=(name, *row.cells[1:]), indent=2) if within else row


def _align(pages: Sequence[Sequence[Item]], width: int) -> list[Item]:
    """Return the tables under each heading joined side by side, and split if they are too wide."""
    found: dict[str, list[Table]] = {}
    for page in pages:
        title = ""
        for item in page:
            if isinstance(item, Heading):
                title = item.text
            elif isinstance(item, Table):
                found.setdefault(title, []).append(item)
    items: list[Item] = []
    short = _short_names([table.columns[1].title for tables in found.values() for table in tables])
    for title, tables in found.items():
        items.append(Heading(title, 3))
        for part in _parts([_rename(table, short) for table in tables], width):
            items += [part, Line("")]
    return items


def _short_names(names: Sequence[str]) -> Mapping[str, str]:
    """Return names of columns without their folders, unless others would be the same.

    >>> list(_short_names(["a/b/one", "/c/two", "a/x", "b/x"]).values())
    ['one', 'two', 'a/x', 'b/x']
    """
    found = {name: name.rpartition("/")[2] for name in dict.fromkeys(names)}
    last = list(found.values())
    return {name: one if last.count(one) == 1 else name for name, one in found.items()}


def _rename(table: Table, names: Mapping[str, str]) -> Table:
    first, second = table.columns
    return Table((first, evolve(second, title=names[second.title])), table.rows)


def _parts(tables: Sequence[Table], width: int) -> Iterator[Table]:
    """Yield joined tables, each of as many *tables* side by side as fit into *width*."""
    names = list(dict.fromkeys(row.cells[0] for table in tables for row in table.rows))
    begun: list[Table] = []
    for table in tables:
        wider = _merge([*begun, table], names)
        room = width - _MARGIN
        if begun and sum(widths(wider, 10 * width)) + _GAP * (len(begun) + 1) > room:
            yield _merge(begun, names)
            begun = []
        begun.append(table)
    yield _merge(begun, names)


def _merge(tables: Sequence[Table], names: Sequence[str]) -> Table:
    columns = [tables[0].columns[0], *(table.columns[1] for table in tables)]
    values = [{row.cells[0]: row.cells[1] for row in table.rows} for table in tables]
    return Table(columns, [Row((name, *(of.get(name, "-") for of in values))) for name in names])
