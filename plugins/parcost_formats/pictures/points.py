"""Charts of many points: curves of a sweep, the map of layouts, the Pareto front of a search."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import inf, isfinite, isqrt
from typing import Any

from parcost import Chart, PointFigure, PointTable, hookimpl
from parcost_plugins.vocabulary.axes import log_time_axis, number_axis

_STEP, _MEMORY = "step_time", "memory"
_PAIR = ("layout.tp", "layout.pp")  # the axes of a map, where a search has both
_MOST_CURVES = 12
_MOST_FIGURES = 4
_MOST_TICKS = 12
_MOST_BARS = 40
_BAR_HEIGHT = 24
_MOST_CELLS = 400
_MOST_TRIED = 8  # layouts of a cell that are evaluated
_MOST_POINTS = 5000
_GIB = 2.0**30
_APART = 1.001  # times on an axis, at least
_WIDE = 8.0  # of numbers: the largest over the smallest, from where an axis is logarithmic
_BOUNDED = (
    f"Of the layouts with only a lower bound, up to {_MOST_TRIED} per cell are evaluated, lowest "
    "bound first. A cell without a layout kept by the search shows the best layout with these two "
    "values."
)
_DARK = "#1b1f24"  # on a bright cell
_ON_FRONT, _OTHERS = "on the front", "others"


@hookimpl
def charts(points: PointTable) -> Iterator[Chart]:
    """Yield curves along a numeric axis, a heat map over two axes, and the Pareto front."""
    if points.kind == "sweep":
        yield from _curves(points)
    yield from _map(points)
    yield from _front(points)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and isfinite(value)


def _values(points: PointTable, axis: str) -> list[Any]:
    return list(dict.fromkeys(row.get(axis) for row in points.rows))


def _numeric(points: PointTable) -> list[str]:
    """Return the numeric axes, the axis with most values first."""
    axes = [axis for axis in points.axes if all(map(_is_number, _values(points, axis)))]
    return sorted(axes, key=lambda axis: -len(_values(points, axis)))


def _formula(figure: PointFigure) -> str:
    return figure.formula or f"{figure.title}, evaluated at the point"


def _point_text(points: PointTable, row: Mapping[str, Any], but: Sequence[str] = ()) -> str:
    return ", ".join(f"{axis} = {_text(row.get(axis))}" for axis in points.axes if axis not in but)


def _text(value: Any) -> str:
    return f"{value:g}" if _is_number(value) else str(value)


# --- curves ---------------------------------------------------------------------------------


def _curves(points: PointTable) -> Iterator[Chart]:
    """Yield a chart for each of the first figures: its values along the first numeric axis, with
    one curve per combination of values of the other axes.
    """
    axes = [axis for axis in _numeric(points) if len(_values(points, axis)) > 1]
    if not axes:
        yield from _bars(points)
        return
    axis = axes[0]
    for name, figure in list(points.figures.items())[:_MOST_FIGURES]:
        rows = [
            {
                "at": (row[axis], points.axes[axis]),
                "value": (row[name], figure.unit),
                "drawn": _drawn(row[name], figure.unit),
                "curve": _point_text(points, row, [axis]) or figure.title,
                "formula": _formula(figure),
            }
            for row in points.rows
            if row.get("feasible") and _is_number(row.get(name))
        ]
        curves = list(dict.fromkeys(row["curve"] for row in rows))[:_MOST_CURVES]
        kept = [row for row in rows if row["curve"] in curves]
        if len({row["at"] for row in kept}) < 2:
            continue
        left = len({row["curve"] for row in rows}) - len(curves)
        ends = [value for value in _values(points, axis) if value is not None]
        wide = min(ends) > 0 and max(ends) >= _WIDE * min(ends)
        yield Chart(
            name=f"curve_{name}".lower(),
            title=f"{figure.title[:1].upper()}{figure.title[1:]} along {axis}",
            place=10,
            notes=[f"{left} more curves are not shown."] if left else [],
            spec=_curve_spec(axis, points.axes[axis], ends, figure, logarithmic=wide),
            columns={
                "curve": "with",
                "at": axis,
                "value": figure.title,
                "formula": "formula",
            },
            rows=kept,
        )


def _bars(points: PointTable) -> Iterator[Chart]:
    """Yield a bar per point for each of the first figures, if no axis is numeric."""
    for name, figure in list(points.figures.items())[:_MOST_FIGURES]:
        able = [row for row in points.rows if row.get("feasible") and _is_number(row.get(name))]
        rows = [
            {
                "point": _point_text(points, row),
                "place": place,
                "value": (row[name], figure.unit),
                "drawn": _drawn(row[name], figure.unit),
                "formula": _formula(figure),
            }
            for place, row in enumerate(able[:_MOST_BARS])
        ]
        if len(rows) < 2:
            continue
        left = len(able) - len(rows)
        yield Chart(
            name=f"bars_{name}".lower(),
            title=f"{figure.title[:1].upper()}{figure.title[1:]} of each point",
            place=10,
            notes=[f"{left} more points are not shown."] if left else [],
            spec=_bar_spec(len(rows), figure),
            columns={"point": "point", "value": figure.title, "formula": "formula"},
            rows=rows,
        )


def _bar_spec(bars: int, figure: PointFigure) -> dict[str, Any]:
    title = f"{figure.title} ({figure.unit})" if figure.unit else figure.title
    return {
        "height": _BAR_HEIGHT * bars,
        "mark": "bar",
        "encoding": {
            "y": {
                "field": "point",
                "type": "nominal",
                "sort": {"field": "place", "op": "min"},
                "axis": {"title": None, "ticks": False, "domain": False},
            },
            "x": {"field": "drawn", "type": "quantitative", "axis": {"title": title}},
        },
    }


def _drawn(value: float, unit: str) -> float:
    return value / _GIB if unit == "GiB" else 100.0 * value if unit == "%" else value


def _curve_spec(
    axis: str, unit: str, at: Sequence[float], figure: PointFigure, *, logarithmic: bool
) -> Mapping[str, Any]:
    ticks = {"values": sorted(at)} if len(at) <= _MOST_TICKS else {}
    scale = {"type": "log", "base": 2} if logarithmic else {"zero": False}
    return {
        "height": 260,
        "mark": {"type": "line", "point": {"size": 40}},
        "encoding": {
            "x": {
                "field": "at",
                "type": "quantitative",
                "scale": scale,
                "axis": {**number_axis(axis, unit), **ticks},
            },
            "y": {
                "field": "drawn",
                "type": "quantitative",
                "axis": {
                    "title": f"{figure.title} ({figure.unit})" if figure.unit else figure.title
                },
            },
            "color": {"field": "curve", "type": "nominal", "legend": {"title": None}},
        },
    }


# --- the map of layouts ---------------------------------------------------------------------


def _map(points: PointTable) -> Iterator[Chart]:
    """Yield a heat map of the best point over two axes; infeasible cells are grey."""
    numeric = [axis for axis in _numeric(points) if len(_values(points, axis)) > 1]
    pair = list(_PAIR) if all(axis in numeric for axis in _PAIR) else numeric[:2]
    if len(pair) < 2 or not points.figures:
        return
    down, across = pair
    name, figure = next(iter(points.figures.items()))
    ys, xs = _map_values(points, down, across, name, figure)
    rows = [*_cells(points, (down, ys), (across, xs), name, figure)]
    _add_brightness(rows, figure)
    if not any(row["kind"] == "runs" for row in rows):
        return
    counts = (
        (axis, len(kept), len(_values(points, axis)))
        for axis, kept in zip(pair, (ys, xs), strict=True)
    )
    yield Chart(
        name="map",
        title=f"The best {figure.title} by {down} and {across}",
        place=20,
        notes=[
            "Grey cells are invalid or do not fit in memory; each shows the reason.",
            *(
                f"The {few:,} values of {axis} with the best {figure.title}, of {all_:,}."
                for axis, few, all_ in counts
                if few < all_
            ),
            *([_BOUNDED] if points.evaluate is not None else []),
        ],
        spec=_map_spec(down, across, figure),
        columns={
            "down": down,
            "across": across,
            "value": figure.title,
            "layout": "with",
            "reason": "reason",
            "formula": "formula",
        },
        rows=rows,
    )


def _map_values(
    points: PointTable, down: str, across: str, name: str, figure: PointFigure
) -> tuple[Sequence[Any], Sequence[Any]]:
    """Return the sorted values of both axes; if there are too many cells, only the best values."""
    sign = -1.0 if figure.largest else 1.0
    able = [row for row in points.rows if row.get("feasible") and _is_number(row.get(name))]
    ranked = []
    for axis in (down, across):
        least: dict[Any, float] = {}
        for row in able:
            least[row[axis]] = min(least.get(row[axis], inf), sign * row[name])
        ranked.append(sorted(_values(points, axis), key=lambda v, of=least: of.get(v, inf)))  # type: ignore[misc]
    ys, xs = ranked
    rows = max(min(len(ys), isqrt(_MOST_CELLS)), _MOST_CELLS // len(xs))
    columns = max(min(len(xs), isqrt(_MOST_CELLS)), _MOST_CELLS // len(ys))
    return sorted(ys[:rows]), sorted(xs[:columns])


def _cells(
    points: PointTable,
    vertical: tuple[str, Sequence[Any]],
    horizontal: tuple[str, Sequence[Any]],
    name: str,
    figure: PointFigure,
) -> Iterator[dict[str, Any]]:
    (down, ys), (across, xs) = vertical, horizontal
    found: dict[tuple[Any, Any], list[Mapping[str, Any]]] = {}
    for row in points.rows:
        found.setdefault((row[down], row[across]), []).append(row)
    for y in ys:
        for x in xs:
            common = {"down": float(y), "across": float(x)}
            best = _best(points, found.get((y, x), ()), name, figure)
            if best is None and points.evaluate is not None:
                best = points.evaluate({down: y, across: x})
            if best is not None and best["feasible"]:
                yield {
                    **common,
                    "kind": "runs",
                    "value": (best[name], figure.unit),
                    "drawn": _drawn(best[name], figure.unit),
                    "label": f"{_drawn(best[name], figure.unit):.3g}",
                    "layout": _point_text(points, best, [down, across]),
                    "formula": _formula(figure),
                }
                continue
            reason = "the sweep has no such point" if best is None else best["reason"]
            yield {**common, "kind": "none", "reason": reason, "formula": "not modeled"}


def _add_brightness(rows: Sequence[dict[str, Any]], figure: PointFigure) -> None:
    """Add the color brightness to each drawn cell, from 0 (worst) to 1 (best)."""
    drawn = [row["drawn"] for row in rows if row["kind"] == "runs"]
    low, high = min(drawn, default=0.0), max(drawn, default=0.0)
    for row in rows:
        if row["kind"] == "runs":
            place = (row["drawn"] - low) / (high - low) if high > low else 1.0
            row["brightness"] = place if figure.largest or high == low else 1.0 - place


def _best(
    points: PointTable, rows: Sequence[Mapping[str, Any]], name: str, figure: PointFigure
) -> Mapping[str, Any] | None:
    """Return the best feasible row, else an infeasible one.

    Rows that have only a lower bound are evaluated, lowest bound first, until none can be better.
    """
    sign = -1.0 if figure.largest else 1.0
    rejected = next((row for row in rows if not row.get("feasible")), None)
    able = [row for row in rows if row.get("feasible") and _is_number(row.get(name))]
    best: Mapping[str, Any] | None = None
    for tried, row in enumerate(sorted(able, key=lambda row: sign * float(row[name]))):
        if best is not None and (sign * row[name] >= sign * best[name] or tried >= _MOST_TRIED):
            break
        exact = row
        if "bound" in row and points.evaluate is not None:
            exact = points.evaluate({axis: row[axis] for axis in points.axes if axis in row})
            if not exact["feasible"]:
                rejected = rejected or exact
                continue
        if best is None or sign * exact[name] < sign * best[name]:
            best = exact
    return rejected if best is None else best


def _map_spec(down: str, across: str, figure: PointFigure) -> dict[str, Any]:
    x = {"field": "across", "type": "ordinal", "axis": {"title": across, "labelAngle": 0}}
    y = {"field": "down", "type": "ordinal", "axis": {"title": down}}
    runs = [{"filter": {"field": "kind", "equal": "runs"}}]
    none = [{"filter": {"field": "kind", "equal": "none"}}]
    title = f"{figure.title} ({figure.unit})" if figure.unit else figure.title
    color = {
        "field": "drawn",
        "type": "quantitative",
        "scale": {"scheme": "cividis", "reverse": not figure.largest, "zero": False},
        "legend": {"title": title, "gradientLength": 240},
    }
    label = {"text": {"field": "label", "type": "nominal"}, "x": x, "y": y}
    ink = {"condition": {"test": "datum.brightness > 0.45", "value": _DARK}, "value": "#ffffff"}
    return {
        "height": 300,
        "layer": [
            {
                "transform": none,
                "mark": {"type": "rect", "color": "#9aa0a6", "opacity": 0.45},
                "encoding": {"x": x, "y": y},
            },
            {"transform": runs, "mark": "rect", "encoding": {"x": x, "y": y, "color": color}},
            {"transform": runs, "mark": "text", "encoding": {**label, "color": ink}},
        ],
    }


# --- the front ------------------------------------------------------------------------------


def _front(points: PointTable) -> Iterator[Chart]:
    """Yield step time against memory, with the Pareto front."""
    if _STEP not in points.figures or _MEMORY not in points.figures:
        return
    runs = [
        row
        for row in points.rows
        if row.get("feasible") and _is_number(row.get(_STEP)) and _is_number(row.get(_MEMORY))
    ]
    runs.sort(key=lambda row: (row[_STEP], row[_MEMORY]))
    if len(runs) < 2:
        return
    if runs[-1][_STEP] <= runs[0][_STEP] * _APART:
        return
    rows, least = [], inf
    for row in runs[:_MOST_POINTS]:
        on_front = row[_MEMORY] < least and "bound" not in row
        least = min(least, row[_MEMORY]) if on_front else least
        rows.append(
            {
                "kind": _ON_FRONT if on_front else _OTHERS,
                "seconds": (row[_STEP], "s"),
                "memory": (row[_MEMORY], "GiB"),
                "gib": row[_MEMORY] / _GIB,
                "layout": _point_text(points, row),
                "formula": row.get("bound")
                or f"time: {_formula(points.figures[_STEP])}; "
                f"memory: {_formula(points.figures[_MEMORY])}",
            }
        )
    left = len(runs) - len(rows)
    bounds = any("bound" in row for row in runs)
    yield Chart(
        name="front",
        title="Pareto front of step time and memory",
        place=30,
        notes=[
            "Pareto front of step time and memory.",
            *(["For layouts that were not replayed, lower bounds are shown."] if bounds else []),
            *([f"The fastest {len(rows):,} of {len(runs):,} points."] if left else []),
        ],
        spec=_front_spec(logarithmic=runs[-1][_STEP] > _WIDE * runs[0][_STEP]),
        columns={
            "kind": "",
            "layout": "point",
            "seconds": "step time",
            "memory": "memory",
            "formula": "formula",
        },
        rows=rows,
    )


def _front_spec(*, logarithmic: bool) -> dict[str, Any]:
    time: dict[str, Any] = {
        "field": "seconds",
        "type": "quantitative",
        "scale": {"type": "log"} if logarithmic else {"zero": False},
        "axis": log_time_axis("step time") if logarithmic else {"title": "step time (s)"},
    }
    memory: dict[str, Any] = {
        "field": "gib",
        "type": "quantitative",
        "scale": {"zero": False},
        "axis": {"title": "peak memory (GiB)"},
    }
    color: dict[str, Any] = {
        "field": "kind",
        "type": "nominal",
        "scale": {"domain": [_ON_FRONT, _OTHERS], "range": ["#0072B2", "#B0B6BC"]},
        "legend": {"title": None},
    }
    front = [{"filter": {"field": "kind", "equal": _ON_FRONT}}]
    others = [{"filter": {"field": "kind", "equal": _OTHERS}}]
    point = {"type": "point", "filled": True, "size": 45}
    dots = {"x": time, "y": memory, "color": color}
    line = {"type": "line", "interpolate": "step-after", "color": "#0072B2"}
    return {
        "height": 320,
        "layer": [
            {"transform": others, "mark": {**point, "opacity": 0.6}, "encoding": dots},
            {"transform": front, "mark": line, "encoding": {"x": time, "y": memory}},
            {"transform": front, "mark": {**point, "opacity": 1}, "encoding": dots},
        ],
    }
