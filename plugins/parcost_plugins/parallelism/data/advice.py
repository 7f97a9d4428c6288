"""The checklist of data parallelism, with computed values."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from parcost import Once, Outcome, Section, Study, Work
from parcost_plugins.parallelism.data.shard_groups import GRADIENTS, trained_groups
from parcost_plugins.physics import memory_limits
from parcost_plugins.physics.run_choices import (
    copies_buckets,
    gradient_bucket,
    hides_gradients,
    reduces_each_micro_batch,
    shards_states,
    shards_weights,
    zero_stage,
)
from parcost_plugins.vocabulary import Layout, Targets, Training


def sections(study: Study, outcome: Outcome) -> Iterator[Section]:
    """Yield the checklist for a study of several replicas."""
    layout = study[Layout]
    trains = next(iter(trained_groups(study)), None) is not None
    if study.axes or not layout.dp * layout.cp > 1 or not trains:
        return
    if not shards_weights(study):
        yield _checklist(study, outcome)


def _checklist(study: Study, outcome: Outcome) -> Section:
    """Return the usual checks before a data-parallel run, with their results."""
    bucket, precision = gradient_bucket(study), study[Training].precision
    wire = next(iter(trained_groups(study)))
    group = study.group(wire.inside)
    least = group.ranks * group.flat.latency * group.flat.bandwidth
    exposed = hidden = 0.0
    for line in outcome.ledger:
        if isinstance(line.term, (Work, Once)) and line.term.tag == GRADIENTS:
            exposed, hidden = exposed + float(line.exposed), hidden + float(line.hidden)
    wire_time = exposed + hidden
    share = exposed / wire_time if wire_time else 0.0
    each = zero_stage(study) >= 2 and reduces_each_micro_batch(study)
    m = 1.0 if each else study.pipeline.micro_batches
    half, hides = precision.reduction > 2, share <= study[Targets].exposed
    rows = [
        (
            "transfer time of a bucket exceeds its latency",
            (bucket, "B"),
            _yes_or_no(bucket >= least),
            f"at least {least / 1e6:.3g} MB: ranks x latency x bandwidth",
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
            ""
            if m > 1
            else "the framework reduces gradients after each micro-batch"
            if each
            else "one micro-batch: every backward pass is followed by a reduction",
        ),
        (
            "bytes per reduced gradient",
            (precision.reduction, "B"),
            _yes_or_no(not half),
            "16 bits halve the bytes, with rounding errors" if half else "",
        ),
        *_memory_rows(study, outcome),
    ]
    return Section(
        title="Checklist of data parallelism",
        columns=("check", "value", "ok", "note"),
        rows=rows,
    )


def _memory_rows(study: Study, outcome: Outcome) -> Iterator[tuple[Any, ...]]:
    """Yield the checks of memory and links of a replica."""
    if not shards_states(study):
        copied = copies_buckets(study)
        yield (
            "buckets are views of the gradients",
            "off" if copied else "on",
            _yes_or_no(not copied),
            "copies need the memory of the gradients again" if copied else "",
        )
    room = memory_limits(study).most
    fits = bool(outcome.memory_bytes <= room)
    yield (
        "peak memory is within the limit",
        (outcome.memory_bytes, "GiB"),
        _yes_or_no(fits),
        "" if fits else f"more than {room / 2**30:.4g} GiB: increase the ZeRO stage",
    )
    link = study.group(next(iter(trained_groups(study))).inside).flat
    yield (
        "link between replicas",
        str(link.name),
        (link.bandwidth, "B/s"),
        "per rank and direction",
    )


def _yes_or_no(holds: Any) -> str:
    return "yes" if holds else "no"
