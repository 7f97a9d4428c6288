"""A report, point by point: what a sweep looks like as a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from parcost.language.diagnostics import Severity
from parcost.report.figures import select

if TYPE_CHECKING:
    from parcost.report.report import Expectation, Report, Result

#: The swept values of a point, as text.
Key = tuple[str, ...]


def rows(report: Report, wanted: Sequence[str] = ()) -> Sequence[Mapping[str, Any]]:
    """Return one mapping per point, in the order of the sweep.

    Axis values and figures by name, those called *wanted* or else the headlines,
    ``feasible``, and ``reason`` where it is not.
    """
    names = [name for name, _ in report.axes]
    figures: list[str] = list(wanted)
    if not figures:
        for result in report.results:
            figures += [f.name for _, f in result.figures if f.name not in figures]
    found = [
        {**dict.fromkeys(names), **dict.fromkeys(figures), **row}
        for result in report.results
        for row in _rows_of(result, wanted)
    ]
    order = {name: {_key(v): i for i, v in enumerate(values)} for name, values in report.axes}
    return sorted(found, key=lambda row: [order[n].get(_key(row[n]), 0) for n in names])


def good(result: Result) -> bool:
    """Say whether a result is feasible and as expected; a sweep needs one point that is."""
    if not result.legal:
        return False
    if not result.swept:
        errors = [d for d in result.diagnostics if d.severity is Severity.ERROR]
        return not errors
    import numpy as np

    holds = np.broadcast_to(np.asarray(result.feasible, dtype=bool), (_count(result),))
    for claim in result.expectations:
        holds = holds & np.asarray(claim.holds, dtype=bool)
    return bool(holds.any())


def at(value: Any, point: int) -> Any:
    """Return a number or array at one point, as a plain number."""
    if not hasattr(value, "ndim") or value.ndim == 0:
        return value.item() if hasattr(value, "item") else value
    return value[point].item()


def claims_by_point(report: Report) -> Mapping[Key, Sequence[tuple[Expectation, bool]]]:
    """Return every claim at every point that was priced, and whether it holds there."""
    found = {}
    for result in report.results:
        axes = result.study.axes
        for i in range(_count(result)):
            point = {**result.at, **{name: at(values, i) for name, values in axes}}
            claims = [(claim, bool(at(claim.holds, i))) for claim in result.expectations]
            found[key_of(point, report)] = claims
    return found


def key_of(point: Mapping[str, Any], report: Report) -> Key:
    """Return what tells a point of *report* from the others: its swept values, as text."""
    return tuple(str(point[name]) for name, _ in report.axes)


def _rows_of(result: Result, wanted: Sequence[str]) -> Sequence[dict[str, Any]]:
    reasons = [d.message for d in result.diagnostics if d.severity is Severity.ERROR]
    if not result.legal:
        if not result.study.axes:
            return [{**result.at, "feasible": False, "reason": "; ".join(reasons)}]
        return [
            {**_point(result, i), "feasible": False, "reason": "; ".join(reasons)}
            for i in range(_count(result))
        ]
    found = []
    figures = select(result, wanted) if wanted else [figure for _, figure in result.figures]
    for i in range(_count(result)):
        feasible = bool(at(result.feasible, i))
        row = _point(result, i)
        row |= {f.name: at(f.value, i) for f in figures}
        row["feasible"] = feasible
        row["reason"] = "" if feasible else _reasons(result, i)
        found.append(row)
    found += [
        {**result.at, **point.at, "feasible": False, "reason": "; ".join(point.reasons)}
        for point in result.infeasible
    ]
    return found


def _point(result: Result, i: int) -> dict[str, Any]:
    return {**result.at, **{name: at(values, i) for name, values in result.study.axes}}


def _reasons(result: Result, i: int) -> str:
    from parcost.engine.rules import message_at

    assert result.outcome is not None
    said = [
        message_at(check, i)
        for check in result.outcome.failed
        if check.severity == "error" and not at(check.holds, i)
    ]
    return "; ".join(said)


def _count(result: Result) -> int:
    return len(result.study.axes[0][1]) if result.study.axes else 1


def _key(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value
