"""A pipeline of equal stages by itself: its bubble under every name that it goes by.

The time is that of the schedule, as the core finds it for any; only the stages are
equal. The bubble over the step and the bubble over busy time are different numbers, so
both are given, and the name of each says which it is.
"""

from __future__ import annotations

from collections.abc import Iterator

from parcost import (
    LONGEST_ORDER,
    Check,
    Figure,
    Pipeline,
    Real,
    Replay,
    Schedule,
    Study,
    Times,
    called,
    longest_span,
)
from parcost import makespan as timed
from parcost.numeric import all_of, any_of, ceil, floor, maximum, ratio
from parcost_plugins.figures.naming import figures_of
from parcost_plugins.figures.pipeline_counts import counts, of_device, sent
from parcost_plugins.vocabulary import PipelineSketch

# Quotients that are whole numbers come out a little off: 7 x 0.9 / 0.1 is 63.
_ROUNDING = 1e-9


def sketches(study: Study) -> Iterator[Figure | Check]:
    """Yield the figures of every ``pipeline`` block, or why there is no such pipeline."""
    for sketch in study.all(PipelineSketch):
        schedule: Schedule = study.plugins.named("schedules")[sketch.kind][1]
        if sketch.stage >= sketch.stages:
            yield _no_such_stage(sketch)
        elif why := _impossible(sketch, schedule):
            yield why
        else:
            run = _replay(sketch, schedule)
            passes = (run.pipeline, run.times, run.hop)
            makespan = timed(schedule, *passes)
            yield from _bubble(sketch, makespan)
            yield from _span(sketch, longest_span(schedule, *passes))
            yield from counts(sketch, schedule)
            yield from sent(sketch, schedule, makespan)
            yield from of_device(sketch, schedule)
            if sketch.target is not None:
                below = _target_check(sketch, sketch.target)
                yield below
                if any_of(below.holds):
                    yield from _fewest(sketch, makespan)


def replays(study: Study) -> Iterator[Replay]:
    """Yield every ``pipeline`` block that runs and is of one point."""
    for sketch in study.all(PipelineSketch):
        schedule: Schedule = study.plugins.named("schedules")[sketch.kind][1]
        if not _impossible(sketch, schedule):
            yield _replay(sketch, schedule)


def _replay(sketch: PipelineSketch, schedule: Schedule) -> Replay:
    """Return the pipeline, the times of its passes, and that of a message."""
    virtual = sketch.stages * sketch.chunks
    weights = sketch.weight_share * sketch.backward
    each = (sketch.forward, sketch.backward - weights, weights)
    F, B, W = ([seconds / sketch.chunks] * virtual for seconds in each)
    cut = Pipeline(
        schedule=sketch.kind,
        stages=sketch.stages,
        chunks=sketch.chunks,
        micro_batches=sketch.micro_batches,
    )
    times = Times(F, B, W)
    return Replay(name=called(sketch), schedule=schedule, pipeline=cut, times=times, hop=sketch.hop)


def _impossible(sketch: PipelineSketch, schedule: Schedule) -> Check | None:
    """Return what the schedule has against the pipeline."""
    limits = getattr(schedule, "limits", None)
    if sketch.stages * sketch.chunks * sketch.micro_batches > LONGEST_ORDER:
        return _too_many(sketch)
    p, m, v = sketch.stages, sketch.micro_batches, sketch.chunks
    why = limits(p, m, v) if limits is not None else None
    if not why:
        return None
    return Check(
        id="pipeline-schedule",
        holds=False,
        subject=f"{called(sketch)}.kind",
        message="`{kind}` does not run at p = {p}, m = {m}, v = {v}: {why}",
        inputs={"kind": sketch.kind, "p": p, "m": m, "v": v, "why": why},
    )


def _too_many(sketch: PipelineSketch) -> Check:
    """Return the rule that a schedule is no longer than what is worked out."""
    p, m, v = sketch.stages, sketch.micro_batches, sketch.chunks
    largest = max(("stages", p), ("micro_batches", m), ("chunks", v), key=lambda one: one[1])
    return Check(
        id="pipeline-size",
        holds=False,
        subject=f"{called(sketch)}.{largest[0]}",
        message="p m v = {p} x {m} x {v} = {passes}, and no schedule of more than {most} passes "
        "is worked out",
        inputs={"p": p, "m": m, "v": v, "passes": p * m * v, "most": LONGEST_ORDER},
    )


def _no_such_stage(sketch: PipelineSketch) -> Check:
    return Check(
        id="pipeline-stage",
        holds=False,
        subject=f"{called(sketch)}.stage",
        message="there is no stage {stage}: stages are 0 to {last}",
        inputs={"stage": sketch.stage, "last": sketch.stages - 1},
    )


def _target_check(sketch: PipelineSketch, target: Real) -> Check:
    """Return the rule that the target leaves some of the step to work in."""
    return Check(
        id="pipeline-target",
        holds=(target < 1.0) if sketch.target_of == "step" else True,
        subject=f"{called(sketch)}.target",
        message="a bubble of all of the step leaves no time to work, and any pipeline has less",
        inputs={},
        help="take less than 100 %, or write `target_of = busy`",
    )


def _bubble(sketch: PipelineSketch, makespan: Real) -> Iterator[Figure]:
    say = figures_of(sketch)
    m, busy = sketch.micro_batches, _busy(sketch)
    idle = makespan - busy
    spans = {"T": (makespan, "s"), "busy": (busy, "s")}
    ramp, slots = sketch.stages - 1, m * sketch.chunks
    off = maximum(idle * slots - ramp * busy, ramp * busy - idle * slots)
    textbook = all_of(off <= _ROUNDING * slots * busy)
    yield say(
        "step_time",
        "step time",
        makespan,
        "s",
        f"makespan of `{sketch.kind}` with equal stages",
        note="with equal stages",
    )
    yield say(
        "busy",
        "busy time",
        busy,
        "s",
        "m (F + B)",
        m=(m, ""),
        F=(sketch.forward, "s"),
        B=(sketch.backward, "s"),
    )
    yield say("idle", "idle time", idle, "s", "T - busy", **spans)
    yield say(
        "bubble",
        "bubble, of the step",
        idle / makespan,
        "%",
        "(T - busy) / T",
        note="(p - 1) / (m v + p - 1)" if textbook else "until the last device ends",
        **spans,
    )
    yield say(
        "bubble_overhead",
        "bubble, over busy time",
        idle / busy,
        "%",
        "(T - busy) / busy",
        note="(p - 1) / (m v)" if textbook else "until the last device ends",
        **spans,
    )
    yield say("efficiency", "busy share of the step", busy / makespan, "%", "busy / T", **spans)
    if sketch.stages > 1:
        yield from _against_one_chunk(sketch, idle)


def _span(sketch: PipelineSketch, span: Real) -> Iterator[Figure]:
    """Yield what a step takes without a barrier, by which zero-bubble schedules are judged."""
    say, busy = figures_of(sketch), _busy(sketch)
    yield say(
        "longest_span",
        "longest span of a device",
        span,
        "s",
        "last end - first start of one device, the longest",
        note="a step without a barrier before the optimizer",
    )
    yield say(
        "span_bubble",
        "bubble, of the longest span",
        1.0 - busy / span,
        "%",
        "1 - busy / span",
        note="without a barrier before the optimizer",
        busy=(busy, "s"),
        span=(span, "s"),
    )


def _against_one_chunk(sketch: PipelineSketch, idle: Real) -> Iterator[Figure]:
    say = figures_of(sketch)
    unchunked = (sketch.stages - 1) * (sketch.forward + sketch.backward)
    yield say(
        "bubble_against_one_chunk",
        "bubble time over that of one chunk",
        ratio(idle, unchunked),
        "",
        "idle / ((p - 1) (F + B))",
        idle=(idle, "s"),
        p=(sketch.stages, ""),
        F=(sketch.forward, "s"),
        B=(sketch.backward, "s"),
    )
    yield say(
        "bubble_reduction",
        "times shorter than with one chunk",
        ratio(unchunked, idle),
        "",
        "(p - 1) (F + B) / idle",
        idle=(idle, "s"),
        p=(sketch.stages, ""),
        F=(sketch.forward, "s"),
        B=(sketch.backward, "s"),
    )


def _fewest(sketch: PipelineSketch, makespan: Real) -> Iterator[Figure]:
    """Yield how many micro-batches the idle time is worth at the target."""
    say = figures_of(sketch)
    target = sketch.target
    assert target is not None
    idle, each = makespan - _busy(sketch), sketch.forward + sketch.backward
    over = ratio(target, 1.0 - target) if sketch.target_of == "step" else target
    needed = idle / (over * each)
    inputs = {"idle": (idle, "s"), "t": (each, "s"), "x": (over, "")}
    note = "at the idle time it has now"
    yield say(
        "fewest_micro_batches",
        "fewest micro-batches with at most the target",
        maximum(ceil(needed - _ROUNDING), 1.0),
        "",
        "max(ceil(idle / (x t)), 1), x the target as a share of busy time",
        note=note,
        **inputs,
    )
    yield say(
        "fewest_micro_batches_below",
        "fewest micro-batches with less than the target",
        maximum(floor(needed + _ROUNDING) + 1.0, 1.0),
        "",
        "max(floor(idle / (x t)) + 1, 1), x the target as a share of busy time",
        note=note,
        **inputs,
    )
    stages = floor(over * sketch.micro_batches * sketch.chunks + _ROUNDING) + 1.0
    yield say(
        "most_stages",
        "most stages with at most the target",
        stages,
        "",
        "floor(x m v) + 1",
        note="idling (p - 1) / v slots",
        x=(over, ""),
        m=(sketch.micro_batches, ""),
        v=(sketch.chunks, ""),
    )


def _busy(sketch: PipelineSketch) -> Real:
    return sketch.micro_batches * (sketch.forward + sketch.backward)
