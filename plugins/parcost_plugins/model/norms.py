"""Norms, and the residual stream: additions and dropout.

All operate on each token separately. So sequence parallelism shards them over the tensor-parallel
group; without it, every rank does and stores the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from operator import sub

from parcost import Memory, Real, Study, hookimpl, map_counts, occurs
from parcost.numeric import any_of
from parcost_plugins.model.rank import KEPT, UNTIL_LAYERS, Rank, rank_of
from parcost_plugins.physics import on_first, on_last
from parcost_plugins.physics.elementwise import (
    CAST,
    DROPOUT,
    elementwise,
    norm_passes,
    residual_passes,
)
from parcost_plugins.physics.partition import before_last
from parcost_plugins.physics.passes import LayerSpan, single_run
from parcost_plugins.physics.run_choices import partitions_outputs
from parcost_plugins.vocabulary import Parameters, Stream
from parcost_plugins.vocabulary.operators import ENDS


@hookimpl
def parameters(study: Study) -> Iterator[Parameters]:
    """Return the gains and LayerNorm biases of all norms in a layer and at the ends of the
    model.
    """
    rank = rank_of(study)
    model = rank.model
    if model.is_nominal:
        return
    one = norm_parameters(rank)
    if model.norms:
        yield Parameters(
            name="layer norms",
            elements=model.norms * one,
            total=model.norms * one,
            count=rank.layers,
            replicated=True,
            source=_WHOLE,
        )
    if model.embedding_norm:
        yield Parameters(
            name="embedding norm",
            elements=one,
            total=one,
            count=on_first(study),
            replicated=True,
            place="before",
            source=_WHOLE,
        )
    yield Parameters(
        name="final norm",
        elements=one,
        total=one,
        count=on_last(study),
        replicated=True,
        place="after",
        source=_WHOLE,
    )


@hookimpl
def operators(study: Study) -> Iterator[Stream]:
    """Return the norms, and the residual additions with their dropout."""
    rank = rank_of(study)
    model, span = rank.model, rank.all_layers
    if model.is_nominal:
        return
    twice, size = span.times(2), (rank.residual_elements, rank.residual_element)
    norm = norm_passes(rank.fusion.norm, rank.is_residual_wide)
    if model.norms:
        norms = span.times(model.norms).rerun_all(rank.recompute.norms)
        yield from elementwise("layer norms", norm, *size, norms)
    if model.embedding_norm:
        yield from elementwise("embedding norm", norm, *size, single_run(on_first(study)))
    yield from elementwise("final norm", norm, *size, single_run(on_last(study)))
    again = span.reruns if rank.stops_early else twice.reruns
    size = (rank.residual_elements, rank.element)
    added = residual_passes(rank.is_residual_wide)
    yield from elementwise("residual additions", added, *size, LayerSpan(twice.count, again))
    if rank.training.dropout:
        dropout = DROPOUT[rank.fusion.dropout]
        yield from elementwise("residual dropout", dropout, *size, twice)


@hookimpl
def memory(study: Study) -> Iterator[Memory]:
    """Return the inputs of the norms and the dropout masks.

    The input of a layer's first norm is the layer's input, which full recomputation keeps. If
    attention and MLP both read it (parallel residual), there is no second norm input.
    """
    rank = rank_of(study)
    model = rank.model
    if model.is_nominal:
        return
    text, span = rank.residual_text, rank.all_layers
    formula = rank.formula(f"{text} z")
    # A norm that keeps its input in fp32 casts it first: no operator reads the narrower one again.
    again = rank.recompute.norms or rank.recomputes_outputs
    casts = rank.fusion.norm == "composite" and bool(model.norms) and not again
    read = map_counts(sub, span.count, span.kept_count) if casts else span.count
    if occurs(read):
        yield rank.kept_memory("layer input", formula, read)
    if not (model.parallel_residual or casts):
        yield from rank.saved_tensor(
            "MLP norm input", f"{text} z", span.rerun_none(rank.keeps("output"))
        )
    if model.norms > 2 and not casts:
        inputs = model.norms - 2
        yield from rank.saved_tensor(
            "inputs of norms after attention and MLP",
            f"{inputs} {text} z",
            span,
            source=KEPT,
        )
    if rank.training.framework.keeps_stage_outputs:
        share = "s b h / t" if partitions_outputs(study) else text
        sent = rank.formula(f"{share} z", source=KEPT)
        yield rank.kept_memory("stage output", sent, before_last(study), freed=1.0, tag=ENDS)
    if rank.fusion.norm == "composite" and model.norms:
        # The square and the product read the input in fp32, the gain what it multiplies.
        yield from rank.saved_tensor(
            "norm inputs in fp32 and normed values",
            f"{model.norms} {text} (4 + z)",
            span.rerun_all(again),
            source=KEPT,
        )
    if rank.training.dropout:
        yield from rank.saved_tensor("residual dropout masks", f"2 {text}", span, freed=1.0)
    if model.embedding_norm:
        behind = rank.formula(f"{text} z", source=KEPT)
        yield rank.kept_memory("embedding norm input", behind, on_first(study), tag=ENDS)
    yield rank.kept_memory(
        "final norm input", formula, on_last(study), freed=1.0, moments=UNTIL_LAYERS, tag=ENDS
    )


def input_casts(rank: Rank, name: str, products: float, span: LayerSpan) -> Iterator[Stream]:
    """Yield the casts of a normed fp32 input to the type of GEMMs, one for each GEMM."""
    if any_of(rank.casts_inputs > 0):
        times, whole = rank.casts_inputs * products, rank.tokens * rank.model.hidden
        name = f"{name}, cast of input"
        yield from elementwise(name, CAST, times * whole, rank.element, span, times=times)


def norm_parameters(rank: Rank) -> Real:
    """Return the parameters of one norm."""
    return rank.model.hidden * rank.model.norm_vectors


_WHOLE = "norm weights are replicated on every rank"
