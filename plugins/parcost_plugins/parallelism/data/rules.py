"""Rules of compression and local updates: divisibility, and combinations."""

from __future__ import annotations

from collections.abc import Iterator

from parcost import Check, Study
from parcost.numeric import is_array, where
from parcost_plugins.vocabulary import Compression, Layout, LocalUpdates
from parcost_plugins.vocabulary.neighbours import divisors
from parcost_plugins.vocabulary.run_choices import zero_stage
from parcost_plugins.vocabulary.stage_parameters import spread

_NEEDS_WHOLE = ("one_bit", "top_k", "power_sgd")


def rules(study: Study) -> Iterator[Check]:
    """Return the rules."""
    yield _zero_without_plugin(study)
    yield from _local_update_checks(study)
    yield from _compression(study)


def _zero_without_plugin(study: Study) -> Check:
    """Return the rule that a plugin supports the ZeRO stage of the layout."""
    layout = study[Layout]
    return Check(
        id="no-zero",
        holds=layout.zero == zero_stage(study),
        subject="layout.zero",
        message="no plugin offers ZeRO {zero}",
        inputs={"zero": layout.zero},
        help="write `layout {{ zero = 0 }}`, or evaluate with the plugin `data_parallel.zero`",
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
        help="write `overlap_steps` of at most {most}",
    )


def _compression(study: Study) -> Iterator[Check]:
    method, layout = study[Compression].method, study[Layout]
    _, _, shard = spread(study)
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
        holds=shard == replicas,
        subject="compression.method",
        message="shards of {shard} out of {replicas} ranks reduce in two stages, and compression "
        "of both is not modeled",
        inputs={"shard": shard, "replicas": replicas},
        help="leave `sharding.shard` out, or the compression",
    )
