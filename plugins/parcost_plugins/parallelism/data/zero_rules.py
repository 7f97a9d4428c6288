"""Rules of ZeRO: the size of the shard group, and the options of a stage."""

from __future__ import annotations

from collections.abc import Iterator

from parcost import Check, Study
from parcost.numeric import is_array, maximum, where
from parcost_plugins.parallelism.data.rulebook import RULES
from parcost_plugins.physics.neighbours import divisors
from parcost_plugins.vocabulary import Layout, LocalUpdates, Sharding


def rules(study: Study) -> Iterator[Check]:
    """Return the rules."""
    yield from _sharding(study)
    yield from _unused_warnings(study)


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
    yield RULES.check(
        "shard-without-zero",
        (shard == replicas) if layout.zero == 0 else True,
        "sharding.shard",
        inputs=inputs,
    )
    yield RULES.check(
        "shard-of-experts", (shard == replicas) | (layout.ep == 1), "sharding.shard", inputs=inputs
    )


def _unused_warnings(study: Study) -> Iterator[Check]:
    """Warn of options that only ZeRO 3 uses."""
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
                help=f"write `layout {{{{ zero = 3 }}}}`, or leave `{name}` out",
                severity="warning",
            )
    if sharding.accumulate == "whole":
        yield Check(
            id="sharding-unused",
            holds=zero >= 2,
            subject="sharding.accumulate",
            message=(
                "`accumulate = whole` has no effect with ZeRO {zero}: gradients are not sharded"
            ),
            inputs={"zero": zero},
            help="write `layout {{ zero = 2 }}` or 3, or leave `accumulate` out",
            severity="warning",
        )
