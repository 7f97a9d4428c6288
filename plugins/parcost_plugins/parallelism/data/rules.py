"""Rules of sharding, compression and local updates: what divides, and what goes together."""

from __future__ import annotations

from collections.abc import Iterator

from parcost import Check, Study
from parcost.numeric import is_array, maximum, where
from parcost_plugins.vocabulary import Compression, Layout, LocalUpdates, Sharding
from parcost_plugins.vocabulary.neighbours import divisors

_NEEDS_WHOLE = ("one_bit", "top_k", "power_sgd")


def rules(study: Study) -> Iterator[Check]:
    """Return the rules."""
    yield from _sharding(study)
    yield from _zero3_warnings(study)
    yield from _local_update_checks(study)
    yield from _compression(study)


def _sharding(study: Study) -> Iterator[Check]:
    layout, shard, workers = study[Layout], study[Sharding].shard, study[LocalUpdates].workers
    replicas = maximum(layout.dp * layout.cp / workers, 1.0)
    hybrid = shard != replicas
    whole = replicas % 1 == 0
    held = "dp {dp} x cp {cp}"
    held += "" if not is_array(workers) and workers == 1 else " / {workers} workers"
    inputs = {
        "replicas": replicas,
        "dp": layout.dp,
        "cp": layout.cp,
        "shard": shard,
        "workers": workers,
        "ep": layout.ep,
    }
    yield Check(
        id="shard-divides",
        holds=where(whole, replicas % shard + shard % 1, 0.0) == 0.0,
        subject="sharding.shard",
        message=f"shards of {{shard}} ranks do not divide the {{replicas}} ranks ({held}) that "
        "hold the same parameters",
        inputs={**inputs, "near": divisors(replicas, shard)},
        help="shard over {near} ranks",
    )
    if not is_array(hybrid) and not hybrid:
        return
    yield Check(
        id="shard-without-zero",
        holds=(shard == replicas) if layout.zero == 0 else True,
        subject="sharding.shard",
        message="`shard = {shard}` has no effect on {replicas} ranks without ZeRO",
        inputs=inputs,
        help="write `layout {{ zero = 1 }}`, 2 or 3, or leave the shard out",
    )
    yield Check(
        id="shard-of-experts",
        holds=(shard == replicas) | (layout.ep == 1),
        subject="sharding.shard",
        message="with ep {ep}, experts are sharded over all ranks that hold the same ones, and "
        "sharding over {shard} of {replicas} ranks is not modeled",
        inputs=inputs,
        help="leave the shard out",
    )


def _zero3_warnings(study: Study) -> Iterator[Check]:
    """Warn of choices that only ZeRO 3 has."""
    sharding, zero = study[Sharding], study[Layout].zero
    chosen = {
        "reshard": sharding.reshard is False,
        "keep_last": sharding.keep_last,
    }
    for name, differs in chosen.items():
        if differs:
            yield Check(
                id="sharding-unused",
                holds=zero == 3,
                subject=f"sharding.{name}",
                message=f"`{name}` changes nothing under ZeRO {{zero}}: parameters are not sharded",
                inputs={"zero": zero},
                severity="warning",
            )
    if sharding.accumulate == "whole":
        yield Check(
            id="sharding-unused",
            holds=zero >= 2,
            subject="sharding.accumulate",
            message="`accumulate = whole` changes nothing under ZeRO {zero}: gradients are "
            "never sharded",
            inputs={"zero": zero},
            severity="warning",
        )


def _local_update_checks(study: Study) -> Iterator[Check]:
    local, layout = study[LocalUpdates], study[Layout]
    if not is_array(local.workers, local.period) and local.workers == 1:
        if local.period > 1:
            yield Check(
                id="workers-one",
                holds=False,
                subject="local_updates.period",
                message="one worker cannot synchronise with another every {period} steps",
                inputs={"period": local.period},
                help="write the number of `workers`: `layout.dp` is the number of replicas",
                severity="warning",
            )
        return
    workers, dp = local.workers, layout.dp
    inputs = {"workers": workers, "dp": dp, "near": divisors(dp, workers), "ep": layout.ep}
    yield Check(
        id="workers-divide",
        holds=where(dp % 1 == 0, dp % workers, 0.0) == 0.0,
        subject="local_updates.workers",
        message="{dp} replicas are not divisible by {workers} workers",
        inputs=inputs,
        help="take {near} workers",
    )
    yield Check(
        id="workers-experts",
        holds=(workers == 1) | (layout.ep == 1),
        subject="local_updates.workers",
        message="ep {ep} distributes experts over replicas, which is not modeled with {workers} "
        "workers of local SGD",
        inputs=inputs,
        help="take ep = 1, or one worker",
    )
    inputs = {
        "fragments": local.fragments,
        "period": local.period,
        "steps": local.overlap_steps,
        "most": local.period // local.fragments,
    }
    yield Check(
        id="fragments-many",
        holds=local.fragments <= local.period,
        subject="local_updates.fragments",
        message="{fragments} fragments do not fit into {period} steps, one exchange per step",
        inputs=inputs,
        help="take {period} fragments or fewer, or a longer period",
    )
    yield Check(
        id="overlap-long",
        holds=(local.fragments > local.period)
        | (local.overlap_steps * local.fragments <= local.period),
        subject="local_updates.overlap_steps",
        message="an exchange of {steps} steps does not end before the next one: {fragments} "
        "fragments are exchanged in {period} steps",
        inputs=inputs,
        help="take {most} steps or fewer",
    )


def _compression(study: Study) -> Iterator[Check]:
    method, layout, sharding = study[Compression].method, study[Layout], study[Sharding]
    if method == "none":
        return
    inputs = {"method": method, "zero": layout.zero}
    yield Check(
        id="compression-needs-whole-gradients",
        holds=method not in _NEEDS_WHOLE or layout.zero == 0,
        subject="compression.method",
        message="`{method}` gives every rank the whole gradient, and ZeRO {zero} shards gradients",
        inputs=inputs,
        help="take `zero = 0`, or fp16, bf16, int8 or int4, which a reduce-scatter supports",
    )
    replicas = layout.dp * layout.cp / study[LocalUpdates].workers
    yield Check(
        id="compression-hybrid",
        holds=sharding.shard == replicas,
        subject="compression.method",
        message="shards of {shard} out of {replicas} ranks reduce in two stages, and compression "
        "of both is not modeled",
        inputs={"shard": sharding.shard, "replicas": replicas},
        help="leave `sharding.shard` out, or the compression",
    )
