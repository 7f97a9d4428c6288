"""Calculators of data parallelism that need no model: buckets, exchanges, ZeRO stages, FSDP."""

from __future__ import annotations

from collections.abc import Iterator

from parcost import Check, Figure, Section, Study, hookimpl
from parcost_plugins.parallelism.data.alone import buckets, exchanges, layers, stages
from parcost_plugins.vocabulary import BucketSketch, ExchangeSketch, FsdpSketch, ZeroSketch


@hookimpl
def calculations(study: Study) -> Iterator[Figure | Section | Check]:
    """Yield the figures of every such block."""
    for bucketed in study.all(BucketSketch):
        yield from buckets.figures(bucketed)
        yield from buckets.section(bucketed)
    for exchanged in study.all(ExchangeSketch):
        yield from exchanges.figures(exchanged)
    for compared in study.all(ZeroSketch):
        yield from stages.figures(compared)
        yield stages.section(compared)
    for layered in study.all(FsdpSketch):
        yield from layers.figures(layered)
        yield from layers.section(layered)
