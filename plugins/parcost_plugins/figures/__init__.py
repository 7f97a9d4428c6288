"""The headline numbers of a report, and calculators, under the names that claims use.

Conventions differ between publications by more than models do, so every figure that
has one says which it follows. What few studies ask for is imported when one does.
"""

from __future__ import annotations

from collections.abc import Iterator

from parcost import Check, Figure, Outcome, Replay, Section, Study, hookimpl
from parcost_plugins.figures import memory, model, plausible, time
from parcost_plugins.vocabulary import (
    Estimate,
    Grid,
    LinkSheet,
    MachineSheet,
    PipelineSketch,
    StateSheet,
)
from parcost_plugins.vocabulary.answers import outlined

_OF_PIPELINES = ("step_time", "bubble", "bubble_overhead", "alive", "fewest_micro_batches")
_OF_GRIDS = ("devices", "nodes", "tp_rank", "cp_rank", "dp_rank", "pp_rank")
_OF_ESTIMATES = ("step_time", "overhead", "communication_share", "bubble", "efficiency", "speedup")
_OF_LINKS = ("bandwidth", "total", "occupied")
_OF_STATES = ("bytes_per_parameter", "total", "per_device", "devices_needed", "filled", "largest")


@hookimpl
def figures(study: Study, outcome: Outcome) -> Iterator[Figure]:
    """Return the figures in the order in which people ask for them."""
    yield from time.speed(study, outcome)
    yield from model.utilisation(study, outcome)
    yield from time.losses(study, outcome)
    yield from memory.room(study, outcome)
    yield from model.size(study)


@hookimpl
def verdicts(study: Study, outcome: Outcome) -> Iterator[Check]:
    """Return the rules that any believable outcome meets."""
    yield from plausible.rules(study, outcome)


@hookimpl
def calculations(study: Study) -> Iterator[Figure | Check | Section]:
    """Return the figures of blocks that need no model and no machine."""
    if study.all(PipelineSketch):
        from parcost_plugins.figures.pipelines import sketches

        yield from outlined(sketches(study), *_OF_PIPELINES)
    if study.all(Grid):
        from parcost_plugins.figures.grids import grids

        yield from outlined(grids(study), *_OF_GRIDS)
    if study.all(Estimate):
        from parcost_plugins.figures.estimates import estimates

        yield from outlined(estimates(study), *_OF_ESTIMATES)
    if study.all(LinkSheet):
        from parcost_plugins.figures.links import links

        yield from outlined(links(study), *_OF_LINKS)
    if study.all(MachineSheet):
        from parcost_plugins.figures.links import machines

        yield from machines(study)
    if study.all(StateSheet):
        from parcost_plugins.figures.states import states, tables

        yield from outlined(states(study), *_OF_STATES)
        yield from tables(study)


@hookimpl
def replays(study: Study) -> Iterator[Replay]:
    """Return the ``pipeline`` blocks."""
    if study.all(PipelineSketch):
        from parcost_plugins.figures import pipelines

        yield from pipelines.replays(study)


@hookimpl
def details(study: Study, outcome: Outcome) -> Iterator[Figure]:
    """Return what few ask for."""
    from parcost_plugins.figures import further

    yield from further.counts(study, outcome)
    yield from further.sizes(study)
    yield from further.shares(study, outcome)
    yield from further.rates(study, outcome)
