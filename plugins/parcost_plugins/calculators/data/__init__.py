"""Calculators of data parallelism that need no model: buckets, exchanges, ZeRO stages, FSDP."""

from __future__ import annotations

from collections.abc import Iterator

from parcost import Check, Figure, Section, Study, hookimpl
from parcost_plugins.vocabulary import BucketSketch, ExchangeSketch, FsdpSketch, ZeroSketch
from parcost_plugins.vocabulary.answers import mark_details

_OF_BUCKETS = ("bucket", "exposed", "hidden", "cost", "best_count", "best_cost")
_OF_EXCHANGES = ("ratio", "gain", "message", "volume", "total")
_OF_LAYERS = ("forward_time", "backward_time", "time", "exposed")
_OF_STAGES = tuple(f"{what}_{stage}" for stage in range(4) for what in ("memory", "traffic"))


@hookimpl
def calculations(study: Study) -> Iterator[Figure | Section | Check]:
    """Yield the figures of every block of these calculators."""
    if any(study.all(sketch) for sketch in (BucketSketch, ExchangeSketch, ZeroSketch, FsdpSketch)):
        yield from _calculate(study)


def _calculate(study: Study) -> Iterator[Figure | Section | Check]:
    from parcost_plugins.calculators.data import buckets, exchanges, layers, stages

    for bucketed in study.all(BucketSketch):
        yield from mark_details(buckets.figures(bucketed), *_OF_BUCKETS)
        yield from buckets.section(bucketed)
    for exchanged in study.all(ExchangeSketch):
        yield from mark_details(exchanges.figures(exchanged), *_OF_EXCHANGES)
    for compared in study.all(ZeroSketch):
        yield from mark_details(stages.figures(compared), *_OF_STAGES)
        yield stages.section(compared)
    for layered in study.all(FsdpSketch):
        yield from mark_details(layers.figures(layered), *_OF_LAYERS)
        yield from layers.section(layered)
