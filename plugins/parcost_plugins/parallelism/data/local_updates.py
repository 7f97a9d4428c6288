"""Workers that train locally and synchronise every H steps: local SGD, DiLoCo, streaming.

A synchronisation is an all-reduce of the parameters, or of their changes, over one rank of each
worker. A rank sends the parameters that it updates; from ZeRO 1 on, these are a shard. The modeled
step is an average with 1/H of a synchronisation. A model in q parts has q smaller synchronisations
in different steps, with the same total bytes. If steps continue during a synchronisation, it
overlaps with their compute.
"""

from __future__ import annotations

from collections.abc import Iterator

from parcost import Once, Study, formula, link_resources
from parcost.numeric import is_array
from parcost_plugins.parallelism.data.shard_groups import OUTER_STEP
from parcost_plugins.physics.run_choices import shards_states
from parcost_plugins.physics.stage_parameters import trained_kinds
from parcost_plugins.vocabulary import CollectiveChoice, LocalUpdates
from parcost_plugins.vocabulary.causes import DATA


def outer_exchange(study: Study) -> Iterator[Once]:
    """Estimate the communication time of an outer step, averaged over its H steps."""
    local = study[LocalUpdates]
    if not is_array(local.workers) and local.workers == 1:
        return
    on = link_resources(study.group("workers").flat)
    for kind in trained_kinds(study):
        if kind.expert:
            continue
        n = formula(
            "psi e / (N q)",
            psi=kind.elements,
            e=(local.wire, "B"),
            N=kind.shards(shards_states(study)),
            q=local.fragments,
        )
        call = study.collective("all_reduce", n, "workers", study[CollectiveChoice].data)
        often = local.fragments / local.period
        yield Once(
            name=kind.label("outer all-reduce"),
            cause=DATA,
            seconds=formula(
                "q t / H, q messages of t in H steps",
                q=local.fragments,
                H=local.period,
                t=(call.formula, "s"),
            ),
            when="drain",
            count=kind.count,
            # of tau steps for each part, the backward pass; forward is left to the rest
            beside=often * local.overlap_steps * study.pipeline.micro_batches,
            bytes_=often * n.value,
            latency=often * call.latency,
            tag=OUTER_STEP,
            **on,
        )
