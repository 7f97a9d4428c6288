"""ZeRO: optimizer state, gradients and weights are sharded over replicas, stage by stage.

- ZeRO 1 reduce-scatters gradients. Each rank updates its shard of the parameters, which all
  ranks then gather.
- ZeRO 2 also shards gradients, so it reduces in every micro-batch. It stores only one unsharded
  bucket, so it always uses buckets.
- ZeRO 3 also shards weights, so it gathers them for each pass (``zero3``).

Without this plugin every replica holds the whole state: plain data parallelism.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from parcost import Check, Memory, Once, Outcome, Real, Section, Study, Work, formula, hookimpl
from parcost.numeric import any_of, ceil_div, maximum, ratio
from parcost_plugins.parallelism.data import bucket_copies, zero_memory, zero_rules
from parcost_plugins.parallelism.data.replicas import hybrid_reduction, reduction_name
from parcost_plugins.parallelism.data.shard_groups import GRADIENTS, times, trained_groups
from parcost_plugins.physics.kernel_times import stream_work
from parcost_plugins.physics.run_choices import (
    gathers_on_arrival,
    gradient_bucket,
    groups_experts,
    hides_gradients,
    hides_parameters,
    replicates_each_micro_batch,
    shards_gradients,
    shards_states,
    shards_weights,
)
from parcost_plugins.physics.stage_parameters import StageKind
from parcost_plugins.vocabulary import Layout, Sharding, Stream, Training
from parcost_plugins.vocabulary.causes import DATA

When = Literal["fill", "end"]


@hookimpl
def blocks() -> list[type]:
    """Return the block of sharding options."""
    return [Sharding]


def _copies(study: Study) -> Iterator[Stream]:
    """Yield the device copies around the collectives of ZeRO 3, and of gradients in buckets."""
    if shards_weights(study):
        from parcost_plugins.parallelism.data import zero3_copies

        yield from zero3_copies.copies(study)
    training = study[Training]
    apart = any_of(training.precision.gradient_copies != 0)  # one buffer, reduced in place
    if training.framework.bucket_copies and shards_states(study) and not apart:
        yield from bucket_copies.copies(study)


@hookimpl
def terms(study: Study) -> Iterator[Work | Once]:
    """Estimate the communication of the layout's ZeRO stage, and the copies around it."""
    yield from stream_work(_copies(study), study)
    if shards_weights(study):
        from parcost_plugins.parallelism.data import zero3

        yield from zero3.passes(study)
        return
    if shards_gradients(study):
        yield from _reductions(study)
    if shards_states(study):
        yield from _gather(study)


@hookimpl
def memory(study: Study) -> Iterator[Memory]:
    """Yield the buffers for gathered parameters and reduced gradients."""
    yield from zero_memory.buffers(study)


@hookimpl
def checks(study: Study) -> Iterator[Check]:
    """Return the rules of sharding."""
    yield from zero_rules.rules(study)


@hookimpl
def sections(study: Study, outcome: Outcome) -> Iterator[Section]:
    """Yield the ZeRO stages side by side."""
    from parcost_plugins.parallelism.data import zero_stages

    yield from zero_stages.sections(study, outcome)


def _gather(study: Study) -> Iterator[Once]:
    """Gather the updated parameters of all ranks (ZeRO 1 and 2).

    With ``overlap.parameters`` a stage gathers while the pipeline fills. The rest is gathered
    bucket by bucket during the forward pass of its first micro-batch. The gather starts with the
    step or, with ``overlap.gather_start = arrival``, when that micro-batch arrives.

    With ``framework.gathers_in_turn`` each module waits for its buckets, of which one is
    prefetched.
    """
    overlap = hides_parameters(study)
    when: When = "fill" if overlap else "end"
    for wire in trained_groups(study):
        precision = study[Training].precision
        text, symbols = wire.kind.bytes_text(precision.gather, precision.wide_gather)
        n = wire.kind.total_bytes(precision.gather, precision.wide_gather)
        buckets = wire.buckets(wire.kind.elements * precision.gradients, overlap)
        part = formula(f"{text} / N", {**symbols, "N": buckets})
        call = wire.call("all_gather", part)
        yield Once(
            name=wire.kind.label("parameter all-gather"),
            cause=DATA,
            seconds=times(call.formula, buckets),
            when=when,
            on_arrival=overlap and gathers_on_arrival(study),
            count=wire.kind.count,
            beside=1.0 - 1.0 / buckets,
            tail=maximum(1.0, buckets * _share_in_turn(study, wire.kind)) * call.seconds,
            slowdown=wire.slowdown,
            bytes_=n,
            latency=buckets * call.latency,
            **wire.on,
        )


def _share_in_turn(study: Study, kind: StageKind) -> Real:
    """Return the share of the parameters of *kind* whose gather each module waits for.

    A module waits for all buckets of its parameters, and only the first of them is prefetched. No
    bucket splits the matrices of an expert, but the experts of a layer are in several buckets. A
    fused MLP is one module. Otherwise the up projections are one module, and the down projections
    another.
    """
    training = study[Training]
    framework, model = training.framework, training.model
    if not (kind.expert and framework.gathers_in_turn and groups_experts(study)):
        return 0.0
    up = 2.0 if model.gated else 1.0
    matrix = kind.matrix / (up + 1.0) / (model.experts / study[Layout].ep)
    whole = framework.expert_activation == "in_product"
    parts = [(up, 1.0)] if whole else [(up, up / (up + 1.0)), (1.0, 1.0 / (up + 1.0))]
    bucket = gradient_bucket(study) / training.precision.gradients
    late: Real = 0.0
    for width, share in parts:
        ahead = ceil_div(bucket, maximum(width * matrix, 1.0)) * width * matrix
        late = late + maximum(share * kind.matrix - ahead, 0.0)
    return ratio(late, kind.matrix)


def _reductions(study: Study) -> Iterator[Work | Once]:
    """Reduce gradients during backward, as ZeRO 2 stores only a shard."""
    operation, name = reduction_name(study)
    overlap, size = hides_gradients(study), study[Training].precision.reduction
    for wire in trained_groups(study):
        kind = wire.kind
        buckets = maximum(ceil_div(kind.elements * size, wire.bucket), 1.0)
        part = kind.elements / buckets
        calls = [(name, "last gradient bucket", wire.reduce(operation, part), wire.on)]
        if wire.across and replicates_each_micro_batch(study):
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
                window="" if overlap else None,
                share=1.0 - 1.0 / buckets if overlap else 1.0,
                on=on,
                tag=GRADIENTS,
            )
