"""``parcost figures``: every figure of a spec, including those computed on demand."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from parcost_apps import options
from parcost_apps.cli.messages import Reporter, write_message
from parcost_apps.cli.pages import show

if TYPE_CHECKING:
    from parcost.contract.figures import Figure
    from parcost.contract.page import Item
    from parcost.report.report import Report
    from parcost.report.result import Result


@click.command("figures")
@options.path
@click.argument("names", metavar="[NAME]...", nargs=-1)
@options.studies
def command(
    path: str,
    names: tuple[str, ...],
    given: options.StudyOptions,
) -> int:
    """List the figures of a spec with their values; claims in `expect` may use them.

    NAMEs select figures, and may end in `*`. A report shows the headline figures and those
    of claims. The others are volumes, counts, ratios and bounds.
    """
    from parcost_formats.rendering.rejection import Rejection

    worst = 0
    found: set[str] = set()
    missing: dict[str, str] = {}
    for entry in given.evaluate([path], given.session()):
        if isinstance(entry, Rejection):
            Reporter()(entry.diagnostics)
            worst = max(worst, entry.exit_code)
            continue
        if not any(result.legal for result in entry.results):
            Reporter()(entry.diagnostics)
            worst = max(worst, 1)
            continue
        show(list(_figure_table(entry, names)))
        lacking = _check_names(entry, names)
        found |= set(names) - set(lacking)
        missing |= lacking
    for name, message in missing.items():
        if name not in found:
            write_message(f"error: {message}")
            worst = max(worst, 2)
    return worst


def _check_names(report: Report, names: tuple[str, ...]) -> Mapping[str, str]:
    """Return a message for each of *names*, patterns included, that names no figure."""
    from fnmatch import filter as matching

    from parcost.report.figures import figures_by_name, missing_names

    every = [name for r in report.results if r.legal for name in figures_by_name(r)]
    patterns = [name for name in names if set(name) & set("*?[") and not matching(every, name)]
    plain = [name for name in names if not set(name) & set("*?[")]
    none = {name: f"no figure matches `{name}`" for name in patterns}
    return {**none, **missing_names(report.results, plain)}


def _figure_table(report: Report, names: tuple[str, ...]) -> Iterator[Item]:
    """Yield a table of the figures called *names*, or of all, of every result."""
    from fnmatch import fnmatchcase

    from parcost.contract.page import Column, Heading, Row, Table

    yield Heading(report.name, 1, aside=report.path)
    for result in report.results:
        rows: list[Row] = []
        for subject, figures in _by_subject(result):
            shown = [
                Row(
                    (f.name, _value(f.value, f.unit), "; ".join(filter(None, (f.title, f.note)))),
                    indent=2,
                )
                for f in figures
                if not names or any(fnmatchcase(f.name, name) for name in names)
            ]
            rows += [Row((subject, "", ""), "strong"), *shown] if shown else []
        if rows:
            meaning = Column("meaning", flexible=True)
            yield Table((Column("figure"), Column("value", "right"), meaning), rows)


def _by_subject(result: Result) -> Iterator[tuple[str, Sequence[Figure]]]:
    """Yield the headline figures, then the figures of each plugin in order of plugin names."""
    headline = {figure.name: figure for _, figure in result.figures if not figure.detail}
    yield "headline", list(headline.values())
    others = {f.name: (plugin.name, f) for plugin, f in (*result.details, *result.figures)}
    subjects: dict[str, list[Figure]] = {}
    for name, (subject, figure) in sorted(others.items()):
        if name not in headline:
            subjects.setdefault(subject, []).append(figure)
    yield from sorted(subjects.items())


def _value(value: Any, unit: str) -> str:
    """Return a number as text, or the range of its values in a sweep."""
    from parcost.language.numbers import quantity

    if hasattr(value, "ndim") and value.size > 1:
        low, high = float(value.min()), float(value.max())
        if low != high:
            return f"{quantity(low, unit)} to {quantity(high, unit)}"
        return quantity(low, unit)
    return quantity(value, unit)
