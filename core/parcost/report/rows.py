"""A report point by point: the rows of a sweep's table, and of data frames."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any, TypeAlias

from parcost.contract.checks import check_message
from parcost.language.diagnostics import Severity
from parcost.report.figures import select
from parcost.report.result import Result, point_count, value_at
from parcost.report.verdict import INVALID, verdict

#: Swept attributes by name, with their values.
Axes: TypeAlias = Sequence[tuple[str, Sequence[Any]]]


def rows(
    axes: Axes, results: Sequence[Result], wanted: Sequence[str] = ()
) -> Sequence[Mapping[str, Any]]:
    """Return one mapping per point, in the order of the sweep.

    It has axis values and figures by name: the figures *wanted*, or else the headlines. It has
    ``verdict``, ``feasible``, and for an infeasible point ``reason``.
    """
    names = [name for name, _ in axes]
    figures: list[str] = list(wanted)
    if not figures:
        for result in results:
            figures += [f.name for _, f in result.figures if f.name not in figures]
    found = [
        {**dict.fromkeys(names), **dict.fromkeys(figures), **row}
        for result in results
        for row in _rows_of(result, wanted)
    ]
    order = {name: {_key(v): i for i, v in enumerate(values)} for name, values in axes}
    return sorted(found, key=lambda row: [order[n].get(_key(row[n]), 0) for n in names])


def _rows_of(result: Result, wanted: Sequence[str]) -> Sequence[dict[str, Any]]:
    reasons = [d.message for d in result.diagnostics if d.severity is Severity.ERROR]
    if not result.legal:
        failed = _reason_columns(reasons)
        if not result.study.axes:
            return [{**result.at, **failed}]
        return [{**_point(result, i), **failed} for i in range(point_count(result))]
    found = []
    figures = select(result, wanted) if wanted else [figure for _, figure in result.figures]
    for i in range(point_count(result)):
        feasible = bool(value_at(result.feasible, i))
        row = _point(result, i)
        row |= {f.name: value_at(f.value, i) for f in figures}
        row["verdict"] = verdict(result, i)
        row["feasible"] = feasible
        row["reason"] = "" if feasible else _reasons(result, i)
        found.append(row)
    found += [
        {**result.at, **point.at, **_reason_columns(point.reasons)} for point in result.infeasible
    ]
    return found


def _reason_columns(reasons: Sequence[str]) -> dict[str, Any]:
    return {"verdict": INVALID, "feasible": False, "reason": "; ".join(reasons)}


def _point(result: Result, i: int) -> dict[str, Any]:
    return {**result.at, **{name: value_at(values, i) for name, values in result.study.axes}}


def _reasons(result: Result, i: int) -> str:
    assert result.outcome is not None
    messages = [
        check_message(check, i).message
        for check in result.outcome.failed
        if check.severity == "error" and not value_at(check.holds, i)
    ]
    return "; ".join(messages)


def _key(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def data_frame(rows: Sequence[Mapping[str, Any]]) -> Any:
    """Return a ``pandas.DataFrame`` of *rows*.

    Raises:
        ImportError: pandas is not installed.
    """
    try:
        import pandas as pd
    except ImportError as error:
        message = "a data frame needs pandas: pip install 'parcost[notebook]'"
        raise ImportError(message) from error
    return pd.DataFrame.from_records(list(rows))


def html_table(caption: str, rows: Sequence[Sequence[str]], heads: Sequence[str] = ()) -> str:
    """Return texts as a table of HTML, which a notebook shows."""
    lines = [("th", heads), *(("td", row) for row in rows)]
    body = "".join(
        f"<tr>{''.join(f'<{tag}>{escape(text)}</{tag}>' for text in line)}</tr>"
        for tag, line in lines
        if line
    )
    return f"<table><caption>{escape(caption)}</caption>{body}</table>"
