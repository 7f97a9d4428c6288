"""A report, point by point: what a sweep looks like as a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from parcost.diagnostics import Severity

if TYPE_CHECKING:
    from parcost.report import Report, Result


def rows(report: Report) -> Sequence[Mapping[str, Any]]:
    """Return one mapping per point, in the order of the sweep.

    Axis values and figures by name, ``feasible``, and ``reason`` where it is not.
    """
    names = [name for name, _ in report.axes]
    figures: list[str] = []
    for result in report.results:
        figures += [f.name for _, f in result.figures if f.name not in figures]
    found = [
        {**dict.fromkeys(names), **dict.fromkeys(figures), **row}
        for result in report.results
        for row in _rows_of(result)
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


def _rows_of(result: Result) -> Sequence[dict[str, Any]]:
    reasons = [d.message for d in result.diagnostics if d.severity is Severity.ERROR]
    if not result.legal:
        if not result.study.axes:
            return [{**result.at, "feasible": False, "reason": "; ".join(reasons)}]
        return [
            {**_point(result, i), "feasible": False, "reason": "; ".join(reasons)}
            for i in range(_count(result))
        ]
    found = []
    for i in range(_count(result)):
        feasible = bool(at(result.feasible, i))
        row = _point(result, i)
        row |= {f.name: at(f.value, i) for _, f in result.figures}
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
    from parcost.evaluation.rules import message_at

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
