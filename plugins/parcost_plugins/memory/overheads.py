"""Memory that no tensor of the model accounts for."""

from __future__ import annotations

from parcost import Formula, Memory, Real, Study, hookimpl
from parcost.numeric import where
from parcost_plugins.vocabulary import MemoryBudget
from parcost_plugins.vocabulary.causes import OVERHEADS
from parcost_plugins.vocabulary.held import alike, spread

#: Groups of ranks that a job always has a communicator for, where they are more than one.
#: Data parallelism has one over dp and cp; the whole job only ever sums a number.
_ALWAYS = ("tp", "cp", "pp")
_EXPERTS = ("ep", "etp")


@hookimpl
def memory(study: Study) -> list[Memory]:
    """Return what the driver, the libraries and the allocator take."""
    budget = study[MemoryBudget]
    communicators = _communicators(study)
    return [
        Memory(
            name="driver context and libraries",
            cause=OVERHEADS,
            bytes_=budget.context,
            formula=Formula(text="context", inputs={"context": (budget.context, "B")}),
            once_per_device=True,
        ),
        Memory(
            name="communicators",
            cause=OVERHEADS,
            bytes_=budget.communicator * communicators,
            formula=Formula(
                text="k e, k groups of more than one rank",
                inputs={"k": (communicators, ""), "e": (budget.communicator, "B")},
            ),
            once_per_device=True,
        ),
        Memory(
            name="fragmentation",
            cause=OVERHEADS,
            bytes_=0.0,
            of_activations=budget.fragmentation,
            formula=Formula(
                text="share x activations alive", inputs={"share": (budget.fragmentation, "")}
            ),
        ),
    ]


def _communicators(study: Study) -> Real:
    """Return how many groups of more than one rank a device is in and uses.

    Shards and their replicas have communicators of their own, in place of all the ranks
    that hold the same parameters; so have workers that train apart.
    """
    ranks = {group.name: group.ranks for _, group in study.contributions("groups")}
    used = list(_ALWAYS)
    if any(kind.expert for kind in alike(study)):
        used += [*_EXPERTS, "edp"]
    _, replicas, shard = spread(study)
    found: Real = 0.0
    for name in used:
        found = found + _one(ranks.get(name, 1.0))
    hybrid = _one(shard) + _one(ranks.get("replicate", 1.0)) + _one(ranks.get("workers", 1.0))
    return found + where(shard == replicas, _one(replicas), hybrid)


def _one(ranks: Real) -> Real:
    return where(ranks > 1, 1.0, 0.0)
