"""The passes of each pipeline device over time, as a bar chart."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from parcost import PASS_NAMES, Activity, Chart, PassTimeline, formula, hookimpl, ops_of
from parcost_plugins.vocabulary.axes import time_axis

_MOST_MARKS = 2000
_NUMBERED = 400  # marks that may have the number of their micro-batch
_ROOM = "(datum.end - datum.start) / {seconds!r} * width > 5.5 * length(datum.micro_batch) + 2"
_DENSE = {"strokeWidth": 0}  # an edge would hide a thin bar
_ROW_HEIGHT = 26
_LEAST_HEIGHT = 12
_CALLED = {**PASS_NAMES, "BW": "backward"}
_COLOURS = ("#0072B2", "#C2570C", "#007A5A", "#8E5A9F")  # on which white is readable
_PLACES = ("forward", "backward", "weight gradients", "forward and backward")


@hookimpl
def charts(timeline: PassTimeline) -> Iterator[Chart]:
    """Return the bars of the passes."""
    passes = sorted(
        ((d, one) for d, device in enumerate(timeline.devices) for one in device),
        key=lambda pair: (pair[1].start, pair[0]),
    )
    cut, devices = timeline.pipeline, len(timeline.devices)
    chunks = f", {cut.chunks} chunks each" if cut.chunks > 1 else ""
    on = f"{devices} device{'' if devices == 1 else 's'}{chunks}"
    notes = [
        f"{cut.schedule} on {on}, {cut.micro_batches:g} micro-batches.",
        "Optimizer step and gradient reduction not shown.",
    ]
    shown = passes[:_MOST_MARKS]
    if len(shown) < len(passes):
        notes.append(
            f"The first {len(shown):,} of {len(passes):,} passes; the timeline as JSON has all."
        )
    rows = [_row(d, one, timeline) for d, one in shown]
    last = max((one.end for _, one in shown), default=0.0)
    called = [name for name in _PLACES if any(row["called"] == name for row in rows)]
    yield Chart(
        name="pipeline",
        title=f"Passes of each device over time: {timeline.name}",
        place=30,
        notes=notes,
        spec=_spec(devices, called, last, numbered=last > 0 and len(shown) <= _NUMBERED),
        columns={
            "device": "device",
            "called": "pass",
            "micro_batch": "micro-batch",
            "stage": "stage",
            "seconds": "takes",
            "start": "starts",
            "formula": "formula",
        },
        rows=rows,
    )


def _row(device: int, one: Activity, timeline: PassTimeline) -> dict[str, Any]:
    ops = ops_of(one.op)
    called = " and ".join(_CALLED[op.kind] for op in ops)
    parts: dict[str, float] = {}
    for op in ops:
        for cause, seconds in timeline.parts.get((op.kind, op.stage), {}).items():
            name = f"{cause}, {op.kind}" if len(ops) > 1 else cause
            parts[name] = seconds
    taken = one.end - one.start
    hidden = len(ops) > 1 and sum(parts.values()) > taken
    note = f"exposed {', '.join(parts)}"
    note += "; less what the two hide of each other" if hidden else ""
    return {
        "device": device,
        "called": called,
        "place": _PLACES.index(called),
        "micro_batch": ", ".join(str(op.micro_batch) for op in ops),
        "stage": ", ".join(str(op.stage) for op in ops),
        "start": (one.start, "s"),
        "end": one.end,
        "middle": (one.start + one.end) / 2.0,
        "seconds": (taken, "s"),
        "formula": formula("sum(t)", t=(parts, "s"), source=note) if parts else "as scheduled",
    }


def _spec(devices: int, called: Sequence[str], last: float, *, numbered: bool) -> dict[str, Any]:
    device = {
        "field": "device",
        "type": "ordinal",
        "axis": {"title": "device", "ticks": False, "domain": False, "labelOverlap": True},
    }
    layers: list[dict[str, Any]] = [
        {
            "mark": {"type": "bar", "height": {"band": 0.9}, **({} if numbered else _DENSE)},
            "encoding": {
                "y": device,
                "x": {
                    "field": "start",
                    "type": "quantitative",
                    "axis": time_axis("time since the pipeline began", last),
                },
                "x2": {"field": "end"},
                "color": {
                    "field": "called",
                    "type": "nominal",
                    "sort": {"field": "place", "op": "min"},
                    "scale": {"domain": list(_PLACES), "range": list(_COLOURS)},
                    "legend": {"title": None, "values": called},
                },
            },
        }
    ]
    if numbered:
        layers.append(
            {
                "transform": [{"filter": _ROOM.format(seconds=last)}],
                "mark": {"type": "text", "fontSize": 9, "color": "#ffffff", "clip": True},
                "encoding": {
                    "y": device,
                    "x": {"field": "middle", "type": "quantitative"},
                    "text": {"field": "micro_batch", "type": "nominal"},
                },
            }
        )
    step = max(_LEAST_HEIGHT, min(_ROW_HEIGHT, 640 // devices))
    return {"height": step * devices, "layer": layers}
