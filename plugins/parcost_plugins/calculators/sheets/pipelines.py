"""A pipeline of equal stages: its bubble under all common definitions.

The core replays the schedule, with equal stages. The bubble over the step and the bubble over busy
time are different numbers; both are given, each under its own name.
"""

from __future__ import annotations

from collections.abc import Iterator

from parcost import (
    LONGEST_ORDER,
    Check,
    Figure,
    Formula,
    Pipeline,
    PipelineShape,
    Real,
    Replay,
    Schedule,
    Sheet,
    Study,
    Times,
    block_name,
    longest_span,
)
from parcost import makespan as timed
from parcost.numeric import all_of, any_of, maximum
from parcost_plugins.calculators.rulebook import RULES
from parcost_plugins.calculators.sheets.pipeline_counts import (
    boundary_traffic,
    counts,
    device_figures,
)
from parcost_plugins.vocabulary import PipelineSketch

# Rounding errors of whole quotients: 7 x 0.9 / 0.1 should be 63.
_ROUNDING = 1e-9


def sketches(study: Study) -> Iterator[Figure | Check]:
    """Yield the figures of every ``pipeline`` block, or the reason why it is invalid."""
    for sketch in study.all(PipelineSketch):
        schedule: Schedule = study.plugins.offers("schedules")[sketch.kind][1]
        if sketch.stage >= sketch.stages:
            yield _stage_check(sketch)
        elif why := _limit_check(sketch, schedule):
            yield why
        else:
            run = sketch_replay(sketch, schedule)
            passes = (run.pipeline, run.times, run.hop)
            makespan = timed(schedule, *passes)
            yield from _bubble(sketch, makespan)
            yield from _span(sketch, longest_span(schedule, *passes))
            yield from counts(sketch, schedule)
            yield from boundary_traffic(sketch, schedule, makespan)
            yield from device_figures(sketch, schedule)
            if sketch.target is not None:
                below = _target_check(sketch, sketch.target)
                yield below
                if any_of(below.holds):
                    yield from _fewest_micro_batches(sketch, makespan)


def replays(study: Study) -> Iterator[Replay]:
    """Yield the replay of every valid ``pipeline`` block without sweeps."""
    for sketch in study.all(PipelineSketch):
        schedule: Schedule = study.plugins.offers("schedules")[sketch.kind][1]
        if not _limit_check(sketch, schedule):
            yield sketch_replay(sketch, schedule)


def sketch_replay(sketch: PipelineSketch, schedule: Schedule) -> Replay:
    """Return the pipeline, the seconds of its passes, and the seconds of a message."""
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
    return Replay(
        name=block_name(sketch), schedule=schedule, pipeline=cut, times=times, hop=sketch.send_recv
    )


def _limit_check(sketch: PipelineSketch, schedule: Schedule) -> Check | None:
    """Return the rule that the schedule violates in this pipeline, None if it runs."""
    if sketch.stages * sketch.chunks * sketch.micro_batches > LONGEST_ORDER:
        return _length_check(sketch)
    p, m, v = sketch.stages, sketch.micro_batches, sketch.chunks
    why = schedule.limits(PipelineShape(stages=p, micro_batches=m, chunks=v))
    if not why:
        return None
    return RULES.check(
        "pipeline-schedule",
        False,
        f"{block_name(sketch)}.kind",
        kind=sketch.kind,
        p=p,
        m=m,
        v=v,
        why=why,
    )


def _length_check(sketch: PipelineSketch) -> Check:
    """Return the rule that the schedule is not longer than the limit of simulation."""
    p, m, v = sketch.stages, sketch.micro_batches, sketch.chunks
    largest = max(("stages", p), ("micro_batches", m), ("chunks", v), key=lambda one: one[1])
    return RULES.check(
        "pipeline-size",
        False,
        f"{block_name(sketch)}.{largest[0]}",
        p=p,
        m=m,
        v=v,
        passes=p * m * v,
        most=LONGEST_ORDER,
    )


def _stage_check(sketch: PipelineSketch) -> Check:
    return RULES.check(
        "pipeline-stage",
        False,
        f"{block_name(sketch)}.stage",
        stage=sketch.stage,
        last=sketch.stages - 1,
    )


def _target_check(sketch: PipelineSketch, target: Real) -> Check:
    """Return the rule that the target bubble is below 100 % of the step."""
    return RULES.check(
        "pipeline-target",
        (target < 1.0) if sketch.target_of == "step" else True,
        f"{block_name(sketch)}.target",
    )


def _sheet(sketch: PipelineSketch) -> Sheet:
    sheet = Sheet(
        block_name(sketch),
        p=sketch.stages,
        m=sketch.micro_batches,
        v=sketch.chunks,
        F=(sketch.forward, "s"),
        B=(sketch.backward, "s"),
    )
    sheet.symbols["busy"] = sheet.formula("m (F + B)"), "s"
    return sheet


def _bubble(sketch: PipelineSketch, makespan: Real) -> Iterator[Figure]:
    sheet = _sheet(sketch)
    busy = sketch.micro_batches * (sketch.forward + sketch.backward)
    off = (makespan - busy) / busy - (sketch.stages - 1) / (sketch.micro_batches * sketch.chunks)
    textbook = all_of(maximum(off, -off) <= _ROUNDING)
    run = _replay_formula("replay of the order of the schedule", sketch, makespan)
    yield sheet("step_time", "step time", "s", run, note="with equal stages")
    sheet.symbols["T"] = (run, "s")
    yield sheet("busy", "busy time", "s", "m (F + B)")
    yield sheet("idle", "idle time", "s", "T - busy")
    yield sheet(
        "bubble",
        "bubble / step time",
        "%",
        "(T - busy) / T",
        note="(p - 1) / (m v + p - 1), p stages, m micro-batches, v chunks"
        if textbook
        else "until the last device ends",
    )
    yield sheet(
        "bubble_overhead",
        "bubble / busy time",
        "%",
        "(T - busy) / busy",
        note="(p - 1) / (m v), p stages, m micro-batches, v chunks"
        if textbook
        else "until the last device ends",
    )
    yield sheet("efficiency", "busy share of the step", "%", "busy / T")
    if sketch.stages > 1:
        yield sheet(
            "bubble_against_one_chunk",
            "bubble time / bubble time with one chunk",
            "",
            "ratio(idle, (p - 1) (F + B))",
        )
        yield sheet(
            "bubble_reduction",
            "bubble time with one chunk / bubble time",
            "",
            "ratio((p - 1) (F + B), idle)",
        )


def _replay_formula(text: str, sketch: PipelineSketch, seconds: Real) -> Formula:
    """Return the formula of a time found by replaying the schedule."""
    inputs = {
        "schedule": sketch.kind,
        "p": sketch.stages,
        "m": sketch.micro_batches,
        "v": sketch.chunks,
        "F": (sketch.forward, "s"),
        "B": (sketch.backward, "s"),
        "c": (sketch.send_recv, "s"),
    }
    return Formula(text=text, inputs=inputs, source="equal stages", value=seconds)


def _span(sketch: PipelineSketch, span: Real) -> Iterator[Figure]:
    """Yield the step time without a barrier before the optimizer, as for zero-bubble schedules."""
    sheet = _sheet(sketch)
    yield sheet(
        "longest_span",
        "longest span of a device",
        "s",
        _replay_formula("maximum over devices of last end - first start, by replay", sketch, span),
        note="a step without a barrier before the optimizer",
    )
    yield sheet(
        "span_bubble",
        "bubble / longest span",
        "%",
        "1 - busy / longest_span",
        note="without a barrier before the optimizer",
    )


def _fewest_micro_batches(sketch: PipelineSketch, makespan: Real) -> Iterator[Figure]:
    """Yield the number of micro-batches at which the current idle time meets the bubble target."""
    sheet = _sheet(sketch)
    run = _replay_formula("replay of the order of the schedule", sketch, makespan)
    sheet.symbols |= {"T": (run, "s"), "target": (sketch.target, "%")}
    of_step = sketch.target_of == "step"
    sheet.symbols |= {
        "idle": (sheet.formula("T - busy"), "s"),
        "x": (sheet.formula("ratio(target, 1 - target)" if of_step else "target"), "%"),
    }
    note = "if the idle time does not change"
    yield sheet(
        "fewest_micro_batches",
        "fewest micro-batches with a bubble of at most the target",
        "",
        f"max(ceil(idle / (x (F + B)) - {_ROUNDING}), 1), x the target as a share of busy time",
        note=note,
    )
    yield sheet(
        "fewest_micro_batches_below",
        "fewest micro-batches with a bubble below the target",
        "",
        f"max(floor(idle / (x (F + B)) + {_ROUNDING}) + 1, 1), x as above",
        note=note,
    )
    yield sheet(
        "most_stages",
        "largest number of stages with a bubble of at most the target",
        "",
        f"floor(x m v + {_ROUNDING}) + 1",
        note="for an idle time of (p - 1) / v passes with p stages",
    )
