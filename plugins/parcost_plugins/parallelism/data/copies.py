"""Stages with copies on several devices of one pipeline, as in bidirectional schedules.

Every copy processes a part of the micro-batches. So gradients are also reduced between copies,
after the reduction over the replicas of each copy. From ZeRO 1 on, only shards are reduced.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

from parcost import Group, Mask, Once, Real, Study, formula, stage_number
from parcost.numeric import all_of, where
from parcost_plugins.physics.partition import stages_of_devices
from parcost_plugins.physics.run_choices import shards_states
from parcost_plugins.physics.stage_parameters import trained_kinds
from parcost_plugins.physics.sums import reduction_algorithm
from parcost_plugins.vocabulary import CollectiveChoice, Layout, Training
from parcost_plugins.vocabulary.causes import DATA


@stage_number
def copies_of_stage(study: Study) -> int:
    """Return the number of devices that hold each stage."""
    return study.schedule.copies


def reduction(study: Study) -> Iterator[Once]:
    """Reduce the gradients between the copies of every stage, at the end of the pipeline."""
    copies = study.query(copies_of_stage)
    if all_of(copies == 1) or study[Layout].pp == 1:
        return
    pipeline = study.group("pp")
    members = partial(_members, study, pipeline)
    ends = distant_ranks(pipeline, "copies of a stage", float(copies), members)
    for kind in trained_kinds(study):
        elements = kind.elements / kind.shards(shards_states(study))
        n = formula("psi g", psi=elements, g=(study[Training].precision.reduction, "B"))
        algorithm = reduction_algorithm(study, study[CollectiveChoice].data)
        call = study.collective("all_reduce", n, ends, algorithm)
        yield Once(
            name=kind.label("all-reduce between copies of a stage"),
            cause=DATA,
            seconds=call.formula,
            when="end",
            count=kind.count,
            resource=pipeline.pair.resource,
            bytes_=n.value,
        )


def distant_ranks(
    pipeline: Group, name: str, ranks: Real, members: Callable[[], Sequence[Sequence[int]]]
) -> Group:
    """Return the group of *ranks* of a *pipeline*, one in each unit of its outermost level."""
    shape: list[Real] = []
    found: Mask = False
    for units in reversed(pipeline.shape):
        outermost = (units > 1) & (found ^ True)
        shape.insert(0, where(outermost, ranks, 1.0))
        found = found | outermost
    return Group(
        name=name,
        ranks=ranks,
        shape=tuple(shape),
        links=pipeline.pairs,
        flat=pipeline.pair,
        pair=pipeline.pair,
        members=members,
    )


def _members(study: Study, pipeline: Group) -> Sequence[Sequence[int]]:
    """Return the rank lists of all copies: the devices of a pipeline with the same stages."""
    alike: dict[tuple[int, ...], list[int]] = {}
    for device, held in enumerate(stages_of_devices(study)):
        alike.setdefault(tuple(held), []).append(device)
    lists = pipeline.members() if pipeline.members else ()
    return [[row[device] for device in devices] for row in lists for devices in alike.values()]
