"""The embedding: a row per token, with rows split over the tensor-parallel ranks.

A rank looks up the tokens of its rows and writes zeros for the others. So it writes the whole
micro-batch, independent of its number of rows. Instead of a lookup, a framework may multiply
one-hot rows by its shard of the table.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from parcost import Memory, Pass, Real, Study, hookimpl
from parcost_plugins.model.rank import KEPT, Rank, rank_of
from parcost_plugins.physics import on_first
from parcost_plugins.physics.elementwise import DROPOUT, FILLED, LOOKUP, SCATTER, traffic_stream
from parcost_plugins.physics.passes import SPLIT
from parcost_plugins.vocabulary import Gemm, Parameters, Stream
from parcost_plugins.vocabulary.operators import ENDS


@hookimpl
def parameters(study: Study) -> Iterator[Parameters]:
    """Return the rows of the vocabulary, and learned positions if there are any."""
    rank = rank_of(study)
    h, count = rank.model.hidden, on_first(study)
    if rank.model.is_nominal:
        return
    yield Parameters(
        name="embedding",
        elements=rank.vocabulary * h,
        total=rank.model.vocabulary * h,
        count=count,
        place="before",
        source=SPLIT,
    )
    if rank.model.positions:
        learned = rank.model.positions * h
        yield Parameters(
            name="position embedding",
            elements=learned,
            total=learned,
            count=count,
            replicated=True,
            place="before",
            source="position embeddings are replicated on every rank",
        )


@hookimpl
def operators(study: Study) -> Iterator[Stream | Gemm]:
    """Return the lookup and the scatter of its gradient, or the GEMMs that replace them."""
    rank = rank_of(study)
    if rank.model.is_nominal:
        return
    if rank.training.framework.embedding == "product":
        yield from _products(rank, on_first(study))
    else:
        yield from _lookup(rank, on_first(study))
    if rank.training.dropout:
        forward, backward = DROPOUT["eager"]
        shard, count = (rank.residual_elements, rank.element), on_first(study)
        yield traffic_stream("embedding dropout", forward, *shard, "F", count)
        yield traffic_stream("embedding dropout", backward, *shard, "W", count)


def _products(rank: Rank, count: Sequence[float]) -> Iterator[Stream | Gemm]:
    """Yield the one-hot rows, and their GEMMs with the table and the gradient."""
    rows, columns, tokens = rank.vocabulary, rank.model.hidden, rank.tokens
    yield traffic_stream("one-hot rows", FILLED, tokens * rows, rank.element, "F", count)
    passes: list[tuple[Pass, Real, Real]] = [("F", tokens, rows)]
    if rank.trains_model:
        passes.append(("W", rows, tokens))
    for pass_, m, k in passes:
        yield Gemm(
            name="embedding", m=m, n=columns, k=k, pass_=pass_, count=count, wide=True, source=SPLIT
        )


def _lookup(rank: Rank, count: Sequence[float]) -> Iterator[Stream]:
    whole = rank.tokens * rank.model.hidden, rank.residual_element
    yield traffic_stream("embedding", LOOKUP, *whole, "F", count)
    if rank.trains_model:
        yield traffic_stream("embedding", SCATTER, *whole, "W", count)
        # The gradient of a table is as large as the table, and is made of zeros first.
        table = (rank.vocabulary * rank.model.hidden, rank.residual_element)
        yield traffic_stream("zero fill of the embedding gradient", FILLED, *table, "W", count)


@hookimpl
def memory(study: Study) -> Iterator[Memory]:
    """Return the token ids and the dropout mask; the output is the first layer's input."""
    rank = rank_of(study)
    if rank.model.is_nominal:
        return
    count, ids = on_first(study), rank.formula("8 s b", source=KEPT)
    yield rank.kept_memory("token ids", ids, count, tag=ENDS)
    if rank.training.framework.embedding == "product":
        rows = rank.formula("s b V e / t", source=KEPT)
        yield rank.kept_memory("one-hot rows", rows, count, tag=ENDS)
    if rank.training.dropout:
        mask = rank.formula(rank.residual_text)
        yield rank.kept_memory("embedding dropout mask", mask, count, freed=1.0, tag=ENDS)
