"""The headline numbers of a report, and calculators, under the names that claims use.

Conventions differ between publications by more than models do, so every figure that
has one says which it follows.
"""

from __future__ import annotations

from collections.abc import Iterator

from parcost import Check, Figure, Outcome, Study, hookimpl
from parcost_plugins.figures import details as further
from parcost_plugins.figures import memory, model, plausible, time
from parcost_plugins.figures.estimates import estimates
from parcost_plugins.figures.grids import grids
from parcost_plugins.figures.links import links, machines
from parcost_plugins.figures.pipelines import sketches
from parcost_plugins.figures.states import states


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
def calculations(study: Study) -> Iterator[Figure | Check]:
    """Return the figures of blocks that need no model and no machine."""
    yield from sketches(study)
    yield from grids(study)
    yield from estimates(study)
    yield from links(study)
    yield from machines(study)
    yield from states(study)


@hookimpl
def details(study: Study, outcome: Outcome) -> Iterator[Figure]:
    """Return what few ask for."""
    yield from further.counts(study, outcome)
    yield from further.sizes(study)
    yield from further.shares(study, outcome)
    yield from further.rates(study, outcome)
