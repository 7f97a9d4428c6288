"""Memory outside of the model's tensors."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from parcost import Formula, Memory, Real, Study, attribute, formula, hookimpl
from parcost.numeric import any_of, maximum, where
from parcost_plugins.physics.partition import ends_share_device, stages
from parcost_plugins.physics.stage_parameters import spread, stage_kinds
from parcost_plugins.vocabulary import Layout, MemoryBudget, Training
from parcost_plugins.vocabulary.causes import FRAGMENTATION, OUTSIDE, OVERHEADS

#: Groups of ranks that a job always has a communicator for, where they are more than one.
#: Data parallelism has one over dp and cp.
_ALWAYS = ("tp", "cp", "pp")
_EXPERTS = ("ep", "etp")
_OF_ACTIVATIONS = "a share of the activations alive"


@hookimpl
def memory(study: Study) -> list[Memory]:
    """Return the memory of the driver, the libraries and the allocator."""
    budget = study[MemoryBudget]
    communicators, share = _communicators(study), budget.fragmentation
    decides: object = budget
    symbol = "fragmentation"
    if budget.expandable_segments:
        share, symbol = budget.expandable_fragmentation, "expandable_fragmentation"
    elif share is None:
        decides = study[Training].framework
        share = study[Training].framework.fragmentation
    return [
        Memory(
            name="driver context and libraries",
            cause=OVERHEADS,
            bytes_=formula(
                "C", C=(budget.context, "B"), origins=partial(_bytes_of, budget, C="context")
            ),
            once_per_device=True,
            tag=OUTSIDE,
        ),
        Memory(
            name="communicators",
            cause=OVERHEADS,
            bytes_=formula(
                "k e, k groups of more than one rank",
                k=communicators,
                e=(budget.communicator, "B"),
                origins=partial(_bytes_of, budget, e="communicator"),
            ),
            once_per_device=True,
            tag=OUTSIDE,
        ),
        Memory(
            name="fragmentation",
            cause=OVERHEADS,
            bytes_=0.0,
            of_activations=share,
            formula=Formula(
                text=_OF_ACTIVATIONS,
                inputs={"share": share},
                explain=partial(_share_of_activations, decides, symbol),
            ),
            tag=FRAGMENTATION,
        ),
    ]


def _bytes_of(budget: MemoryBudget, **symbols: str) -> dict[str, Any]:
    return {symbol: (attribute(budget, name), "B") for symbol, name in symbols.items()}


def _share_of_activations(decides: object, name: str) -> Formula:
    return Formula(text=_OF_ACTIVATIONS, inputs={"share": attribute(decides, name)})


def _communicators(study: Study) -> Real:
    """Return the number of communicators with more than one rank that a device uses.

    With hybrid sharding, shards and replicas have separate communicators instead of one over all
    ranks that hold the same parameters. So have workers that train separately.
    """
    ranks = {group.name: group.ranks for _, group in study.contributions("groups")}
    used = list(_ALWAYS)
    if any(kind.expert for kind in stage_kinds(study)):
        used += [*_EXPERTS, "edp"]
    _, replicas, shard = spread(study)
    found: Real = 0.0
    for name in used:
        found = found + _one(ranks[name])
    hybrid = _one(shard) + _one(ranks["replicate"]) + _one(ranks["workers"])
    return (
        found
        + where(shard == replicas, _one(replicas), hybrid)
        + _joint_communicators(study, ranks)
    )


def _joint_communicators(study: Study, ranks: Mapping[str, Real]) -> Real:
    """Return the number of communicators that span several degrees.

    All ranks have one, unless a single degree contains all ranks. The ranks of a model replica have
    one for the gradient norm. The two ends of a pipeline have one for the gradients of tied
    embeddings. These groups send little data, but their buffers have the full size.
    """
    layout, pp = study[Layout], stages(study)
    widest = maximum(maximum(layout.tp, layout.cp), maximum(pp, layout.dp * layout.cp))
    found = where(ranks["job"] > widest, 1.0, 0.0)
    if any_of(pp > 1):
        found = found + where(pp > 1, _one(layout.tp), 0.0)
        if study[Training].model.tied:
            found = found + where(study.query(ends_share_device), 0.0, 1.0)  # so with pp = 1
    return found


def _one(ranks: Real) -> Real:
    return where(ranks > 1, 1.0, 0.0)
