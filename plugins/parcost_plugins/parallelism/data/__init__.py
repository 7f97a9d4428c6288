"""Data parallelism and ZeRO: gradients are reduced, and parameters gathered.

- ZeRO 0 reduces gradients once per step, after (and under) the last backward pass.
- ZeRO 1 scatters the same sums and gathers the updated parameters.
- ZeRO 2 keeps only a share of the gradients, so it reduces in every micro-batch.
- ZeRO 3 keeps only a share of the parameters too, so it gathers them for each pass.

Dense parameters are held by all data- and context-parallel ranks, experts by fewer. Hybrid
sharding shares out among some of them and reduces across the rest; workers that train on
their own meet now and then instead.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from parcost import Check, Figure, Once, Outcome, Rulebook, Section, Study, Work, hookimpl
from parcost_plugins.parallelism.data import (
    buffers,
    codec,
    copies,
    local_updates,
    replicas,
    rules,
    tied_embedding,
)
from parcost_plugins.vocabulary import Layout, Stream


@hookimpl
def operators(study: Study) -> Iterator[Stream]:
    """Return what moves in memory beside the collectives of ZeRO 3."""
    yield from buffers.copies(study)


@hookimpl
def terms(study: Study) -> Iterator[Work | Once]:
    """Estimate the traffic of the ZeRO stage that the layout asks for."""
    if study[Layout].zero == 3:
        from parcost_plugins.parallelism.data import full_sharding

        yield from full_sharding.passes(study)
    else:
        yield from replicas.reduction(study)
        yield from replicas.gather(study)
    yield from tied_embedding.reduction(study)
    yield from copies.reduction(study)
    yield from codec.codec_work(study)
    yield from local_updates.outer_exchange(study)


@hookimpl
def checks(study: Study) -> Iterator[Check]:
    """Return the rules of sharding, compression and local updates."""
    yield from rules.rules(study)


@hookimpl
def details(study: Study, outcome: Outcome) -> Iterator[Figure]:
    """Yield volumes, and how well they hide."""
    from parcost_plugins.parallelism.data import volumes

    yield from volumes.figures(study, outcome)


@hookimpl
def sections(study: Study, outcome: Outcome) -> Iterator[Section]:
    """Yield the ZeRO stages side by side, and a checklist."""
    from parcost_plugins.parallelism.data import advice

    yield from advice.sections(study, outcome)


@hookimpl
def rulebooks() -> list[Rulebook]:
    """Offer the pages of the rules."""
    return [Rulebook(name="data", file=Path(__file__).with_name("rules.toml"))]
