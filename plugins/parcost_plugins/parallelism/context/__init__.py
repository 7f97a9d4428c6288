"""Context parallelism: sequence shards, and the exchange of keys and values.

All work per token is divided by the degree. Attention is not: each query attends to the keys of the
whole sequence. ``context.algorithm`` names the method of exchange.

- ``ring``: each rank sends blocks of keys and values to the next rank while attention works on the
  previous block. The messages are hidden if computing a block takes longer than sending it.
- ``all_gather``: every rank gathers all keys and values of a layer first, without overlap.
- ``ulysses``: an all-to-all gives each rank the whole sequence for some of the heads; another one
  returns the outputs.
- ``hybrid``: ``ulysses`` inside of groups, and a ring between them.
"""

from __future__ import annotations

from collections.abc import Iterator

from parcost import Check, Figure, Memory, Outcome, Rulebook, Section, Study, Work, hookimpl
from parcost_plugins.parallelism.context.exchange import exchange, is_single_rank
from parcost_plugins.parallelism.context.rulebook import RULES
from parcost_plugins.physics.kernel_times import stream_work


@hookimpl
def terms(study: Study) -> Iterator[Work]:
    """Estimate the exchange of context parallelism, and the imbalance of causal attention."""
    if is_single_rank(study):
        return
    from parcost_plugins.parallelism.context import all_to_all, blocks, gather, ring

    found = exchange(study)
    if found.runs_blocks:
        yield from stream_work(blocks.sums(found), study)
    if found.kind == "all_gather" and found.runs_blocks:
        yield from blocks.gather_work(found)
    elif found.kind == "all_gather":
        yield from gather.gather_work(found)
    else:
        yield from all_to_all.all_to_all_work(found)
        yield from ring.ring_work(found)
    yield from ring.imbalance(found)


@hookimpl
def memory(study: Study) -> Iterator[Memory]:
    """Return the communication buffers of keys and values."""
    if not is_single_rank(study):
        from parcost_plugins.parallelism.context import buffers

        yield from buffers.exchange_buffers(exchange(study))


@hookimpl
def checks(study: Study) -> Iterator[Check]:
    """Require that sequence, heads and ranks are divisible, and that the algorithm can run."""
    from parcost_plugins.parallelism.context import rules

    yield from rules.words(study)
    if not is_single_rank(study):
        yield from rules.splits(study)
        yield from rules.placement(study)


@hookimpl(specname="figures")
def details(study: Study, outcome: Outcome, brief: bool) -> Iterator[Figure]:
    """Return block sizes, volumes, times, and the break-even length of a ring."""
    if brief:
        return
    from parcost_plugins.parallelism.context import figures

    yield figures.ranks(study)
    yield from figures.traffic(exchange(study), outcome)


@hookimpl
def sections(study: Study, outcome: Outcome) -> list[Section]:
    """Return whether the exchange is hidden, and the number of tokens from which it would be."""
    if is_single_rank(study):
        return []
    from parcost_plugins.parallelism.context import figures

    return [figures.regime(exchange(study), outcome)]


@hookimpl
def rulebooks() -> list[Rulebook]:
    """Return the rulebook of this package, with a page for each rule."""
    return [RULES]
