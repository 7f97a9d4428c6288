"""Step time by cause: exposed and hidden, term by term."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from parcost import PASS_NAMES, Chart, Outcome, Study, formula, hookimpl
from parcost_plugins.vocabulary.axes import cause_scale, colored_cause, time_axis

_ROW_HEIGHT = 26
_HIDDEN = 0.3  # opacity
_MOST_TERMS = 1_000_000  # hidden terms are stacked behind all exposed ones
_BAR_SHARE = 0.8  # of the width, for the longest bar; its sum stands behind it
_NOTES = (
    "Solid: exposed time, which adds up to the step time. Pale: time hidden by other work.",
    "Each part of a bar is a term.",
)


@hookimpl
def charts(study: Study, outcome: Outcome) -> Iterator[Chart]:  # noqa: ARG001
    """Return the bars of the step."""
    exposed = outcome.seconds_by_cause
    order = {cause: n for n, cause in enumerate(sorted(exposed, key=lambda c: -exposed[c]))}
    rows = [*_rows(outcome, order)]
    rows += [*_sums(outcome, rows)]
    drawn = {row["cause"] for row in rows}
    longest = max((row["end"] for row in rows if row["part"] == "sum"), default=0.0)
    where = f" (stage {outcome.device:.0f}, busiest)" if outcome.pipeline.stages > 1 else ""
    yield Chart(
        name="step",
        title=f"Step time by cause{where}",
        place=10,
        notes=_NOTES,
        spec=_spec([cause for cause in order if cause in drawn], longest),
        columns={
            "cause": "cause",
            "term": "term",
            "part": "part",
            "seconds": "time",
            "share": "of the step",
            "formula": "formula",
        },
        rows=rows,
    )


def _rows(outcome: Outcome, order: Mapping[str, int]) -> Iterator[dict[str, Any]]:
    for place, line in enumerate(
        sorted(outcome.ledger, key=lambda one: -(one.exposed + one.hidden))
    ):
        pass_ = PASS_NAMES.get(line.pass_)
        for part, seconds in (("exposed", line.exposed), ("hidden", line.hidden)):
            if seconds > 0:
                share = seconds / outcome.step_seconds if part == "exposed" else None
                yield {
                    "cause": line.cause,
                    "color": colored_cause(line.cause),
                    "order": order[line.cause],
                    "stack": place + (_MOST_TERMS if part == "hidden" else 0),
                    "term": f"{line.name} ({pass_})" if pass_ else line.name,
                    "part": part,
                    "seconds": (seconds, "s"),
                    "share": "" if share is None else (share, "%"),
                    "formula": line.formula,
                }


def _sums(outcome: Outcome, rows: Sequence[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield the sum of each cause, the label at the end of its bar."""
    for cause in dict.fromkeys(row["cause"] for row in rows):
        own = [row for row in rows if row["cause"] == cause]
        exposed = outcome.seconds_by_cause[cause]
        share = exposed / outcome.step_seconds
        yield {
            "cause": cause,
            "order": own[0]["order"],
            "part": "sum",
            "term": "all",
            "end": sum(row["seconds"][0] for row in own),
            "seconds": (exposed, "s"),
            "share": (share, "%"),
            "formula": formula("t", t=(exposed, "s"), source="sum of the exposed terms"),
        }


def _spec(causes: Sequence[str], longest: float) -> Mapping[str, Any]:
    cause = {
        "field": "cause",
        "type": "nominal",
        "sort": {"field": "order", "op": "min"},
        "axis": {"title": None, "ticks": False, "domain": False},
    }
    bars = {
        "transform": [{"filter": {"not": {"field": "part", "equal": "sum"}}}],
        "mark": {"type": "bar", "height": {"band": 0.8}},
        "encoding": {
            "y": cause,
            "x": {
                "field": "seconds",
                "type": "quantitative",
                "stack": "zero",
                "scale": {"domainMax": longest / _BAR_SHARE},
                "axis": time_axis("time of a step", longest),
            },
            "order": {"field": "stack", "type": "quantitative"},
            "color": {
                "field": "color",
                "type": "nominal",
                "scale": cause_scale(causes),
                "legend": None,
            },
            "opacity": {
                "field": "part",
                "type": "ordinal",
                "scale": {"domain": ["exposed", "hidden"], "range": [1.0, _HIDDEN]},
                "legend": {"title": None},
            },
        },
    }
    sums = {
        "transform": [
            {"filter": {"field": "part", "equal": "sum"}},
            {"calculate": "datum.seconds_text + ', ' + datum.share_text", "as": "label"},
        ],
        "mark": {"type": "text", "align": "left", "dx": 5, "fontSize": 11},
        "encoding": {
            "y": cause,
            "x": {"field": "end", "type": "quantitative"},
            "text": {"field": "label", "type": "nominal"},
        },
    }
    return {"height": _ROW_HEIGHT * len(causes), "layer": [bars, sums]}
