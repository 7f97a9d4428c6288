"""The figures that a user chose by name, for columns and rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from parcost.language.diagnostics import did_you_mean

if TYPE_CHECKING:
    from parcost.contract.terms import Figure
    from parcost.report.report import Report, Result


def figures_by_name(result: Result) -> Mapping[str, Figure]:
    """Return every figure of a result by name, details included, headlines first."""
    return {figure.name: figure for _, figure in (*result.figures, *result.details)}


def select(result: Result, names: Sequence[str]) -> Sequence[Figure]:
    """Return the figures of a result called *names*, in that order; it may lack some."""
    headlines = {figure.name: figure for _, figure in result.figures}
    known = headlines if all(name in headlines for name in names) else figures_by_name(result)
    return [known[name] for name in names if name in known]


def missing_names(report: Report, names: Sequence[str]) -> Mapping[str, str]:
    """Return which of *names* no result of *report* has, each with the nearest that it has."""
    legal = [result for result in report.results if result.legal]
    if not names or not legal:
        return {}
    known = {figure.name for result in legal for figure in select(result, names)}
    lacking = [name for name in names if name not in known]
    if not lacking:
        return {}
    every = [name for result in legal for name in figures_by_name(result)]
    return {name: did_you_mean(name, every) or "" for name in lacking}
