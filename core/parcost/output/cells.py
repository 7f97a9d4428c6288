"""Small things in words, for every page alike."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from parcost.language.numbers import column, quantity
from parcost.numeric import is_array

if TYPE_CHECKING:
    from parcost.contract.outcome import Fault
    from parcost.contract.terms import Interval
    from parcost.plugins.discovery import Plugins
    from parcost.report.report import Report, Result

_ENDS = 3  # digits of the ends of an interval


def cell(value: Any) -> str:
    """Return one cell: a plugin's pair is a number and its unit.

    >>> cell("x"), cell((0.25, "s")), cell(4.0)
    ('x', '250 ms', '4')
    """
    match value:
        case str():
            return value
        case (number, str(unit)):
            return quantity(number, unit)
        case list() | tuple():
            return f"[{', '.join(map(cell, value))}]"
    return quantity(value)


def cells(values: Sequence[Any]) -> list[str]:
    """Return the cells of one column; bytes are told in units of one kind.

    >>> cells([(2**30, "B"), (25e6, "B"), "-"])
    ['1 GiB', '23.84 MiB', '-']
    """
    bytes_ = [value[0] for value in values if _in_bytes(value)]
    if len(bytes_) < 2:
        return [cell(value) for value in values]
    spelled = iter(column(bytes_, "B"))
    return [next(spelled) if _in_bytes(value) else cell(value) for value in values]


def _in_bytes(value: Any) -> bool:
    return isinstance(value, tuple) and len(value) == 2 and value[1] == "B"


def interval_of(interval: Interval, unit: str) -> str:
    """Return an interval for reading, with the share of cases that it holds.

    >>> from parcost.contract.formulas import Formula
    >>> from parcost.contract.terms import Interval
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


def share(part: Any, whole: Any) -> str:
    """Return *part* of *whole* in percent, without the sign.

    >>> share(1.0, 8.0), share(8.0, 8.0)
    ('12.5', '100')
    """
    if not whole:
        return "-"
    return "100" if part == whole else f"{100 * part / whole:.1f}"


def swept(report: Report, name: str, value: Any) -> str:
    """Return the value of the axis *name* at a point, with its unit."""
    unit = report.units.get(name, "")
    return quantity(value, unit) if unit else cell(value)


def picked(plugins: Plugins) -> str:
    """Return, to stand behind a verdict, which plugins came from outside and were left out."""
    installed = [
        str(plugin)
        for plugin in plugins.foreign
        if plugin.distribution and plugin.distribution not in plugins.files
    ]
    outside = ", ".join([*installed, *plugins.files])
    files = f"; with: {outside}" if outside else ""
    return files + (f"; without: {', '.join(plugins.left_out)}" if plugins.left_out else "")


def incomplete(result: Result) -> list[str]:
    """Return, for each plugin that failed, that the report lacks what it would have said."""
    return [failed(fault) for fault in result.faults]


def failed(fault: Fault) -> str:
    """Return that a plugin failed."""
    return f"incomplete: {fault}"
