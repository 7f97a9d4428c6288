"""Which ZeRO stage to take, and what a checklist of data parallelism comes to. Computed.

Every stage is evaluated as the study would be with it. Nothing is recited: a stage is
recommended because it is the fastest that fits.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from parcost import Once, Outcome, Real, Section, SpecError, Study, Work
from parcost.numeric import all_of
from parcost_plugins.parallelism.data.shard_groups import GRADIENTS, shard_groups
from parcost_plugins.parallelism.data.volumes import sent_by_stage
from parcost_plugins.vocabulary import (
    Layout,
    Overlap,
    Plan,
    Sharding,
    Targets,
    Training,
    memory_limits,
)
from parcost_plugins.vocabulary.run_choices import hides_gradients

_STAGES = (0, 1, 2, 3)


def sections(study: Study, outcome: Outcome) -> Iterator[Section]:
    """Yield the checklist for a study of several replicas; with ``plan``, the stages too.

    Each stage is a further evaluation of the whole step, so it is optional.
    """
    layout = study[Layout]
    if study.axes or not layout.dp * layout.cp > 1 or not study.parameters:
        return
    if study.get(Plan) is not None and (compared := _stages(study, outcome)) is not None:
        yield compared
    if layout.zero < 3:
        yield _checklist(study, outcome)


def _stages(study: Study, outcome: Outcome) -> Section | None:
    room = memory_limits(study).most
    rows: list[tuple[Any, ...]] = []
    fitting: list[tuple[float, int]] = []
    for zero in _STAGES:
        made = _cost_at_stage(study, outcome, zero)
        if made is None:
            continue
        changed, result = made
        fits = bool(result.memory_bytes <= room)
        if fits:
            fitting.append((float(result.step_seconds), zero))
        sent, plain = sent_by_stage(changed)
        rows.append(
            (
                f"ZeRO {zero}",
                (result.memory_bytes, "B"),
                "yes" if fits else "no",
                (sent, "B"),
                sent / plain if plain else 1.0,
                (result.step_seconds, "s"),
            )
        )
    if len(rows) < 2:
        return None
    return Section(
        title="ZeRO stages",
        columns=("with", "memory", "fits", "sent by a rank", "over replicas", "step"),
        rows=rows,
        notes=[_recommendation(fitting, study[Targets].as_fast)],
    )


def _recommendation(fitting: list[tuple[float, int]], as_fast: Real) -> str:
    if not fitting:
        return "none of them fits: the model has to be cut as well"
    fastest = min(seconds for seconds, _ in fitting)
    least = min(zero for seconds, zero in fitting if seconds <= fastest * (1.0 + as_fast))
    return f"take ZeRO {least}: of those that fit, none is more than {100 * as_fast:g} % faster"


def _cost_at_stage(study: Study, outcome: Outcome, zero: int) -> tuple[Study, Outcome] | None:
    """Return the study and what it costs at a ZeRO stage, or None where that is not legal."""
    if zero == study[Layout].zero:
        return study, outcome
    try:
        changed = study.replace({"layout.zero": zero})
        if not all_of(changed.legal()):
            return None
        result = changed.evaluate()
    except SpecError:
        return None
    return None if changed.faults_beyond(study) else (changed, result)


def _checklist(study: Study, outcome: Outcome) -> Section:
    """Return what is usually checked before a run of replicas, as it comes out here."""
    overlap, precision = study[Overlap], study[Training].precision
    wire = next(iter(shard_groups(study)))
    group = study.group(wire.inside)
    least = group.ranks * group.flat.latency * group.flat.bandwidth
    exposed = hidden = 0.0
    for line in outcome.ledger:
        if isinstance(line.term, (Work, Once)) and line.term.tag == GRADIENTS:
            exposed, hidden = exposed + float(line.exposed), hidden + float(line.hidden)
    wire_time = exposed + hidden
    share = exposed / wire_time if wire_time else 0.0
    m = study.pipeline.micro_batches
    half, hides = precision.reduction > 2, share <= study[Targets].exposed
    rows = [
        (
            "buckets take longer to send than to start",
            (overlap.bucket, "B"),
            _yes_or_no(overlap.bucket >= least),
            f"more than {least / 1e6:.3g} MB: ranks x latency x bandwidth",
        ),
        (
            "gradient reduction overlaps with backward",
            "on" if hides_gradients(study) else "off",
            _yes_or_no(hides_gradients(study)),
            "",
        ),
        (
            "share of the gradient reduction that is hidden",
            (round(1.0 - share, 6), "%"),
            _yes_or_no(hides),
            "" if hides else "larger micro-batches hide more of it",
        ),
        (
            "micro-batches per gradient reduction",
            m,
            _yes_or_no(m > 1),
            "" if m > 1 else "one micro-batch: every pass is followed by a reduction",
        ),
        (
            "bytes per reduced gradient",
            (precision.reduction, "B"),
            _yes_or_no(not half),
            "16 bits halve the bytes, with rounding errors" if half else "",
        ),
        *_room_rows(study, outcome),
    ]
    return Section(
        title="Checklist of data parallelism",
        columns=("check", "value", "ok", "note"),
        rows=rows,
    )


def _room_rows(study: Study, outcome: Outcome) -> Iterator[tuple[Any, ...]]:
    """Yield what is checked of the memory and of the links of a replica."""
    layout, sharding = study[Layout], study[Sharding]
    if layout.zero == 0:
        yield (
            "buckets are views of the gradients",
            "off" if sharding.bucket_copy else "on",
            _yes_or_no(not sharding.bucket_copy),
            "copies take the gradients once more" if sharding.bucket_copy else "",
        )
    room = memory_limits(study).most
    fits = bool(outcome.memory_bytes <= room)
    yield (
        "every rank has room for what it holds",
        (outcome.memory_bytes, "GiB"),
        _yes_or_no(fits),
        "" if fits else f"more than {room / 2**30:.4g} GiB: a higher ZeRO stage shares it out",
    )
    link = study.group(next(iter(shard_groups(study))).inside).flat
    yield (
        "replicas exchange over",
        str(link.name),
        (link.bandwidth, "B/s"),
        "of each rank, in one direction",
    )


def _yes_or_no(holds: Any) -> str:
    return "yes" if holds else "no"
