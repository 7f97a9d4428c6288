"""Parameters that every replica holds: gradients are reduced, updates are shared (ZeRO 0 to 2).

Buckets. With ``overlap.gradients`` a bucket leaves as soon as backward has filled it,
in reverse order of the layers. N equal buckets of tau seconds each leave

    max(tau, N tau - (1 - 1/N) T_backward)

exposed: the last bucket fills when backward ends, and nothing is sent before the first one fills.
Under gradient accumulation only the last micro-batch can hide them. A first bucket that is smaller,
the share f of all, leaves earlier: the others have (1 - f) of backward, and it has what they leave.
Taken in that order the two terms are the event model c_i = max(c_{i-1}, r_i) + T_i exactly.

A rank with whole gradients (ZeRO 0 and 1) gains nothing from buckets without overlap. It sends one
message then. ZeRO 2 has memory for one bucket only, so it always uses buckets.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from parcost import Once, Real, Study, Work, formula
from parcost.numeric import ceil_div, is_array, maximum, minimum, ratio, where
from parcost_plugins.parallelism.data.shard_groups import GRADIENTS, ShardGroup, shard_groups, times
from parcost_plugins.vocabulary import Layout, Overlap, Sharding, Training
from parcost_plugins.vocabulary.causes import DATA
from parcost_plugins.vocabulary.run_choices import (
    hides_gradients,
    hides_parameters,
    reduces_each_micro_batch,
    scatters,
)

When = Literal["fill", "drain", "end"]


def reduction(study: Study) -> Iterator[Work | Once]:
    """Reduce gradients: once per step, or in every micro-batch where only a share is kept."""
    zero = study[Layout].zero
    if zero == 2 and reduces_each_micro_batch(study):
        yield from _micro_batch_reductions(study)
        return
    yield from _step_reduction(study)


def _step_reduction(study: Study) -> Iterator[Once]:
    """Reduce gradients that are kept whole until the last micro-batch."""
    operation, name = _operation(study)
    overlap = hides_gradients(study)
    for wire in shard_groups(study):
        yield from _reduction(wire, operation, name, overlap)
        if wire.across:
            yield hybrid_reduction(wire, overlap)


def _operation(study: Study) -> tuple[str, str]:
    """Return the collective that sums gradients, and its name in the ledger."""
    if scatters(study):
        return "reduce_scatter", "gradient reduce-scatter"
    return "all_reduce", "gradient all-reduce"


def gather(study: Study) -> Iterator[Once]:
    """Gather the parameters that each rank has updated for all (ZeRO 1 and 2).

    With ``overlap.parameters`` a stage gathers while the pipeline fills. It also gathers, bucket by
    bucket, under the forward pass of its first micro-batch.
    """
    if study[Layout].zero == 0:
        return
    overlap = hides_parameters(study)
    when: When = "fill" if overlap else "end"
    for wire in shard_groups(study):
        n = wire.kind.elements * study[Training].precision.gather
        buckets = wire.buckets(n, overlap)
        part = formula(
            "psi a / N",
            psi=wire.kind.elements,
            a=(study[Training].precision.gather, "B"),
            N=buckets,
        )
        call = wire.call("all_gather", part)
        yield Once(
            name=wire.kind.label("parameter all-gather"),
            cause=DATA,
            seconds=times(call.formula, buckets),
            when=when,
            count=wire.kind.count,
            beside=1.0 - 1.0 / buckets,
            tail=call.seconds,
            slowdown=wire.slowdown,
            bytes_=n,
            latency=buckets * call.latency,
            **wire.on,
        )


def _reduction(wire: ShardGroup, operation: str, name: str, overlap: bool) -> Iterator[Once]:
    kind, chosen = wire.kind, wire.study[Overlap]
    size = wire.study[Training].precision.reduction
    n = kind.elements * size
    first: Real = 0.0
    if overlap:
        # a bucket like any other where it is not smaller
        smaller = chosen.first_bucket < chosen.bucket
        first = where(smaller, minimum(chosen.first_bucket, n), 0.0)
    buckets = wire.buckets(n - first, overlap)
    each = wire.reduce(operation, (n - first) / size / buckets)
    left = 1.0 - ratio(first, n)  # of backward, when the first bucket is full
    some = where(n > first, 1.0, 0.0) if is_array(first) or first else 1.0
    yield Once(
        name=kind.label(name),
        cause=DATA,
        seconds=times(each.formula, some * buckets),
        when="drain",
        count=kind.count,
        beside=left * (1.0 - 1.0 / buckets),
        tail=some * each.formula.value,
        slowdown=wire.slowdown,
        bytes_=each.bytes_ * buckets,
        latency=some * buckets * each.latency,
        tag=GRADIENTS,
        **wire.on,
    )
    if is_array(first) or first:
        one = wire.reduce(operation, first / size)
        yield Once(
            name=kind.label("smaller gradient bucket"),  # by name behind the others
            cause=DATA,
            seconds=formula("n > 0 ? t : 0", n=(first, "B"), t=(one.formula, "s")),
            when="drain",
            count=kind.count,
            beside=left,
            slowdown=wire.slowdown,
            bytes_=one.bytes_,
            latency=one.latency,
            tag=GRADIENTS,
            **wire.on,
        )


def hybrid_reduction(wire: ShardGroup, overlap: bool) -> Once:
    """Reduce the shares of a hybrid sharding over the groups that hold the same."""
    kind = wire.kind
    n = kind.elements * wire.study[Training].precision.reduction
    buckets = wire.buckets(n, overlap)
    each = wire.reduce_across(kind.elements / buckets)
    return Once(
        name=kind.label("all-reduce of gradient shards"),
        cause=DATA,
        seconds=times(each.formula, buckets),
        when="drain",
        count=kind.count,
        beside=1.0 - 1.0 / buckets,
        tail=each.formula.value,
        slowdown=wire.slowdown,
        bytes_=each.bytes_ * buckets,
        latency=buckets * each.latency,
        tag=GRADIENTS,
        **wire.on_across,
    )


def _micro_batch_reductions(study: Study) -> Iterator[Work | Once]:
    """Reduce as backward goes: a rank has no room for the other ranks' sums."""
    operation, name = _operation(study)
    overlap, size = hides_gradients(study), study[Training].precision.reduction
    for wire in shard_groups(study):
        kind = wire.kind
        buckets = maximum(ceil_div(kind.elements * size, wire.bucket), 1.0)
        part = kind.elements / buckets
        calls = [(name, "last gradient bucket", wire.reduce(operation, part), wire.on)]
        if wire.across and study[Sharding].replicate == "micro_batch":
            shards, call = "all-reduce of gradient shards", wire.reduce_across(part)
            calls.append((shards, f"last {shards}", call, wire.on_across))
        elif wire.across:
            yield hybrid_reduction(wire, overlap)
        for whole, last, call, on in calls:
            yield wire.work(
                kind.label(last),
                call,
                "W",
                count=kind.count,
                bytes_=call.bytes_,
                on=on,
                tag=GRADIENTS,
            )
            yield wire.work(
                kind.label(whole),
                call,
                "W",
                count=kind.count,
                bytes_=call.bytes_,
                repeat=buckets - 1.0,
                share=1.0 - 1.0 / buckets if overlap else None,
                on=on,
                tag=GRADIENTS,
            )
