"""Charts of the bubble of ``pipeline`` blocks over the number of micro-batches."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from attrs import evolve

from parcost import Chart, PipelineShape, Schedule, Study, block_name, formula
from parcost import makespan as timed
from parcost.numeric import is_array
from parcost_plugins.calculators.sheets.pipelines import sketch_replay
from parcost_plugins.vocabulary import PipelineSketch

_COUNTS = tuple(2**power for power in range(9))  # micro-batches
_MOST_PASSES = 16_384  # of a schedule that is replayed for a picture


def bubble_charts(study: Study) -> Iterator[Chart]:
    """Yield one chart with a curve for each block."""
    rows = [row for sketch in study.all(PipelineSketch) for row in _rows(study, sketch)]
    if rows:
        yield Chart(
            name="bubble",
            title="Pipeline bubble over micro-batches",
            place=35,
            notes=[
                "Bubble as a share of the step, by replay. Large mark: the values of the block."
            ],
            spec=_SPEC,
            columns={
                "block": "pipeline",
                "micro_batches": "micro-batches",
                "bubble": "bubble",
                "formula": "formula",
            },
            rows=rows,
        )


def _rows(study: Study, sketch: PipelineSketch) -> Iterator[dict[str, Any]]:
    if sketch.stages < 2 or is_array(sketch.forward, sketch.backward, sketch.send_recv):
        return
    schedule: Schedule = study.plugins.offers("schedules")[sketch.kind][1]
    for count in sorted({*_COUNTS, int(sketch.micro_batches)}):
        shape = PipelineShape(stages=sketch.stages, micro_batches=count, chunks=sketch.chunks)
        passes = sketch.stages * sketch.chunks * count
        if passes > _MOST_PASSES or schedule.limits(shape):
            continue
        changed = evolve(sketch, micro_batches=count)  # type: ignore[misc]  # a block is one
        run = sketch_replay(changed, schedule)
        seconds = timed(schedule, run.pipeline, run.times, run.hop)
        busy = count * (sketch.forward + sketch.backward)
        bubble = formula("(T - busy) / T", T=(seconds, "s"), busy=(busy, "s"))
        yield {
            "block": block_name(sketch),
            "own": "own" if count == sketch.micro_batches else "other",
            "micro_batches": float(count),
            "bubble": (bubble.value, "%"),
            "formula": bubble,
        }


_SPEC = {
    "height": 260,
    "encoding": {
        "x": {
            "field": "micro_batches",
            "type": "quantitative",
            "scale": {"type": "log", "base": 2},
            "axis": {"title": "micro-batches", "values": list(_COUNTS), "format": ",.12~g"},
        },
        "y": {
            "field": "bubble",
            "type": "quantitative",
            "axis": {"title": "bubble, of the step", "format": "~%"},
        },
        "color": {"field": "block", "type": "nominal", "legend": {"title": None}},
    },
    "layer": [
        {"mark": "line"},
        {
            "mark": {"type": "point", "filled": True, "opacity": 1},
            "encoding": {
                "size": {
                    "field": "own",
                    "type": "ordinal",
                    "scale": {"domain": ["own", "other"], "range": [110, 24]},
                    "legend": None,
                }
            },
        },
    ],
}
