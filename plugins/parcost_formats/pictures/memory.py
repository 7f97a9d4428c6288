"""The memory of each stage at each moment, and the device's capacity."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from parcost import Chart, Formula, Outcome, Study, formula, hookimpl
from parcost_plugins.vocabulary import Cluster, MemoryBudget
from parcost_plugins.vocabulary.axes import cause_scale, colored_cause

_GIB = 2.0**30
_LETTERS = 16  # stages, of which each bar has the letter of its moment above it
_MOST_STAGES = 64


@hookimpl
def charts(study: Study, outcome: Outcome) -> Iterator[Chart]:
    """Return the memory by stage and moment."""
    rows = [*_contents(outcome)]
    if not rows:
        return
    stages = len({row["stage"] for row in rows})
    moments = ", ".join(outcome.memory_by_moment()[0])
    notes = [f"Bars of a stage, from the left: {moments}."]
    if len(outcome.memory_by_moment()) > stages:
        notes.append(f"The first {stages} of {len(outcome.memory_by_moment())} stages.")
    causes = [row["cause"] for row in rows if row["kind"] == "held"]
    rows += _limits(study)
    yield Chart(
        name="memory",
        title="Memory by stage and moment",
        place=20,
        notes=notes,
        spec=_spec(causes, letters=stages <= _LETTERS),
        columns={
            "stage": "stage",
            "moment": "moment",
            "cause": "cause",
            "size": "memory",
            "formula": "terms",
        },
        rows=rows,
    )


def _contents(outcome: Outcome) -> Iterator[dict[str, Any]]:
    """Yield the memory of each stage at each moment, by cause; the largest causes come first."""
    ranked = sorted(outcome.memory_by_cause.items(), key=lambda pair: -pair[1])
    order = {cause: n for n, (cause, _) in enumerate(ranked)}
    for stage, moments in enumerate(outcome.memory_by_moment()[:_MOST_STAGES]):
        for place, (moment, contents) in enumerate(moments.items()):
            causes: dict[str, dict[str, Any]] = {}
            for line in contents:
                causes.setdefault(line.cause, {})[line.name] = line.bytes_
            every = formula("sum(M)", M=(_sums(causes), "B"), source="over all causes")
            if causes:
                yield {
                    "kind": "total",
                    "stage": stage,
                    "moment": moment,
                    "letter": moment[0].upper(),
                    "place": place,
                    "cause": "all",
                    "total": every.value / _GIB,
                    "size": (every.value, "GiB"),
                    "formula": every,
                }
            for cause, lines in causes.items():
                held = formula("sum(M)", M=(lines, "B"), source=_terms(lines))
                yield {
                    "kind": "held",
                    "stage": stage,
                    "moment": moment,
                    "place": place,
                    "cause": cause,
                    "color": colored_cause(cause),
                    "order": order.get(cause, len(order)),
                    "gib": held.value / _GIB,
                    "size": (held.value, "GiB"),
                    "formula": held,
                }


def _sums(causes: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    return {cause: sum(lines.values()) for cause, lines in causes.items()}


def _terms(lines: Mapping[str, Any]) -> str:
    return "of " + ", ".join(lines)


def _limits(study: Study) -> Iterator[dict[str, Any]]:
    device, budget = study[Cluster].device, study[MemoryBudget]
    capacity = formula("C", C=(device.memory, "B"), source="memory of the device")
    usable = formula(
        "u C", u=budget.usable, C=(device.memory, "B"), source="usable memory of the device"
    )
    yield _limit("capacity", capacity)
    if budget.usable < 1:
        yield _limit("usable", usable)


def _limit(name: str, limit: Formula) -> dict[str, Any]:
    return {
        "kind": "limit",
        "cause": name,
        "limit": limit.value / _GIB,
        "size": (limit.value, "GiB"),
        "formula": limit,
    }


def _spec(causes: Iterable[str], *, letters: bool) -> dict[str, Any]:
    stage = {
        "field": "stage",
        "type": "ordinal",
        "axis": {"title": "stage", "labelAngle": 0, "labelOverlap": True},
    }
    moment = {"field": "place", "type": "ordinal"}
    held = {"filter": {"field": "kind", "equal": "held"}}
    layers: list[dict[str, Any]] = [
        {
            "transform": [held],
            "mark": {"type": "bar"},
            "encoding": {
                "x": stage,
                "xOffset": moment,
                "y": {
                    "field": "gib",
                    "type": "quantitative",
                    "stack": "zero",
                    "axis": {"title": "memory (GiB)"},
                },
                "color": {
                    "field": "color",
                    "type": "nominal",
                    "scale": cause_scale(causes),
                    "legend": {"title": None},
                },
                "order": {"field": "order", "type": "quantitative"},
            },
        },
        {
            "transform": [{"filter": {"field": "kind", "equal": "limit"}}],
            "mark": {"type": "rule", "strokeDash": [6, 3], "strokeWidth": 1.5},
            "encoding": {"y": {"field": "limit", "type": "quantitative"}},
        },
        {
            "transform": [{"filter": {"field": "kind", "equal": "limit"}}],
            "mark": {"type": "text", "align": "right", "baseline": "top", "dy": 3},
            "encoding": {
                "y": {"field": "limit", "type": "quantitative"},
                "x": {"value": "width"},
                "text": {"field": "cause", "type": "nominal"},
            },
        },
    ]
    if letters:
        layers.append(
            {
                "transform": [{"filter": {"field": "kind", "equal": "total"}}],
                "mark": {"type": "text", "baseline": "bottom", "dy": -2, "fontSize": 9},
                "encoding": {
                    "x": stage,
                    "xOffset": moment,
                    "y": {"field": "total", "type": "quantitative"},
                    "text": {"field": "letter", "type": "nominal"},
                },
            }
        )
    return {"height": 320, "layer": layers}
