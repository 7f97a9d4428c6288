"""The axes and the objectives of a layout search."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from math import gcd

from attrs import evolve

from parcost import Axis, Check, Goal, Objective, Rulebook, Study, block_name, hookimpl
from parcost_plugins.physics.neighbours import all_divisors
from parcost_plugins.physics.partition import (
    cut_text,
    end_layers,
    layers,
    must_divide,
    possible_cuts,
)
from parcost_plugins.search_space import goal, objective
from parcost_plugins.search_space.rulebook import RULES
from parcost_plugins.vocabulary import Cluster, ScheduleChoice, Search, Sharding, Training
from parcost_plugins.vocabulary.offers import has, offers_of


@hookimpl
def axes(study: Study) -> Iterator[Axis]:
    """Return the degrees that divide the split dimensions, and all choices of the framework."""
    for axis in _axes(study):
        yield _restrict_axis(study, axis)


def _restrict_axis(study: Study, axis: Axis) -> Axis:
    """Return *axis* without values that the framework does not support, unless none is left."""
    framework = study[Training].framework
    offers = offers_of(framework, axis.attribute)
    if not offers:
        return axis
    note = "; ".join(filter(None, (axis.note, *(one.note for one in offers))))
    axis = evolve(axis, note=note)
    kept = [value for value in axis.values if has(study, axis.attribute, value)]
    if not kept:
        return axis
    lacking = [
        value for value in (*axis.values, *axis.others) if not has(study, axis.attribute, value)
    ]
    return evolve(
        axis,
        values=kept,
        others={v: remark for v, remark in axis.others.items() if v not in lacking},
        lacking=lacking,
        lacks=f"`{block_name(framework)}` has none",
    )


def _axes(study: Study) -> Iterator[Axis]:
    training, devices = study[Training], int(study[Cluster].devices)
    model = training.model
    heads = int(model.heads)
    yield Axis(attribute="layout.tp", short="tp", values=_common_divisors(heads, devices))
    cuts = set(possible_cuts(study))
    stages = [n for n in all_divisors(devices) if n in cuts]
    yield Axis(attribute="layout.pp", short="pp", values=stages)
    yield Axis(attribute="schedule.chunks", short="vpp", values=_chunks(study, cuts))
    contexts = _common_divisors(int(training.sequence), devices, ends=64)
    yield Axis(attribute="layout.cp", short="cp", values=contexts)
    yield Axis(attribute="layout.dp", short="dp", follows=True)
    note = "layers of each virtual stage; 16x3 is 16 stages of 3 layers"
    yield Axis(attribute="schedule.stages", short="cut", note=note, follows=True, value=_cut)
    batch = int(training.global_batch)
    origin = study.origin(training, "global_batch")
    if origin is None or origin.word != "tokens":  # equal tokens are other sequences
        note = (
            "a step of fewer sequences is shorter; "
            f"`--set 'training.global_batch={batch} sequences'` compares equal steps, "
            "`--objective tokens_per_second_per_device` unequal ones"
        )
        yield Axis(attribute="training.global_batch", short="gbs", note=note, follows=True)
    sizes = _common_divisors(batch, batch, ends=64)
    yield Axis(attribute="training.micro_batch", short="mbs", values=sizes)
    if experts := int(getattr(model, "experts", 0) or 0):
        yield Axis(attribute="layout.ep", short="ep", values=_common_divisors(experts, devices))
        yield Axis(attribute="layout.etp", values=_common_divisors(heads, devices, ends=8))
    yield _schedules(study)
    if study.get(Sharding) is not None:
        yield Axis(attribute="layout.zero", values=[0, 1, 2, 3])
    yield Axis(attribute="layout.sequence_parallel", short="sp", values=["off", "on"])
    yield Axis(attribute="training.recompute", values=["none", "selective", "full"])
    yield Axis(attribute="overlap.gradients", values=["off", "on"])
    yield Axis(attribute="overlap.parameters", values=["off", "on"])


@hookimpl
def objectives(study: Study) -> Iterator[Objective]:
    """Return the objectives: step time, and values derived from it."""
    yield from objective.all_of(study)


@hookimpl
def search_goals(study: Study) -> Iterator[Goal]:
    """Return the goal in the block ``search``."""
    yield goal.goal(study)


@hookimpl
def checks(study: Study) -> Iterator[Check]:
    """Return the rules of the block ``search``."""
    if study.get(Search) is not None:
        yield from goal.rules(study)


def _cut(study: Study) -> str:
    """Return the number of layers of each stage as text, "" for one stage."""
    counts = layers(study)
    return cut_text(counts) if len(counts) > 1 else ""


def _chunks(study: Study, cuts: Collection[int]) -> list[int]:
    """Return the numbers of chunks: divisors of the layers, and powers of two if allowed."""
    layers = int(study[Training].model.layers) + sum(end_layers(study))
    found = set(all_divisors(layers))
    if not must_divide(study):
        found |= {2**power for power in range(layers.bit_length())}
    return sorted(found & set(cuts))


def _schedules(study: Study) -> Axis:
    """Return the axis of schedules: the spec's schedule, the search defaults, and the others.

    If the framework lists its schedules, these are the values instead of the defaults.
    """
    kinds, others = {study[ScheduleChoice].kind}, {}
    stated = offers_of(study[Training].framework, "schedule.kind")
    for name, (_, schedule) in study.plugins.offers("schedules").items():
        usual = schedule.search_default
        if usual or (stated and has(study, "schedule.kind", name)):
            kinds.add(name)
        else:
            others[name] = ", ".join(schedule.frameworks)
    return Axis(
        attribute="schedule.kind",
        values=sorted(kinds),
        others={name: have for name, have in others.items() if name not in kinds},
        why="rarely implemented (frameworks in brackets)",
    )


def _common_divisors(whole: int, also: int, ends: int | None = None) -> list[int]:
    """Return the common divisors of both numbers that are at most *ends*.

    >>> _common_divisors(96, 1024)
    [1, 2, 4, 8, 16, 32]
    """
    return [n for n in all_divisors(gcd(whole, also)) if n <= (ends or whole)]


@hookimpl
def rulebooks() -> list[Rulebook]:
    """Return the rulebook of this package, with a page for each rule."""
    return [RULES]
