"""Tied embeddings on the two ends of a pipeline.

The last stage holds a copy. Each end computes a part of the gradient, and the two devices add the
parts before the update. From ZeRO 2 on, each device exchanges only its shard, with the peer that
has the same shard. V-shaped and bidirectional schedules have both ends on one device, which holds
the embedding once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from operator import add

from parcost import Group, Once, Real, Study, formula, map_counts
from parcost_plugins.parallelism.data.copies import distant_ranks
from parcost_plugins.physics import on_first, on_last
from parcost_plugins.physics.adapters import trains_model
from parcost_plugins.physics.partition import ends_share_device
from parcost_plugins.physics.run_choices import zero_stage
from parcost_plugins.physics.sums import reduction_algorithm
from parcost_plugins.vocabulary import CollectiveChoice, Layout, Sharding, Training
from parcost_plugins.vocabulary.causes import DATA


def reduction(study: Study) -> Iterator[Once]:
    """Add the two gradients of tied embeddings, at the end of the pipeline."""
    layout = study[Layout]
    if not trains_model(study):
        return
    copies = [
        held  # whose total would count twice
        for held in study.parameters
        if isinstance(held.total, float) and held.total == 0.0
    ]
    if not copies or layout.pp == 1:
        return
    copied: Real = 0.0
    for held in study.parameters:
        if any(held.name == copy.name for copy in copies) and held.count[-1]:
            copied = copied + held.elements * held.count[-1]
    if (isinstance(copied, float) and copied == 0.0) or study.query(ends_share_device):
        return
    pipeline = study.group("pp")
    ends = distant_ranks(pipeline, "ends of pp", 2.0, partial(_members, pipeline))
    shards = study[Sharding].shard if zero_stage(study) >= 2 else 1.0
    size = study[Training].precision.reduction
    n = formula("psi g / N", psi=copied, g=(size, "B"), N=shards)
    algorithm = reduction_algorithm(study, study[CollectiveChoice].data)
    call = study.collective("all_reduce", n, ends, algorithm)
    yield Once(
        name="shared embedding all-reduce",
        cause=DATA,
        seconds=call.formula,
        when="end",
        count=map_counts(add, on_first(study), on_last(study)),
        resource=pipeline.pair.resource,
        bytes_=n.value,
    )


def _members(pipeline: Group) -> Sequence[Sequence[int]]:
    """Return the first and the last rank of every pipeline."""
    return [[row[0], row[-1]] for row in (pipeline.members() if pipeline.members else ())]
