"""Charts of the time of a transfer over its size by algorithm, with crossover points."""

from __future__ import annotations

from collections.abc import Iterator
from math import isfinite
from typing import Any

from parcost import Chart, Collective, Group, Study, block_name, formula
from parcost.numeric import is_array
from parcost_plugins.calculators.transfers.checks import runs
from parcost_plugins.calculators.transfers.place import place
from parcost_plugins.vocabulary import Transfer
from parcost_plugins.vocabulary.axes import BUFFER_AXIS, log_time_axis

_SIZES = tuple(float(2**power) for power in range(10, 35))  # 1 KiB to 16 GiB


def transfer_charts(study: Study) -> Iterator[Chart]:
    """Yield a chart for each distinct operation and group of ranks."""
    seen: list[list[float]] = []
    for transfer in study.all(Transfer):
        group = place(study, transfer)
        if is_array(group.ranks) or not all(check.holds for check in runs(study, transfer, group)):
            continue
        rows = [
            row for known in _algorithms(study, transfer) for row in _rows(known, transfer, group)
        ]
        times = [row["seconds"][0] for row in rows]
        if len({row["algorithm"] for row in rows}) < 2 or times in seen:
            continue
        seen.append(times)
        changes = [*_crossovers(rows)]
        yield Chart(
            name="algorithms",
            title=f"{transfer.operation} over {group.ranks:g} ranks, by algorithm: "
            f"{block_name(transfer)}",
            place=60,
            notes=["A dashed line marks the size at which another algorithm becomes the fastest."],
            spec=_SPEC,
            columns={
                "algorithm": "algorithm",
                "size": "size of the buffer",
                "seconds": "time",
                "formula": "formula",
            },
            rows=[*rows, *changes],
        )


def _algorithms(study: Study, transfer: Transfer) -> list[Collective]:
    """Return the algorithms that a library chooses from, and the algorithm of the transfer."""
    found = [*study.candidates(transfer.operation)]
    found += study.candidates(transfer.operation, transfer.algorithm)
    return list({known.name: known for known in found}.values())


def _rows(known: Collective, transfer: Transfer, group: Group) -> Iterator[dict[str, Any]]:
    for size in _SIZES:
        seconds = known.seconds(transfer.operation, size, group)
        if not is_array(seconds) and isfinite(seconds) and seconds > 0:
            yield {
                "kind": "curve",
                "algorithm": known.name,
                "size": (size, "B"),
                "seconds": (seconds, "s"),
                "formula": formula("t", t=(seconds, "s"), source=f"{known.name}, as modeled"),
            }


def _crossovers(rows: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield the sizes at which the fastest algorithm changes, accurate to a factor of two."""
    before = ""
    for size in _SIZES:
        here = [row for row in rows if row["size"][0] == size]
        best = min(here, key=lambda row: float(row["seconds"][0]), default=None)
        if best is None:
            continue
        if before and best["algorithm"] != before:
            yield {**best, "kind": "crossover", "label": f"{best['algorithm']} from here"}
        before = best["algorithm"]


_CROSSOVER = [{"filter": {"field": "kind", "equal": "crossover"}}]
_SPEC = {
    "height": 320,
    "encoding": {
        "x": {
            "field": "size",
            "type": "quantitative",
            "scale": {"type": "log", "base": 2},
            "axis": BUFFER_AXIS,
        }
    },
    "layer": [
        {
            "transform": [{"filter": {"field": "kind", "equal": "curve"}}],
            "mark": {"type": "line", "point": {"size": 18}},
            "encoding": {
                "y": {
                    "field": "seconds",
                    "type": "quantitative",
                    "scale": {"type": "log"},
                    "axis": log_time_axis("time"),
                },
                "color": {"field": "algorithm", "type": "nominal", "legend": {"title": None}},
            },
        },
        {
            "transform": _CROSSOVER,
            "mark": {"type": "rule", "strokeDash": [6, 3], "color": "#8C8C8C"},
            "encoding": {},
        },
        {
            "transform": _CROSSOVER,
            "mark": {"type": "text", "angle": 270, "align": "right", "dy": -6, "fontSize": 10},
            "encoding": {
                "y": {"value": 8},
                "text": {"field": "label", "type": "nominal"},
            },
        },
    ],
}
