"""What a pipeline runs, sends and keeps, counted: nothing here is a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from parcost import Figure, Op, Pair, Real, Schedule
from parcost_plugins.figures.naming import figures_of
from parcost_plugins.vocabulary import PipelineSketch


def counts(sketch: PipelineSketch, schedule: Schedule) -> Iterator[Figure]:
    """Yield the passes, the messages and the layers of a stage."""
    say = figures_of(sketch)
    p, m, v = sketch.stages, sketch.micro_batches, sketch.chunks
    letters = {"p": (p, ""), "m": (m, ""), "v": (v, "")}
    changes = _changes(sketch, schedule)
    yield say("operations", "forward passes of stages", p * m * v, "", "p m v", **letters)
    yield say("passes", "passes of stages, both ways", 2 * p * m * v, "", "2 p m v", **letters)
    yield say(
        "transfers_per_boundary",
        "messages over one boundary",
        2 * m * (p > 1),
        "",
        "2 m",
        note="both directions",
        m=(m, ""),
    )
    yield say("boundaries", "boundaries of stages", p * v - 1, "", "p v - 1", **letters)
    yield say(
        "transfers",
        "messages of a replica",
        2 * changes,
        "",
        "2 c, c changes of device of all micro-batches, counted in the order",
        note="both directions",
        c=(changes, ""),
    )
    if sketch.layers is not None:
        layers = {"L": (sketch.layers, ""), **letters}
        note = "on the average"
        yield say(
            "layers_per_stage",
            "layers per device",
            sketch.layers / p,
            "",
            "L / p",
            note=note,
            **layers,
        )
        yield say(
            "layers_per_virtual_stage",
            "layers per virtual stage",
            sketch.layers / (p * v),
            "",
            "L / (p v)",
            note=note,
            **layers,
        )


def _changes(sketch: PipelineSketch, schedule: Schedule) -> int:
    """Return how often micro-batches change device on their way through the stages.

    Where a device holds stages that follow one another, as at the turn of a V, they do not.
    """
    p, m, v = sketch.stages, sketch.micro_batches, sketch.chunks
    held: dict[tuple[int, int], int] = {}
    for device, entries in enumerate(schedule.order(p, m, v)):
        for op in _ops(entries):
            if op.kind == "F":
                held[op.micro_batch, op.stage] = device
    return sum(held[i, stage] != held[i, stage + 1] for i in range(m) for stage in range(p * v - 1))


def _ops(entries: Sequence[Op | Pair]) -> list[Op]:
    return [op for entry in entries for op in (entry if isinstance(entry, Pair) else (entry,))]


def sent(sketch: PipelineSketch, schedule: Schedule, makespan: Real) -> Iterator[Figure]:
    """Yield what crosses a boundary, where something says how large it is."""
    say, m = figures_of(sketch), sketch.micro_batches
    message, shape = sketch.message, (sketch.batch, sketch.sequence, sketch.hidden)
    if message is None:
        batch, sequence, hidden = shape
        if batch is None or sequence is None or hidden is None:
            return
        message = batch / m * sequence * hidden * sketch.element
    changes = _changes(sketch, schedule)
    inputs = {"n": (message, "B"), "m": (m, ""), "c": (changes, "")}
    period = makespan if sketch.period is None else sketch.period
    each = 2 * m * message
    for name, title, value, unit, text in (
        ("message_size", "activation of one micro-batch", message, "MB", "n"),
        ("round_trip", "sent over a boundary for one micro-batch", 2 * message, "MB", "2 n"),
        ("boundary_traffic", "sent over a boundary in a step", each, "GB", "2 m n"),
        (
            "traffic",
            "sent over all boundaries",
            2 * changes * message,
            "GB",
            "2 c n, c changes of device of all micro-batches",
        ),
        (
            "boundary_rate",
            "mean rate over a boundary",
            2 * m * message / period,
            "GB/s",
            "2 m n / T",
        ),
    ):
        note = "both directions" if name != "message_size" else ""
        yield say(name, title, value, unit, text, note=note, **inputs, T=(period, "s"))


def of_device(sketch: PipelineSketch, schedule: Schedule) -> Iterator[Figure]:
    """Yield what the op order says of the device that is asked about."""
    say = figures_of(sketch)
    entries = schedule.order(sketch.stages, sketch.micro_batches, sketch.chunks)[sketch.stage]
    ops = _ops(entries)
    first = next(i for i, op in enumerate(ops) if op.kind != "F")
    held = sorted({op.stage for op in ops})
    alive = most = 0
    for op in ops:
        alive += (op.kind == "F") - (op.kind in ("BW", "W"))
        most = max(most, alive)
    text, asked = f"counted in the order of `{sketch.kind}`", f"device {sketch.stage}"
    yield say(
        "alive",
        f"most micro-batches alive on {asked}",
        float(most),
        "",
        text,
        note="chunks count one by one",
    )
    if sketch.kept is not None and sketch.layers is not None:
        layers = sketch.layers / (sketch.stages * sketch.chunks)
        filled = most * layers * sketch.kept
        yield say(
            "activations",
            f"activations of {asked}",
            filled,
            "GB",
            "alive x layers of a virtual stage x kept",
            alive=(most, ""),
            layers=(layers, ""),
            kept=(sketch.kept, "B"),
        )
        if sketch.capacity is not None:
            yield say(
                "activation_share",
                f"activations over the memory of {asked}",
                filled / sketch.capacity,
                "%",
                "activations / M",
                M=(sketch.capacity, "B"),
            )
    yield say(
        "warm_up",
        f"forward passes of {asked} before it alternates",
        float(first - 1),
        "",
        text,
        note="less the last of them",
    )
    yield say(
        "first_stage",
        f"first virtual stage of {asked}",
        held[0] + 1.0,
        "",
        text,
        note="counted from 1",
    )
    yield say(
        "last_stage",
        f"last virtual stage of {asked}",
        held[-1] + 1.0,
        "",
        text,
        note="counted from 1",
    )
