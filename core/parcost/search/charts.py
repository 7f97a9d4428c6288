"""The layouts of a search as points, for plugins to draw."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from parcost.contract.charts import Chart, PointFigure, PointTable
from parcost.contract.searches import MEMORY, STEP_TIME
from parcost.language.diagnostics import Severity
from parcost.language.errors import SpecError
from parcost.report.charts import formula_text
from parcost.search.layout_evaluation import evaluate_layout
from parcost.search.result import plain_value

if TYPE_CHECKING:
    from parcost.contract.searches import Objective
    from parcost.engine.scenario import Scenario
    from parcost.search.result import SearchResult

_BOUND = "a lower bound that was enough to exclude the layout"


def search_charts(found: SearchResult) -> list[Chart]:
    """Return the pictures of a search."""
    study = found.scenario.first
    table = point_table(found)
    asked = study.plugins.ask("charts", study.faults, points=table)
    return sorted((chart for _, chart in asked), key=lambda chart: chart.place)


def point_table(found: SearchResult) -> PointTable:
    """Return the layouts of a search as rows: the best, the Pareto front, and the fastest."""
    own = found.objective
    first = found.best[0].result
    figures = {figure.name: figure for _, figure in first.figures} if first is not None else {}
    described = {own.name: PointFigure(title=own.title, unit=own.unit, largest=own.largest)}
    for name, title, unit in ((STEP_TIME, "step time", "s"), (MEMORY, "memory", "GiB")):
        described.setdefault(name, PointFigure(title=title, unit=unit))
    for name, known in described.items():
        if name in figures:
            text = formula_text(figures[name].formula, numbers=False)
            described[name] = PointFigure(
                title=known.title, unit=known.unit, formula=text, largest=known.largest
            )
    rows: dict[str, dict[str, Any]] = {}
    for layout in (*found.best, *found.front):
        row = _row(layout.values, layout.seconds, layout.bytes_, own)
        rows.setdefault(_key(row), row)
    for one in found.fastest:
        row = _row(one.values, one.seconds, one.bytes_, own)
        if not one.exact:
            row["bound"] = _BOUND
        rows.setdefault(_key(row), row)
    best = found.best[0].values
    return PointTable(
        kind="search",
        axes=dict.fromkeys(found.axes, ""),
        figures=described,
        rows=list(rows.values()),
        evaluate=lambda values: _evaluation(found.scenario, {**best, **values}, own),
    )


def _row(
    values: Mapping[str, Any], seconds: float, bytes_: float, own: Objective
) -> dict[str, Any]:
    return {
        **{name: plain_value(value) for name, value in values.items()},
        STEP_TIME: seconds,
        MEMORY: bytes_,
        own.name: float(own.value(own.cost(seconds))),
        "feasible": True,
        "reason": "",
    }


def _key(row: Mapping[str, Any]) -> str:
    return repr(sorted((name, str(value)) for name, value in row.items() if "." in name))


def _evaluation(scenario: Scenario, values: Mapping[str, Any], own: Objective) -> dict[str, Any]:
    """Return the row of the layout with these *values* from a separate evaluation, or the reason
    why it is invalid.
    """
    try:
        found = evaluate_layout(scenario, values, own.name)
    except SpecError as error:
        return {"feasible": False, "reason": error.first_message}
    layout = found.layout
    if layout is not None:
        return _row(layout.values, layout.seconds, layout.bytes_, own)
    if found.broken is not None:
        return {"feasible": False, "reason": f"beyond the limit {found.broken.says}"}
    errors = [d for d in found.result.diagnostics if d.severity is Severity.ERROR]
    return {"feasible": False, "reason": errors[0].message if errors else "it does not fit"}
