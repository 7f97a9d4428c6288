"""Memory that no tensor of the model accounts for."""

from __future__ import annotations

from parcost import Formula, Memory, Study, hookimpl
from parcost.numeric import where
from parcost_plugins.vocabulary import MemoryBudget


@hookimpl
def memory(study: Study) -> list[Memory]:
    """Return what the driver, the libraries and the allocator take."""
    budget = study[MemoryBudget]
    # Groups of the same ranks share a communicator; that of the whole job is only for set-up.
    distinct = {id(g.links): g for _, g in study.contributions("groups") if g.name != "job"}
    communicators = sum((where(g.ranks > 1, 1.0, 0.0) for g in distinct.values()), 0.0)
    return [
        Memory(
            name="driver context and libraries",
            bytes_=budget.context,
            formula=Formula(text="context", inputs={"context": (budget.context, "B")}),
            once_per_device=True,
        ),
        Memory(
            name="communicators",
            bytes_=budget.communicator * communicators,
            formula=Formula(
                text="k e, k groups of more than one rank",
                inputs={"k": (communicators, ""), "e": (budget.communicator, "B")},
            ),
            once_per_device=True,
        ),
        Memory(
            name="fragmentation",
            bytes_=0.0,
            of_activations=budget.fragmentation,
            formula=Formula(
                text="share x activations alive", inputs={"share": (budget.fragmentation, "")}
            ),
        ),
    ]
