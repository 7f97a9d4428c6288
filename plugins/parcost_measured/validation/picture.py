"""Predicted and measured times: a histogram of errors as text, and a scatter chart."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import floor
from typing import Any

from attrs import frozen

from parcost import Chart, formula
from parcost.language.numbers import percent
from parcost_measured.validation.summary import ScoredRow

_STEP = 0.1  # of an error, the width of a bar
_MOST = 1.0  # beyond which errors share the last bar
_LENGTH = 40  # of the longest bar, in characters


@frozen
class Bar:
    """The number of rows with errors in a range."""

    title: str
    rows: int
    length: int


def histogram(errors: Sequence[float]) -> list[Bar]:
    """Return bars of 10 % each, from the lowest to the highest error; all errors above +100 % share
    one bar.

    >>> [(bar.title, bar.rows) for bar in histogram([-0.15, -0.12, 0.05])]
    [('-20 to -10 %', 2), ('-10 to 0 %', 0), ('0 to +10 %', 1)]
    """
    if not errors:
        return []
    places = [min(floor(error / _STEP + 1e-9), round(_MOST / _STEP)) for error in errors]
    counts = dict.fromkeys(range(min(places), max(places) + 1), 0)
    for place in places:
        counts[place] += 1
    most = max(counts.values())
    return [
        Bar(_title(place), count, -(-count * _LENGTH // most)) for place, count in counts.items()
    ]


def _title(place: int) -> str:
    low, high = round(100 * place * _STEP), round(100 * (place + 1) * _STEP)
    return (
        f"over {_signed_text(low)} %"
        if low >= 100 * _MOST
        else f"{_signed_text(low)} to {_signed_text(high)} %"
    )


def _signed_text(value: int) -> str:
    return f"{value:+d}" if value else "0"


_MOST_DOTS = 5000


def scatter(rows: Sequence[ScoredRow]) -> Chart:
    """Return a chart of seconds predicted over seconds measured, both on logarithmic axes."""
    shown = rows[:_MOST_DOTS]
    left = len(rows) - len(shown)
    return Chart(
        name="errors",
        title="Predicted over measured",
        notes=[
            "Each dot is a run; on the line, prediction and measurement are equal.",
            *([f"The first {len(shown):,} of {len(rows):,} runs."] if left else []),
        ],
        spec=_SPEC,
        columns={
            "id": "run",
            "source": "source",
            "measured": "measured",
            "predicted": "predicted",
            "error": "error",
            "formula": "formula",
        },
        rows=[*_ends(shown), *map(_dot, shown)],
    )


def _dot(one: ScoredRow) -> dict[str, Any]:
    predicted, measured = one.prediction.step_time, one.row.measured.step_time_s
    return {
        "kind": "run",
        "id": one.row.id,
        "source": one.row.source_key,
        "measured": (measured, "s"),
        "predicted": (predicted, "s"),
        "error": percent(one.error, signed=True),
        "formula": formula("p / m - 1", p=(predicted, "s"), m=(measured, "s")),
    }


def _ends(rows: Sequence[ScoredRow]) -> Iterator[dict[str, Any]]:
    """Yield the end points of the line predicted = measured."""
    seconds = [s for one in rows for s in (one.prediction.step_time, one.row.measured.step_time_s)]
    for end in (min(seconds), max(seconds)) if seconds else ():
        exact = formula("p - m", p=(end, "s"), m=(end, "s"))
        cells = {"measured": (end, "s"), "predicted": (end, "s"), "formula": exact}
        yield {"kind": "exact", "id": "exact", **cells}


_SPEC: Mapping[str, Any] = {
    "height": 520,
    "layer": [
        {
            "transform": [{"filter": {"field": "kind", "equal": kind}}],
            "mark": mark,
            "encoding": {
                "x": {
                    "field": "measured",
                    "type": "quantitative",
                    "scale": {"type": "log"},
                    "axis": {"title": "measured (s)", "format": "~s", "tickCount": 8},
                },
                "y": {
                    "field": "predicted",
                    "type": "quantitative",
                    "scale": {"type": "log"},
                    "axis": {"title": "predicted (s)", "format": "~s", "tickCount": 8},
                },
                **more,
            },
        }
        for kind, mark, more in (
            ("exact", {"type": "line", "color": "#8C8C8C"}, {}),
            (
                "run",
                {"type": "point", "filled": True, "size": 30, "opacity": 0.7},
                {
                    "color": {"field": "source", "type": "nominal", "legend": {"title": None}},
                    "shape": {"field": "source", "type": "nominal", "legend": {"title": None}},
                },
            ),
        )
    ],
}
