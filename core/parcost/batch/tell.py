"""From live reports to entries."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from parcost.batch.entry import Entry, Part, Problem, page_data, points
from parcost.batch.rejected import Rejected, attempt
from parcost.diagnostics import Severity
from parcost.render import data
from parcost.render.diagnostics import one_line, render
from parcost.render.encode import encoded

if TYPE_CHECKING:
    from collections.abc import Sequence

    from parcost.diagnostics import Diagnostic
    from parcost.report import Report


def told(found: Report | Rejected, part: Part) -> Entry:
    """Return the entry of *found* with that part."""
    if isinstance(found, Rejected):
        return _rejected(found, part)
    entry = attempt(found.path, lambda: _report(found, part))
    return _rejected(entry, part) if isinstance(entry, Rejected) else entry


def _report(report: Report, part: Part) -> Entry:
    text = _part(report, part)  # some plugins are only asked now, and may fail
    code = report.exit_code
    faults = (str(fault) for result in report.results for fault in result.faults)
    return Entry(
        path=report.path,
        name=report.name,
        exit_code=code,
        problems=tuple(_problems(report.diagnostics, code)),
        faults=tuple(dict.fromkeys(faults)),
        part=part,
        text=text,
    )


def _rejected(found: Rejected, part: Part) -> Entry:
    reasons = [d.message for d in found.diagnostics]
    content: Any = []
    if part in ("data", "full"):
        content = data.rejected(found)
    elif part == "points":
        content = [{"path": found.path, "feasible": False, "reason": "; ".join(reasons)}]
    return Entry(
        path=found.path,
        exit_code=found.exit_code,
        reasons=tuple(reasons),
        problems=tuple(_problems(found.diagnostics, found.exit_code)),
        part=part,
        text=encoded(content),
    )


def _part(report: Report, part: Part) -> str:
    match part:
        case "data":
            return data.report(report, sections=False)
        case "full":
            return data.report(report)
        case "points":
            return encoded(points(list(_points(report))))
        case "page":
            from parcost.render.narrative import tell

            return encoded(page_data(tell(report)))


def _problems(found: Sequence[Diagnostic], code: int) -> Iterator[Problem]:
    """Yield what is to be told.

    What fails at some point of a sweep that is good as a whole stands in its table.
    """
    for diagnostic in found:
        error = diagnostic.severity is Severity.ERROR
        if code or not error:
            line = one_line(diagnostic) if error else ""
            yield Problem(text=render(diagnostic, color=True), line=line)


def _points(report: Report) -> Iterator[Mapping[str, Any]]:
    units = {f.name: f.unit for result in report.results for _, f in result.figures}
    units |= report.units
    plugins = report.results[0].study.plugins if report.results else None
    picked = {"with": plugins.files, "without": plugins.left_out} if plugins else {}
    for row in data.points(report):
        last = {"feasible": row["feasible"], "reason": row.get("reason") or ""}
        yield {
            "path": report.path,
            "name": report.name,
            **{
                data.key(name, units[name]) if name in units else name: value
                for name, value in row.items()
                if name not in last
            },
            **{name: " ".join(plugins_) for name, plugins_ in picked.items() if plugins_},
            **last,
        }
