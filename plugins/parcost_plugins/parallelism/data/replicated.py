"""Parameters that every replica holds: gradients are reduced, updates are shared (ZeRO 0 to 2).

Buckets. With ``overlap.gradients`` a bucket leaves as soon as backward has filled it,
in reverse order of the layers. N equal buckets of tau seconds each leave

    max(tau, N tau - (1 - 1/N) T_backward)

exposed: the last bucket fills when backward ends, and before the first one fills there
is nothing to send. Under gradient accumulation only the last micro-batch can hide them.

Whoever holds the gradients whole anyway (ZeRO 0 and 1) gains nothing by buckets that may
not hide, and sends one message. ZeRO 2 has room for one bucket and no more, so it cuts
whether or not the buckets hide.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from parcost import Once, Real, Study, Work
from parcost_plugins.parallelism.data.wire import times, wire
from parcost_plugins.vocabulary import Layout, Overlap, Training
from parcost_plugins.vocabulary.held import alike

When = Literal["fill", "drain", "end"]


def reduction(study: Study) -> Iterator[Work | Once]:
    """Reduce gradients: once per step, and in every micro-batch under ZeRO 2."""
    zero = study[Layout].zero
    if zero == 2:
        yield from _every_micro_batch(study)
        return
    operation, name = (
        ("all_reduce", "gradient all-reduce")
        if zero == 0
        else ("reduce_scatter", "gradient reduce-scatter")
    )
    size = study[Training].precision.reduction
    yield from _once(study, operation, name, size, "drain", study[Overlap].gradients)


def gather(study: Study) -> Iterator[Once]:
    """Gather the parameters that each rank has updated for all (ZeRO 1 and 2).

    With ``overlap.parameters`` a stage gathers while the pipeline fills and, bucket by
    bucket, under the forward pass of its first micro-batch.
    """
    if study[Layout].zero == 0:
        return
    overlap = study[Overlap].parameters
    when: When = "fill" if overlap else "end"
    size = study[Training].precision.gather
    yield from _once(study, "all_gather", "parameter all-gather", size, when, overlap)


def _once(
    study: Study,
    operation: str,
    name: str,
    size: Real,
    when: When,
    overlap: bool,
) -> Iterator[Once]:
    dp = wire(study)
    for kind in alike(study):
        n = kind.elements * size
        call, buckets = dp.bucketed(operation, n, overlap)
        yield Once(
            name=kind.named(name),
            seconds=buckets * call.seconds,
            formula=times(call.formula, buckets) if overlap else call.formula,
            when=when,
            count=kind.count,
            resource=dp.resource,
            beside=1.0 - 1.0 / buckets,
            tail=call.seconds,
            slowdown=dp.slowdown,
            bytes_=n,
        )


def _every_micro_batch(study: Study) -> Iterator[Work]:
    """Reduce-scatter as backward goes: a rank has no room for the other ranks' sums."""
    dp, overlap = wire(study), study[Overlap].gradients
    for kind in alike(study):
        n = kind.elements * study[Training].precision.reduction
        call, buckets = dp.bucketed("reduce_scatter", n)
        yield dp.work(
            kind.named("last gradient bucket"), call, "W", count=kind.count, bytes_=n / buckets
        )
        yield dp.work(
            kind.named("gradient reduce-scatter"),
            call,
            "W",
            count=kind.count,
            bytes_=n / buckets,
            repeat=buckets - 1.0,
            share=1.0 - 1.0 / buckets if overlap else None,
        )
