"""The step by cause: what is exposed beside what is hidden, term by term."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from parcost import Chart, Outcome, Study, hookimpl

_PASSES = {"F": "forward", "R": "recompute", "B": "backward", "W": "weight gradients"}
_ROW_HEIGHT = 34
_NOTES = (
    "Exposed seconds add up to the step; hidden ones run beside something else.",
    "Each part of a bar is a term.",
)


@hookimpl
def charts(study: Study, outcome: Outcome) -> Iterator[Chart]:  # noqa: ARG001
    """Return the bars of the step."""
    exposed = outcome.seconds_by_cause
    order = {cause: n for n, cause in enumerate(sorted(exposed, key=lambda c: -exposed[c]))}
    where = f" of stage {outcome.device:.0f}, the busiest" if outcome.pipeline.stages > 1 else ""
    yield Chart(
        name="step",
        title=f"The step{where}, by cause",
        place=10,
        notes=_NOTES,
        spec={"height": _ROW_HEIGHT * len(order), **_SPEC},
        columns={
            "cause": "cause",
            "term": "term",
            "part": "part",
            "seconds": "time",
            "share": "of the step",
            "formula": "formula",
        },
        rows=[*_rows(outcome, order)],
    )


def _rows(outcome: Outcome, order: Mapping[str, int]) -> Iterator[dict[str, Any]]:
    for place, line in enumerate(
        sorted(outcome.ledger, key=lambda one: -(one.exposed + one.hidden))
    ):
        pass_ = _PASSES.get(line.pass_)
        for part, seconds in (("exposed", line.exposed), ("hidden", line.hidden)):
            if seconds > 0:
                share = seconds / outcome.step_seconds if part == "exposed" else None
                yield {
                    "cause": line.cause,
                    "order": order[line.cause],
                    "place": place,
                    "term": f"{line.name} ({pass_})" if pass_ else line.name,
                    "part": part,
                    "seconds": (seconds, "s"),
                    "share": "" if share is None else (share, "%"),
                    "formula": line.formula,
                }


_SPEC: Mapping[str, Any] = {
    "mark": {"type": "bar"},
    "encoding": {
        "y": {
            "field": "cause",
            "type": "nominal",
            "sort": {"field": "order", "op": "min"},
            "axis": {"title": None, "ticks": False, "domain": False},
        },
        "yOffset": {"field": "part", "type": "nominal"},
        "x": {
            "field": "seconds",
            "type": "quantitative",
            "stack": "zero",
            "axis": {"title": "time of a step (s)", "format": "~s", "tickCount": 8},
        },
        "order": {"field": "place", "type": "quantitative"},
        "color": {
            "field": "part",
            "type": "nominal",
            "legend": {"title": None},
        },
    },
}
