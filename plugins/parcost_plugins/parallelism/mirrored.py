"""Schedules that hold every stage on several devices: their gradients are added up.

Each copy sees a part of the micro-batches, so that before the update the copies exchange
what they have, on top of the reduction over the data-parallel ranks of each. Where
ZeRO has scattered the gradients, a rank exchanges its shard.
"""

from __future__ import annotations

from collections.abc import Iterator

from parcost import Formula, Once, Study, hookimpl
from parcost_plugins.vocabulary import CollectiveChoice, Layout, Training
from parcost_plugins.vocabulary.held import alike


@hookimpl
def terms(study: Study) -> Iterator[Once]:
    """Price the exchange over the links of the pipeline, as a ring of the copies."""
    layout = study[Layout]
    copies = getattr(study.schedule, "copies", 1) if layout.pp > 1 else 1
    if copies == 1:
        return
    group, size = study.group("pp"), study[Training].precision.reduction
    for kind in alike(study):
        held = kind.elements * size / kind.shards(layout.zero, 1)
        bytes_ = 2.0 * (copies - 1) / copies * held
        call = study.collective("point_to_point", bytes_, group, study[CollectiveChoice].pipeline)
        yield Once(
            name=kind.named("gradients of copies"),
            seconds=call.seconds,
            formula=Formula(
                text=f"{call.formula.text}, n = 2 (k - 1) / k g",
                inputs={**call.formula.inputs, "k": (float(copies), ""), "g": (held, "B")},
                source=call.formula.source,
            ),
            when="drain",
            count=kind.count,
            resource=group.hop.name,
            bytes_=bytes_,
        )
