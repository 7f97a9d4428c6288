"""Layers whose parameters are gathered while the previous one computes: FSDP.

    forward     AG + (L - 1) max(F, AG) + F
    backward    AG + (L - 1) max(BW, AG + RS) + BW + RS

The timeline has two streams, compute and the wire. The next gather is issued when a layer starts, a
reduction when its gradients are ready. The wire processes them in that order. The formula and the
timeline differ by at most one period.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from parcost import Figure, Real, Section, Sheet, block_name
from parcost.numeric import is_array, maximum
from parcost_plugins.vocabulary import FsdpSketch

_ROWS = 64  # of a readable timeline


class Event(NamedTuple):
    """The work of one stream for a layer, in seconds from the start."""

    what: str
    layer: int
    start: float
    end: float


def figures(f: FsdpSketch) -> Iterator[Figure]:
    """Yield the figures of an ``fsdp`` block."""
    sheet = Sheet(
        block_name(f),
        L=f.layers,
        F=(f.forward, "s"),
        BW=(f.backward, "s"),
        AG=(f.gather, "s"),
        RS=(f.reduce, "s"),
        again=_regathers(f),
    )
    yield sheet("forward_time", "forward pass", "s", "AG + (L - 1) max(F, AG) + F")
    first = "" if f.keep_last or not f.reshard else "AG + "
    text = f"{first}(L - 1) max(BW, {'AG + RS' if f.reshard else 'RS'}) + BW + RS"
    yield sheet("backward_time", "backward pass", "s", text)
    yield sheet("time", "forward and backward pass", "s", "forward_time + backward_time")
    yield sheet("exposed", "exposed time of the traffic", "s", "time - L (F + BW)")
    yield sheet("traffic", "time of all traffic", "s", "(L + again) AG + L RS")
    yield sheet(
        "collectives",
        "collectives of forward and backward",
        "",
        "2 L + again, gathers forward, reductions, and repeated gathers",
    )


def section(f: FsdpSketch) -> Iterator[Section]:
    """Yield the timeline of both passes."""
    if is_array(f.forward, f.backward, f.gather, f.reduce):
        return
    count = 4 * f.layers + _regathers(f)  # both passes, gathers, reductions
    shown = timeline(f, most=_ROWS)[:_ROWS]
    yield Section(
        title=f"Timeline, {block_name(f)}",
        columns=("operation", "layer", "start", "end"),
        rows=[(e.what, e.layer, (e.start, "s"), (e.end, "s")) for e in shown],
        notes=[f"{count - _ROWS} more rows"] if count > _ROWS else [],
    )


def passes(f: FsdpSketch) -> tuple[Real, Real]:
    """Return the seconds of the forward and of the backward pass."""
    others = f.layers - 1
    ahead = f.gather + others * maximum(f.forward, f.gather) + f.forward
    first = 0.0 if f.keep_last or not f.reshard else f.gather
    wire = f.reduce + (f.gather if f.reshard else 0.0)
    return ahead, first + others * maximum(f.backward, wire) + f.backward + f.reduce


def timeline(f: FsdpSketch, most: int | None = None) -> list[Event]:
    """Return the events of both streams, by start; *most* limits them to the first layers."""
    shown = f.layers if most is None else min(f.layers, most)
    forward = _run([(i, True) for i in range(shown)], f.gather, f.forward, None, 0.0)
    if shown < f.layers:
        return sorted(forward, key=lambda e: (e.start, e.end))
    first = f.layers - 1
    order = [(i, f.reshard and not (f.keep_last and i == first)) for i in range(first, -1, -1)]
    done = max(event.end for event in forward)
    backward = _run(order, f.gather, f.backward, f.reduce, done)
    return sorted([*forward, *backward], key=lambda e: (e.start, e.end))


def _run(
    order: list[tuple[int, bool]], gather: Real, compute: Real, reduce: Real | None, start: float
) -> list[Event]:
    """Return the events of layers in *order*, beginning at *start*; each event states whether its
    layer is gathered.
    """
    events: list[Event] = []
    wire = busy = start  # when each stream is free
    arrived: dict[int, float] = {}

    def fetch(position: int, issued: float) -> None:
        nonlocal wire
        if position < len(order):
            layer, gathered = order[position]
            arrived[layer] = issued
            if gathered:
                begun = max(wire, issued)
                wire = arrived[layer] = begun + float(gather)
                events.append(Event("gather", layer, begun, wire))

    fetch(0, start)
    what = "forward" if reduce is None else "backward"
    for position, (layer, _) in enumerate(order):
        begun = max(busy, arrived[layer])
        fetch(position + 1, begun)
        busy = begun + float(compute)
        events.append(Event(what, layer, begun, busy))
        if reduce is not None:
            begun = max(wire, busy)
            wire = begun + float(reduce)
            events.append(Event("reduce", layer, begun, wire))
    return events


def _regathers(f: FsdpSketch) -> int:
    return f.layers - int(f.keep_last) if f.reshard else 0
