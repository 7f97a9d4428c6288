"""The report of a calibration: fitted constants and errors, as tables, JSON and Markdown."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from attrs import frozen

from parcost.contract.page import Column, Heading, Item, Line, Paper, Row, Table
from parcost.language.numbers import percent
from parcost_formats.rendering import markdown
from parcost_formats.rendering.text import draw
from parcost_measured.calibration.constants import Constant, FrameworkConstant
from parcost_measured.calibration.grids import Measurement
from parcost_measured.calibration.logs import NetworkLink, lines
from parcost_measured.calibration.solve import Fit, FitValue, LeaveOutErrors, score_of_errors
from parcost_measured.calibration.spec import SpecEntry
from parcost_measured.validation.rows import Flaw
from parcost_measured.validation.scores import Score, group_by

_MOST = 10  # outliers and rows left out that are listed
_WIDE = 0.5  # of the bounds: an interval beyond is called wide


@frozen(kw_only=True, eq=False)
class Part:
    """The fit of one kind of rows: runs, or tables of kernels."""

    title: str
    rows: Sequence[Measurement]
    fit: Fit
    left: Sequence[LeaveOutErrors]
    interpolation: float | None = None  # largest error of reading between points of the grid
    notes: Sequence[str] = ()


@frozen(kw_only=True, eq=False)
class CalibrationReport:
    """All results of a calibration."""

    parts: Sequence[Part] = ()
    networks: Sequence[NetworkLink] = ()
    host: Sequence[FrameworkConstant] = ()
    allocator: Sequence[FrameworkConstant] = ()
    rejected: Sequence[str] = ()
    unmodelled: Sequence[Flaw] = ()
    passed: Sequence[str] = ()
    text: str = ""  # of the catalogue file


def entries(report: CalibrationReport) -> list[SpecEntry]:
    """Return the fitted constants with their provenance, to be written."""
    found = []
    for part in report.parts:
        runs = part.title == "runs"
        for value in part.fit.values:
            c = value.constant
            source = (
                f"{value.carrying} configurations of {part.title}; "
                f"90 % interval {c.text(value.low)} to {c.text(value.high)}; "
                f"bounds {c.text(c.low)} to {c.text(c.high)}"
            )
            kind = "fitted" if runs else "measured"
            found.append(SpecEntry(constant=c, value=value.value, kind=kind, source=source))
    for one in (*report.host, *report.allocator):
        c = one.constant
        source = f"{one.rows} {one.of}, {c.text(one.low)} to {c.text(one.high)}"
        found.append(SpecEntry(constant=c, value=one.value, kind="measured", source=source))
    return found


def to_table(report: CalibrationReport, paper: Paper) -> str:
    """Return the report as text for a terminal."""
    page = draw([*_page(report)], paper)
    return page + (f"\n{report.text}" if report.text else "")


def to_markdown(report: CalibrationReport) -> str:
    """Return the report in Markdown."""
    page = markdown.draw([*_page(report)])
    return page + (f"\n```text\n{report.text}```\n" if report.text else "")


def _page(report: CalibrationReport) -> Iterator[Item]:
    yield Heading("Calibration", 1)
    for part in report.parts:
        yield from _part(part)
    for network in report.networks:
        yield Heading(f"Logs: {network.level.name}")
        for log in network.logs:
            for text in lines(log):
                yield Line(text)
    for title, measured in (("Host", report.host), ("Allocator", report.allocator)):
        if not measured:
            continue
        yield Heading(title)
        cells = [
            Row(
                [
                    one.constant.name,
                    one.constant.text(one.constant.start),
                    one.constant.text(one.value),
                    f"{one.constant.text(one.low)} to {one.constant.text(one.high)}",
                    f"{one.rows:,}",
                ]
            )
            for one in measured
        ]
        names = ("before", "measured", "range", measured[0].of.split()[0])
        yield Table(_columns("constant", *names), cells)
    if report.rejected:
        yield Heading("Not fitted")
        for text in report.rejected:
            yield Line(text)
    if report.passed:
        yield Heading("Files without a constant")
        for text in report.passed:
            yield Line(text)
    if report.unmodelled:
        yield Heading(f"Not modeled: {len(report.unmodelled):,} rows")
        for flaw in report.unmodelled[:_MOST]:
            yield Line(flaw.text)


def _columns(first: str, *others: str) -> list[Column]:
    return [Column(first), *(Column(other, "right") for other in others)]


def _part(part: Part) -> Iterator[Item]:
    fit = part.fit
    yield Heading(f"Constants fitted to {len(part.rows):,} rows of {part.title}")
    if fit.values:
        yield Table(
            _columns(
                "constant", "before", "fitted", "90 % interval", "bounds", "sensitivity", "rows"
            ),
            [_constant(value) for value in fit.values],
        )
        yield Line(
            "sensitivity: change of the step time if the constant changes by 1 %, mean; rows: "
            "configurations whose step time depends on it."
        )
    for value in fit.values:
        c = value.constant
        if value.bound:
            text = f"{c.name} is at its {value.bound} bound: {c.kind.why}. It may "
            yield Line(text + "compensate for another cost that is not modeled.", "warning")
        elif _is_wide(value):
            text = f"{c.name} is uncertain: its interval spans most of its bounds."
            yield Line(text, "warning")
    for constant in fit.rejected:
        yield Line(f"{constant.constant} keeps its value: {constant.reason}.", "warning")
    for one, other, correlation in fit.correlations:
        yield Line(f"{one} and {other} are correlated by {correlation:+.2f}.")
    yield from _errors(part)
    yield from _groups(part)
    for text in part.notes:
        yield Line(text, "warning")
    if fit.outliers:
        yield Heading(f"Outliers: {len(fit.outliers):,} rows, with a low weight in the fit")
        yield Table(
            [Column("row"), Column("error", "right"), Column("place")],
            [
                Row([row.id, percent(error, signed=True), row.place])
                for row, error in fit.outliers[:_MOST]
            ],
        )


def _errors(part: Part) -> Iterator[Item]:
    """Yield the errors before and after the fit, and with parts left out."""
    fit = part.fit
    yield Heading(f"Error of the {'step time' if part.title == 'runs' else 'time'}")
    yield Table(
        [
            Column("constants"),
            *(Column(t, "right") for t in ("n", "MAPE", "median", "signed", "p90")),
        ],
        [
            _score("uncalibrated", score_of_errors(fit.before)),
            _score("calibrated, in sample", score_of_errors(fit.after)),
            *(_score(_title(left), score_of_errors(left.errors)) for left in part.left),
        ],
    )
    for left in part.left:
        if left.substituted:
            names = ", ".join(f"{name} ({n})" for name, n in left.substituted.items())
            yield Line(
                f"With {left.what} left out, folds without data for a constant used the mean of "
                f"its kind, or the middle of its bounds: {names}."
            )
    yield Line(
        f"Spread of the residuals: {percent(fit.spread)}. Condition number of the fit: "
        f"{fit.condition:.3g} (1: the constants are independent)."
    )
    if part.interpolation is not None:
        yield Line(
            f"Step times are interpolated between grid points, with an error of at most "
            f"{percent(part.interpolation, 2)}."
        )


def _constant(value: FitValue) -> Row:
    c = value.constant
    return Row(
        [
            c.name,
            c.text(c.start),
            c.text(value.value),
            f"{c.text(value.low)} to {c.text(value.high)}",
            f"{c.text(c.low)} to {c.text(c.high)}",
            f"{value.sensitivity:.2f} %",
            f"{value.carrying:,}",
        ]
    )


def _is_wide(value: FitValue) -> bool:
    from math import log

    c = value.constant
    return log(value.high / value.low) > _WIDE * log(c.high / c.low)


def _title(left: LeaveOutErrors) -> str:
    return f"{left.what} left out, {left.folds} folds"


def _score(name: str, s: Score) -> Row:
    shares = [percent(x) for x in (s.mape, s.median)]
    return Row([name, f"{s.n:,}", *shares, percent(s.mean, signed=True), percent(s.p90)])


def _groups(part: Part) -> Iterator[Item]:
    """Yield mean errors by source and by device, if there are several."""
    for title, key in (("source", "source"), ("device", "device")):
        groups = group_by(range(len(part.rows)), lambda i, key=key: getattr(part.rows[i], key))  # type: ignore[misc]
        if len(groups) < 2 or (title == "source" and part.title != "runs"):
            continue
        yield Heading(f"MAPE by {title}", 3)
        columns = [part.fit.before, part.fit.after, *(left.errors for left in part.left)]
        yield Table(
            _columns(
                title, "n", "uncalibrated", "in sample", *(f"{x.what} out" for x in part.left)
            ),
            [
                Row(
                    [name, f"{len(rows):,}"]
                    + [percent(sum(abs(errors[i]) for i in rows) / len(rows)) for errors in columns]
                )
                for name, rows in sorted(groups.items(), key=lambda item: (-len(item[1]), item[0]))
            ],
        )


# --- JSON -----------------------------------------------------------------------------------


def to_json(report: CalibrationReport) -> str:
    """Return the report as JSON: constants in SI units, errors in percent."""
    document: dict[str, Any] = {
        "schema_version": 1,
        "fits": [_fit(part) for part in report.parts],
        "links": [
            {
                "level": network.level.name,
                "latency_seconds": network.level.latency,
                "bandwidth_bytes_per_second": network.level.bandwidth,
                "curve": [list(point) for point in network.level.points],
                "source": network.level.source,
                "logs": [
                    {
                        "log": log.name,
                        "operation": log.operation,
                        "algorithm": log.algorithm.name,
                        "ranks": log.ranks,
                        "nodes": log.nodes,
                        "mean_error_percent": _percent(log.line.mean_error),
                        "largest_error_percent": _percent(log.line.largest_error),
                    }
                    for log in network.logs
                ],
                "warnings": list(network.warnings),
            }
            for network in report.networks
        ],
        "host": [_constant_data(one) for one in report.host],
        "allocator": [_constant_data(one) for one in report.allocator],
        "refused": list(report.rejected),
        "passed_over": list(report.passed),
        "unmodelled": [_flaw(flaw) for flaw in report.unmodelled],
        "catalogue": report.text,
    }  # fmt: skip
    return json.dumps(document, indent=2) + "\n"


def _flaw(flaw: Flaw) -> dict[str, Any]:
    return {"file": flaw.file, "line": flaw.line, "id": flaw.id, "reason": flaw.reason}


def _constant_data(one: FrameworkConstant) -> dict[str, Any]:
    values = {"value": one.value, "low": one.low, "high": one.high, "rows": one.rows}
    return {**_as_data(one.constant), **values}


def _as_data(constant: Constant) -> dict[str, Any]:
    return {"name": constant.name, "before": constant.start}


def _percent(share: float) -> float:
    return round(100 * share, 4)


def _scores(errors: Sequence[float]) -> dict[str, Any]:
    s = score_of_errors(errors)
    found = {name: _percent(getattr(s, name)) for name in ("mape", "median", "mean", "p90")}
    return {"n": s.n, **found}


def _fit(part: Part) -> dict[str, Any]:
    fit = part.fit
    return {
        "of": part.title,
        "rows": len(part.rows),
        "constants": [
            {
                **_as_data(v.constant),
                "value": v.value,
                "interval": [v.low, v.high],
                "bounds": [v.constant.low, v.constant.high],
                "why": v.constant.kind.why,
                "ends_on": v.bound or None,
                "sensitivity": round(v.sensitivity, 4),
                "configurations": v.carrying,
            }
            for v in fit.values
        ],
        "refused": [{"name": one.constant, "reason": one.reason} for one in fit.rejected],
        "correlations": [
            {"constants": [one, other], "correlation": round(c, 4)}
            for one, other, c in fit.correlations
        ],
        "condition": round(fit.condition, 4),
        "uncalibrated": _scores(fit.before),
        "calibrated": _scores(fit.after),
        "left_out": [
            {"leave": left.what, "folds": left.folds, **_scores(left.errors),
             "substituted": dict(left.substituted)}
            for left in part.left
        ],
        "interpolation_percent": None if part.interpolation is None
        else _percent(part.interpolation),
        "outliers": [
            {"id": row.id, "place": row.place, "error_percent": _percent(error)}
            for row, error in fit.outliers
        ],
        "notes": list(part.notes),
    }  # fmt: skip
