"""Context parallelism: ranks with a share of the sequence, and their exchange of keys.

All work per token divides by the degree, and other plugins need only ``layout.cp`` of it. Attention
does not divide: each query attends to the keys of the whole sequence. ``context.algorithm`` names
the method of exchange.

- ``ring``: blocks of keys and values go round, one to the next rank while attention works
  on the one before. Hidden if a block takes longer to work on than to send.
- ``all_gather``: every rank collects all keys and values of a layer first, and nothing
  hides that.
- ``ulysses``: an all-to-all gives each rank the whole sequence for a share of the heads,
  another one the outputs back.
- ``hybrid``: ``ulysses`` inside of groups, and a ring between them.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from parcost import Check, Figure, Memory, Outcome, Rulebook, Section, Study, Work, hookimpl
from parcost_plugins.parallelism.context.exchange import exchange, is_single_rank


@hookimpl
def terms(study: Study) -> Iterator[Work]:
    """Estimate what brings queries and keys together, and uneven causal attention."""
    if is_single_rank(study):
        return
    from parcost_plugins.parallelism.context import all_to_all, gather, ring

    found = exchange(study)
    if found.kind == "all_gather":
        yield from gather.gather_work(found)
    else:
        yield from all_to_all.all_to_all_work(found)
        yield from ring.ring_work(found)
    yield from ring.imbalance(found)


@hookimpl
def memory(study: Study) -> Iterator[Memory]:
    """Return the buffers of keys and values that are under way."""
    if not is_single_rank(study):
        from parcost_plugins.parallelism.context import buffers

        yield from buffers.exchange_buffers(exchange(study))


@hookimpl
def checks(study: Study) -> Iterator[Check]:
    """Require that the degree divides what it splits, and that the algorithm can run."""
    from parcost_plugins.parallelism.context import rules

    yield from rules.words(study)
    if not is_single_rank(study):
        yield from rules.splits(study)
        yield from rules.placement(study)


@hookimpl
def details(study: Study, outcome: Outcome) -> Iterator[Figure]:
    """Return blocks, volumes, times, and when a ring is free."""
    from parcost_plugins.parallelism.context import figures

    yield figures.ranks(study)
    yield from figures.traffic(exchange(study), outcome)


@hookimpl
def sections(study: Study, outcome: Outcome) -> list[Section]:
    """Return in which regime the exchange is, and what would make it free."""
    if is_single_rank(study):
        return []
    from parcost_plugins.parallelism.context import figures

    return [figures.regime(exchange(study), outcome)]


@hookimpl
def rulebooks() -> list[Rulebook]:
    """Offer the pages of the rules."""
    return [Rulebook(name="context", file=Path(__file__).with_name("rules.toml"))]
