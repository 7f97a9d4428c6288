"""Scaling: larger models, larger batches, more devices."""

from __future__ import annotations

from collections.abc import Iterator

from parcost import Check, Figure, Once, Rulebook, Study, hookimpl
from parcost_plugins.scaling.rulebook import RULES
from parcost_plugins.vocabulary import BatchScaling, EquivalentDevices, Jitter, ScalingLaw, Targets
from parcost_plugins.vocabulary.answers import mark_details


@hookimpl
def terms(study: Study) -> Iterator[Once]:
    """Return the wait for the slowest rank (jitter)."""
    if study.get(Jitter) is None:
        return
    from parcost_plugins.scaling import jitter

    yield from jitter.wait(study)


@hookimpl
def calculations(study: Study) -> Iterator[Figure | Check]:
    """Return the figures of all scaling calculators."""
    if any(study.all(asked) for asked in (ScalingLaw, BatchScaling, EquivalentDevices, Jitter)):
        yield from _calculate(study)


def _calculate(study: Study) -> Iterator[Figure | Check]:
    from parcost_plugins.scaling import batch, devices, jitter, law

    for block in study.all(ScalingLaw):
        yield from law.rules(block)
        yield from law.figures(block)
    for scaling in study.all(BatchScaling):
        headlines = ("critical_batch", "efficiency", "batch_for_target")
        yield from mark_details(batch.figures(scaling), *headlines)
    for job in study.all(EquivalentDevices):
        yield from devices.figures(job, study[Targets])
    if study.all(Jitter):
        yield from jitter.rules(study)
        yield from jitter.figures(study)


@hookimpl
def rulebooks() -> list[Rulebook]:
    """Return the rulebook of this package, with a page for each rule."""
    return [RULES]
