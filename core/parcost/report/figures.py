"""The figures that a user chose by name, and intervals as text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from parcost.contract.figures import Figure, Interval
from parcost.language.diagnostics import did_you_mean
from parcost.language.numbers import quantity
from parcost.numeric import is_array
from parcost.report.result import Result, missing_message

_ENDS = 3  # digits of the ends of an interval


def figures_by_name(result: Result) -> Mapping[str, Figure]:
    """Return every figure of a result by name, details included, headlines first."""
    return {figure.name: figure for _, figure in (*result.figures, *result.details)}


def select(result: Result, names: Sequence[str]) -> Sequence[Figure]:
    """Return the figures of a result called *names*, in that order; missing ones are skipped."""
    known = {figure.name: figure for _, figure in result.figures}
    if others := [name for name in names if name not in known]:
        known |= {figure.name: figure for _, figure in result.find_details(others)}
    return [known[name] for name in names if name in known]


def missing_names(results: Sequence[Result], names: Sequence[str]) -> Mapping[str, str]:
    """Return a message for each of *names* that is in no result."""
    legal = [result for result in results if result.legal]
    if not names or not legal:
        return {}
    known = {figure.name for result in legal for figure in select(result, names)}
    lacking = [name for name in names if name not in known]
    if not lacking:
        return {}
    needed = {name: needs for result in legal for name, needs in result.missing.items()}
    every = [*(name for result in legal for name in figures_by_name(result)), *needed]
    found = {}
    for name in lacking:
        near = did_you_mean(name, every) or "`parcost figures SPEC` lists them"
        found[name] = missing_message(name, needed) + (f"; {near}" if name not in needed else "")
    return found


def interval_of(interval: Interval, unit: str) -> str:
    """Return an interval as text, with its coverage.

    >>> from parcost.contract.formulas import Formula
    >>> from parcost.contract.figures import Interval
    >>> of = Interval(name="t", low=10.94, high=14.0, coverage=0.9, formula=Formula(text=""))
    >>> interval_of(of, "s")
    '10.9 to 14 s, 90 %'
    """
    low, high = (quantity(end, unit, _ENDS) for end in (interval.low, interval.high))
    ends = [low, high]
    if not is_array(interval.low):
        number, _, named = low.partition(" ")
        if named and high.endswith(f" {named}"):
            ends[0] = number
    return f"{' to '.join(dict.fromkeys(ends))}, {quantity(interval.coverage, '%')}"
