"""``parcost figures``: every figure of a spec, those that are made on demand included."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from parcost.cli import options
from parcost.cli.streams import Reporter, show

if TYPE_CHECKING:
    from parcost.contract.page import Item
    from parcost.plugins.selection import PluginSelection
    from parcost.report.report import Report


@click.command("figures")
@options.path
@click.argument("names", metavar="[NAME]...", nargs=-1)
@options.study
@options.overrides
@options.selection
def command(
    path: str,
    names: tuple[str, ...],
    study: str | None,
    overrides: tuple[str, ...],
    selection: PluginSelection,
) -> int:
    """List the figures that claims in `expect` may be about, with their values.

    NAMEs pick some, and may end in `*`. A report shows the headline figures and those
    that a claim names; the others are volumes, counts, ratios and bounds.
    """
    from parcost.batch.scenarios import evaluate
    from parcost.report.rejection import Rejection

    values = options.parse_overrides(overrides)
    session = options.session(selection)
    worst = 0
    found = False
    for entry in evaluate([path], session, overrides=values, study=study):
        if isinstance(entry, Rejection):
            Reporter()(entry.diagnostics)
            worst = max(worst, entry.exit_code)
            continue
        if not any(result.legal for result in entry.results):
            Reporter()(entry.diagnostics)
            worst = max(worst, 1)
            continue
        page = list(_figure_table(entry, names))
        found = found or len(page) > 1
        show(page)
    if names and not found and not worst:
        raise click.UsageError(f"no figure is called {' or '.join(f'`{n}`' for n in names)}")
    return worst


def _figure_table(report: Report, names: tuple[str, ...]) -> Iterator[Item]:
    """Yield a table of the figures called *names*, or of all, of every result."""
    from fnmatch import fnmatchcase

    from parcost.contract.page import Column, Heading, Row, Table

    yield Heading(report.name, 1, aside=report.path)
    for result in report.results:
        figures = {f.name: f for _, f in (*result.details, *result.figures)}
        rows = [
            Row((f.name, _value(f.value, f.unit), "; ".join(filter(None, (f.title, f.note)))))
            for f in figures.values()
            if not names or any(fnmatchcase(f.name, name) for name in names)
        ]
        if rows:
            meaning = Column("what it is", flexible=True)
            yield Table((Column("figure"), Column("value", "right"), meaning), rows)


def _value(value: Any, unit: str) -> str:
    """Return a number, or the ends of the range that a sweep gives."""
    from parcost.language.numbers import quantity

    if hasattr(value, "ndim") and value.size > 1:
        low, high = float(value.min()), float(value.max())
        if low != high:
            return f"{quantity(low, unit)} to {quantity(high, unit)}"
        return quantity(low, unit)
    return quantity(value, unit)
