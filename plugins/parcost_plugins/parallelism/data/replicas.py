"""Plain data parallelism: every replica has unsharded gradients, which are reduced once per step.

Buckets. With ``overlap.gradients`` a bucket is sent as soon as backward has filled it, in reverse
order of the layers. With N equal buckets of tau seconds each, the time

    max(tau, N tau - (1 - 1/N) T_backward)

is exposed: the last bucket is full when backward ends, and nothing is sent before the first one is
full. With gradient accumulation only the last micro-batch can hide them. A smaller first bucket,
with the share f of all bytes, is sent earlier. The others overlap with (1 - f) of backward, and the
first with the rest. Both terms together equal the event model c_i = max(c_{i-1}, r_i) + T_i.

Without overlap, all gradients are sent in one message, because buckets would only add latency.
"""

from __future__ import annotations

from collections.abc import Iterator

from parcost import Once, Real, Study, formula
from parcost.numeric import is_array, minimum, ratio, where
from parcost_plugins.parallelism.data.shard_groups import (
    GRADIENTS,
    ShardGroup,
    times,
    trained_groups,
)
from parcost_plugins.physics.run_choices import hides_gradients, scatters
from parcost_plugins.vocabulary import Overlap, Training
from parcost_plugins.vocabulary.causes import DATA


def step_reduction(study: Study) -> Iterator[Once]:
    """Reduce gradients that stay unsharded until the last micro-batch."""
    operation, name = reduction_name(study)
    overlap = hides_gradients(study)
    for wire in trained_groups(study):
        yield from _reduction(wire, operation, name, overlap)
        if wire.across:
            yield hybrid_reduction(wire, overlap)


def reduction_name(study: Study) -> tuple[str, str]:
    """Return the collective that sums gradients, and its name in the ledger."""
    if scatters(study):
        return "reduce_scatter", "gradient reduce-scatter"
    return "all_reduce", "gradient all-reduce"


def _reduction(wire: ShardGroup, operation: str, name: str, overlap: bool) -> Iterator[Once]:
    kind, chosen = wire.kind, wire.study[Overlap]
    size = wire.study[Training].precision.reduction
    n = kind.elements * size
    first: Real = 0.0
    if overlap and chosen.first_bucket is not None:
        # a bucket like any other where it is not smaller
        smaller = chosen.first_bucket < wire.bucket
        first = where(smaller, minimum(chosen.first_bucket, n), 0.0)
    buckets = wire.buckets(n - first, overlap)
    each = wire.reduce(operation, (n - first) / size / buckets)
    left = 1.0 - ratio(first, n)  # of backward, when the first bucket is full
    some = where(n > first, 1.0, 0.0)
    yield Once(
        name=kind.label(name),
        cause=DATA,
        seconds=times(each.formula, some * buckets),
        when="drain",
        count=kind.count,
        beside=left * (1.0 - 1.0 / buckets),
        tail=some * each.formula.value,
        after_device=not overlap,
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
    """Reduce the shards of hybrid sharding over the ranks with the same shard."""
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
        after_device=not overlap,
        slowdown=wire.slowdown,
        bytes_=each.bytes_ * buckets,
        latency=buckets * each.latency,
        tag=GRADIENTS,
        **wire.on_across,
    )
