"""Data parallelism: gradients are reduced once per step, during and after the last backward pass.

The package ``zero`` shards the state of replicas. Without it every replica holds the whole state.
All data- and context-parallel ranks hold the same dense parameters; fewer ranks hold the same
experts. Hybrid sharding shards the state within groups, and reduces gradients across groups.
Workers of local SGD synchronise only at intervals.
"""

from __future__ import annotations

from collections.abc import Iterator

from parcost import Check, Figure, Once, Outcome, Rulebook, Section, Study, Work, hookimpl
from parcost_plugins.parallelism.data import (
    codec,
    copies,
    local_updates,
    replicas,
    rules,
    tied_embedding,
)
from parcost_plugins.parallelism.data.rulebook import RULES
from parcost_plugins.physics.run_choices import shards_gradients

PARTS = ("zero",)


@hookimpl
def terms(study: Study) -> Iterator[Work | Once]:
    """Estimate the reduction of unsharded gradients, and other communication between replicas."""
    if not shards_gradients(study):
        yield from replicas.step_reduction(study)
    yield from tied_embedding.reduction(study)
    yield from copies.reduction(study)
    yield from codec.codec_work(study)
    yield from local_updates.outer_exchange(study)


@hookimpl
def checks(study: Study) -> Iterator[Check]:
    """Return the rules of compression and local updates."""
    yield from rules.rules(study)


@hookimpl(specname="figures")
def details(study: Study, outcome: Outcome, brief: bool) -> Iterator[Figure]:
    """Yield volumes, and the hidden share of the reduction."""
    if brief:
        return
    from parcost_plugins.parallelism.data import volumes

    yield from volumes.figures(study, outcome)


@hookimpl
def sections(study: Study, outcome: Outcome) -> Iterator[Section]:
    """Yield a checklist."""
    from parcost_plugins.parallelism.data import advice

    yield from advice.sections(study, outcome)


@hookimpl
def rulebooks() -> list[Rulebook]:
    """Return the rulebook of this package, with a page for each rule."""
    return [RULES]
