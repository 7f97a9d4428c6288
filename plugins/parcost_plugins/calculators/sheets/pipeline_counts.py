"""Counts of a pipeline: passes, messages and live activations. None of these figures is a time."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

from parcost import Figure, Formula, Real, Schedule, Sheet, block_name, ops_of
from parcost_plugins.vocabulary import PipelineSketch


def _sheet(sketch: PipelineSketch) -> Sheet:
    return Sheet(
        block_name(sketch),
        p=sketch.stages,
        m=sketch.micro_batches,
        v=sketch.chunks,
        L=sketch.layers,
    )


def _count_formula(sketch: PipelineSketch, number: float) -> Formula:
    """Return the formula of a number counted in the order of the schedule."""
    inputs = {
        "schedule": sketch.kind,
        "p": sketch.stages,
        "m": sketch.micro_batches,
        "v": sketch.chunks,
    }
    return Formula(text="count in the order of the schedule", inputs=inputs, value=number)


def counts(sketch: PipelineSketch, schedule: Schedule) -> Iterator[Figure]:
    """Yield the passes, the messages and the layers of a stage."""
    sheet = _sheet(sketch)
    yield sheet("operations", "forward passes of all stages and micro-batches", "", "p m v")
    yield sheet("passes", "forward and backward passes of stages", "", "2 p m v")
    yield sheet(
        "transfers_per_boundary",
        "messages over one boundary",
        "",
        "p > 1 ? 2 m : 0",
        note="both directions",
    )
    yield sheet("boundaries", "stage boundaries", "", "p v - 1")
    yield sheet(
        "transfers",
        "messages of a replica",
        "",
        "2 c, c device boundaries passed by all micro-batches",
        note="both directions",
        c=_count_formula(sketch, float(_changes(sketch, schedule))),
    )
    if sketch.layers is not None:
        note = "on the average"
        yield sheet("layers_per_stage", "layers per device", "", "L / p", note=note)
        yield sheet(
            "layers_per_virtual_stage", "layers per virtual stage", "", "L / (p v)", note=note
        )


def _changes(sketch: PipelineSketch, schedule: Schedule) -> int:
    """Return how often a micro-batch moves to another device on its way through the stages.

    Consecutive stages on one device, as at the turn of a V, need no move.
    """
    p, m, v = sketch.stages, sketch.micro_batches, sketch.chunks
    held: dict[tuple[int, int], int] = {}
    for device, entries in enumerate(schedule.order(p, m, v)):
        for op in chain.from_iterable(map(ops_of, entries)):
            held[op.micro_batch, op.stage] = device
    return sum(held[i, stage] != held[i, stage + 1] for i in range(m) for stage in range(p * v - 1))


def boundary_traffic(
    sketch: PipelineSketch, schedule: Schedule, makespan: Real
) -> Iterator[Figure]:
    """Yield the traffic of a stage boundary, if the message size is given."""
    sheet = _sheet(sketch)
    if sketch.message is not None:
        sheet.symbols["n"] = (sketch.message, "B")
    elif sketch.batch is None or sketch.sequence is None or sketch.hidden is None:
        return
    else:
        message = sheet.formula(
            "batch / m s h e",
            batch=sketch.batch,
            s=sketch.sequence,
            h=sketch.hidden,
            e=(sketch.element, "B"),
        )
        sheet.symbols["n"] = (message, "B")
    sheet.symbols["c"] = _count_formula(sketch, float(_changes(sketch, schedule)))
    sheet.symbols["T"] = (makespan if sketch.period is None else sketch.period, "s")
    note = "both directions"
    yield sheet("message_size", "activation of one micro-batch", "MB", "n")
    yield sheet("round_trip", "sent over a boundary for one micro-batch", "MB", "2 n", note=note)
    yield sheet("boundary_traffic", "sent over a boundary in a step", "GB", "2 m n", note=note)
    yield sheet(
        "traffic",
        "sent over all boundaries",
        "GB",
        "2 c n, c device boundaries passed by all micro-batches",
        note=note,
    )
    yield sheet("boundary_rate", "mean rate across a boundary", "GB/s", "2 m n / T", note=note)


def device_figures(sketch: PipelineSketch, schedule: Schedule) -> Iterator[Figure]:
    """Yield figures of the pass order on the chosen device."""
    sheet = _sheet(sketch)
    entries = schedule.order(sketch.stages, sketch.micro_batches, sketch.chunks)[sketch.stage]
    ops = list(chain.from_iterable(map(ops_of, entries)))
    first = next(i for i, op in enumerate(ops) if op.kind != "F")
    held = sorted({op.stage for op in ops})
    alive = most = 0
    for op in ops:
        alive += (op.kind == "F") - (op.kind in ("BW", "W"))
        most = max(most, alive)
    asked = f"device {sketch.stage}"
    yield sheet(
        "in_flight",
        f"peak micro-batches in flight on {asked}",
        "",
        _count_formula(sketch, float(most)),
        note="each chunk counts as one",
    )
    if sketch.kept is not None and sketch.layers is not None:
        yield sheet(
            "activations",
            f"activations of {asked}",
            "GB",
            "in_flight L / (p v) kept, by a layer of a micro-batch",
            kept=(sketch.kept, "B"),
        )
        if sketch.capacity is not None:
            yield sheet(
                "activation_share",
                f"activations / memory of {asked}",
                "%",
                "activations / M",
                M=(sketch.capacity, "B"),
            )
    for name, title, number, note in (
        (
            "warm_up",
            f"warm-up forward passes of {asked}",
            first - 1,
            "without the first pass of the steady phase",
        ),
        ("first_stage", f"first virtual stage of {asked}", held[0] + 1, "counted from 1"),
        ("last_stage", f"last virtual stage of {asked}", held[-1] + 1, "counted from 1"),
    ):
        yield sheet(name, title, "", _count_formula(sketch, float(number)), note=note)
