"""The time of a collective by message size, over each group of the step."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import isfinite
from typing import Any

from parcost import Call, Chart, Outcome, Study, hookimpl
from parcost.numeric import is_array
from parcost_plugins.vocabulary.axes import BUFFER_AXIS, log_time_axis

_OPERATIONS = ("all_reduce", "all_gather", "all_to_all")
_SIZES = tuple(float(4**n) for n in range(5, 18))  # 1 KiB to 16 GiB


@hookimpl
def charts(study: Study, outcome: Outcome) -> Iterator[Chart]:  # noqa: ARG001
    """Return one chart with a curve for each group of several ranks."""
    rows = [row for names, ranks in _groups(study) for row in _rows(study, names, ranks)]
    if not rows:
        return
    yield Chart(
        name="collectives",
        title="Collectives by size",
        place=60,
        notes=["The fastest algorithm of the collective library for each size and group of ranks."],
        spec=_SPEC,
        columns={
            "curve": "operation, group",
            "size": "size",
            "seconds": "time",
            "algorithm": "algorithm",
            "formula": "formula",
        },
        rows=rows,
    )


def _groups(study: Study) -> Iterator[tuple[Sequence[str], float]]:
    """Yield the names and the rank count of groups; groups on the same links share one curve."""
    alike: dict[Any, list[str]] = {}
    for _, group in study.contributions("groups"):
        if not is_array(group.ranks) and group.ranks > 1:
            place = (group.ranks, group.shape, tuple(map(id, group.links)), id(group.flat))
            alike.setdefault(place, []).append(group.name)
    for (ranks, *_), names in alike.items():
        yield names, float(ranks)


def _rows(study: Study, groups: Sequence[str], ranks: float) -> Iterator[dict[str, Any]]:
    group = f"{', '.join(groups)} ({ranks:g} ranks)"
    for operation in _OPERATIONS:
        for size in _SIZES:
            call: Call = study.collective(operation, size, groups[0])
            if isfinite(call.seconds) and call.seconds > 0:
                yield {
                    "curve": f"{operation}, {group}",
                    "operation": operation,
                    "group": group,
                    "size": (size, "B"),
                    "seconds": (call.seconds, "s"),
                    "algorithm": call.algorithm,
                    "formula": call.formula,
                }


_DASHES = {
    "field": "operation",
    "type": "nominal",
    "legend": {
        "title": None,
        "orient": "bottom",
        "symbolType": "stroke",
        "symbolStrokeColor": "#8C8C8C",
        "symbolSize": 400,
        "symbolStrokeWidth": 2,
    },
}
_SPEC = {
    "height": 340,
    "layer": [
        {"mark": "line", "encoding": {"strokeDash": _DASHES}},
        {"mark": {"type": "point", "filled": True, "size": 24}},
    ],
    "encoding": {
        "x": {
            "field": "size",
            "type": "quantitative",
            "scale": {"type": "log", "base": 2},
            "axis": BUFFER_AXIS,
        },
        "y": {
            "field": "seconds",
            "type": "quantitative",
            "scale": {"type": "log"},
            "axis": log_time_axis("time"),
        },
        "color": {"field": "group", "type": "nominal", "legend": {"title": None}},
        "detail": {"field": "curve", "type": "nominal"},
    },
}
