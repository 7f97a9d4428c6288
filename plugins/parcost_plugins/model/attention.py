"""Attention: multi-head, grouped-query and multi-query.

Heads are split over the tensor-parallel ranks. If there are more ranks than KV heads, each rank
holds a copy of one head.
"""

from __future__ import annotations

from collections.abc import Iterator

from parcost import Check, Memory, Real, Study, block_name, hookimpl, sum_counts
from parcost.numeric import any_of
from parcost_plugins.model import core
from parcost_plugins.model.norms import input_casts
from parcost_plugins.model.rank import KEPT, Rank, rank_of
from parcost_plugins.model.rulebook import RULES
from parcost_plugins.physics.elementwise import (
    ADDED,
    APART,
    COPIED,
    GATED,
    NORMS,
    ROTARY,
    SUMMED,
    elementwise,
    repetition,
    traffic_stream,
)
from parcost_plugins.physics.passes import SPLIT, linear
from parcost_plugins.vocabulary import (
    FusedAttention,
    Gemm,
    ModelFlops,
    Parameters,
    Stream,
    Training,
)
from parcost_plugins.vocabulary.operators import ATTENTION_COLUMNS, ATTENTION_ROWS


@hookimpl
def checks(study: Study) -> list[Check]:
    """Require that the query heads are divisible by the KV heads."""
    model = study[Training].model
    return [
        RULES.check(
            "kv-heads-share",
            model.heads % model.kv_heads == 0,
            f"{block_name(model)}.kv_heads",
            heads=model.heads,
            kv=model.kv_heads,
        )
    ]


@hookimpl
def parameters(study: Study) -> Iterator[Parameters]:
    """Return the projections and their biases."""
    rank = rank_of(study)
    model, count = rank.model, rank.attention_layers.count
    if model.is_latent or model.is_nominal:
        return
    h, d = model.hidden, model.head_dim
    gated = (1 + model.output_gate) * model.heads
    columns, all_columns = _columns(rank), (gated + 2 * model.kv_heads) * d
    yield Parameters(
        name="QKV projection",
        elements=h * columns,
        total=h * all_columns,
        count=count,
        linear=True,
        matrices=3.0 if rank.fusion.separate_projections else 1.0,
        source=SPLIT,
    )
    if model.has_qkv_biases:
        yield Parameters(
            name="QKV biases",
            elements=columns,
            total=all_columns,
            count=count,
            matrices=0.0,
            source=SPLIT,
        )
    yield Parameters(
        name="attention output projection",
        elements=h * rank.heads * d,
        total=h * model.heads * d,
        count=count,
        linear=True,
        source=SPLIT,
    )
    if model.has_output_bias:
        yield _unsharded_parameters("attention output bias", h, rank)
    if model.qk_norm and model.qk_norm_whole:
        yield Parameters(
            name="query and key norms",
            elements=(rank.heads + rank.kv_heads) * d,
            total=(model.heads + model.kv_heads) * d,
            count=count,
            matrices=0.0,
            source=SPLIT,
        )
    elif model.qk_norm:
        yield _unsharded_parameters("query and key norms", 2 * d, rank)
    if model.sinks:
        yield Parameters(
            name="attention sinks",
            elements=rank.heads,
            total=model.heads,
            count=count,
            matrices=0.0,
            source="one value per head, divided equally over the ranks",
        )


@hookimpl
def flops(study: Study) -> Iterator[ModelFlops]:
    """Return the FLOPs of the projections and of the core."""
    rank = rank_of(study)
    model = rank.model
    if model.is_latent or model.is_nominal:
        return
    projected = (2 * model.heads + 2 * model.kv_heads) * model.head_dim
    projected = projected + model.output_gate * model.heads * model.head_dim
    yield ModelFlops(
        name="attention projections",
        per_token=2 * sum_counts(rank.attention_layers.count) * model.hidden * projected,
        kind="matmul",
        source="2 FLOPs per matrix parameter",
    )
    yield core.flops(rank)


@hookimpl
def operators(study: Study) -> Iterator[Gemm | FusedAttention | Stream]:
    """Return the operators of attention: projections, rotary embedding, core."""
    rank = rank_of(study)
    model, span, tokens = rank.model, rank.attention_layers, rank.tokens
    if model.is_latent or model.is_nominal:
        return
    h, d = model.hidden, model.head_dim
    made = [size for part, size in _projections(rank) if not rank.keeps(part)]
    yield from linear(
        "QKV projection",
        tokens,
        _columns(rank),
        h,
        span.rerun_none(not made),
        host=ATTENTION_COLUMNS,
        again=sum(made, 0.0),
        trained=rank.trains_model,
    )
    products = 3 if rank.fusion.separate_projections else 1
    yield from input_casts(rank, "QKV projection", products, span.rerun_none(not made))
    fusion, turned = rank.fusion, (rank.heads + rank.kv_heads) * d * tokens
    if model.qk_norm:
        norm = NORMS[fusion.norm]
        yield from elementwise("query and key norms", norm, turned, rank.element, span, times=2)
    if not model.positions and not model.alibi:
        rotary = ROTARY[fusion.rotary]
        yield from elementwise("rotary embedding", rotary, turned, rank.element, span)
    if any_of(rank.core_kv_heads > rank.kv_heads):
        passes = repetition(rank.core_kv_heads / rank.kv_heads)
        both = 2 * rank.kv_heads * d * tokens
        name = "keys and values, repeated"
        yield from elementwise(name, passes, both, rank.element, span, times=2)
    yield from core.operators(rank)
    if model.output_gate:
        gate, gates = GATED[fusion.activation], tokens * rank.heads * d
        yield from elementwise("output gate", gate, gates, rank.element, span)
    yield from linear(
        "attention output projection",
        tokens,
        h,
        rank.heads * d,
        span.rerun_none(rank.keeps("output")),
        host=ATTENTION_ROWS,
        trained=rank.trains_model,
    )
    yield from _gradient_sums(rank)


def _gradient_sums(rank: Rank) -> Iterator[Stream]:
    """Yield the backward kernels that concatenate or sum gradients: of Q, K and V, of biases."""
    model, span, tokens, h = rank.model, rank.attention_layers, rank.tokens, rank.model.hidden
    if rank.fusion.separate_projections:
        # Those of queries and keys, and then those of values.
        added = ADDED._replace(kernels=2, tensors=2 * ADDED.tensors)
        yield traffic_stream(
            "sum of the gradients of queries, keys and values",
            added,
            tokens * h,
            rank.residual_element,
            "B",
            span.count,
        )
    else:
        # The core makes three gradients, and the layer ahead of it has one output.
        yield traffic_stream(
            "concatenation of the gradients of queries, keys and values",
            COPIED,
            tokens * _columns(rank),
            rank.element,
            "B",
            span.count,
        )
    reduced = [tokens * _columns(rank)] if model.has_qkv_biases else []
    if model.has_output_bias:
        reduced.append(rank.residual_elements)
    if reduced and rank.trains_model:
        yield traffic_stream(
            "attention bias gradients",
            SUMMED,
            sum(reduced, 0.0),
            rank.element,
            "B",
            span.count,
            times=len(reduced),
        )


@hookimpl
def memory(study: Study) -> Iterator[Memory]:
    """Return tensors saved for backward: the input, Q, K, V, and the tensors of the core."""
    rank = rank_of(study)
    if rank.model.is_latent or rank.model.is_nominal:
        return
    span = rank.attention_layers
    if rank.keeps_input("query", "key", "value"):
        again = rank.recompute.norms or rank.recomputes_outputs
        yield from rank.saved_input(
            "attention input", span.rerun_all(again), "query", "key", "value"
        )
    norms = span.rerun_all(rank.recompute.norms or rank.recomputes_outputs)
    yield from rank.frozen_norm_output("attention norm output", norms, "query", "key", "value")
    for part, _ in _projections(rank):
        kept = rank.keeps(part)  # the output of its product
        copied = rank.training.framework.repeats_keys and not (kept or rank.recomputes_outputs)
        symbol = "a" if part == "queries" or copied else "k"
        yield from rank.saved_tensor(part, f"s b {symbol} d e / t", span.rerun_none(kept))
    if rank.model.qk_norm:
        # Of what the norms make only the rotated tensors are kept: those above.
        yield from rank.saved_tensor(
            "inputs of query and key norms",
            f"s b (a + k) d {rank.normed_element_text} / t",
            span,
            source=KEPT,
        )
    yield from core.memory(rank)
    if rank.model.output_gate:
        yield from rank.saved_tensor("output gates", "s b a d e / t", span, source=KEPT)
        if rank.fusion.activation in APART:  # the norm's view of queries holds the gates as well
            name = "output gates after the sigmoid"
            yield from rank.saved_tensor(name, "s b a d e / t", span, source=KEPT)
        # The projection keeps the gated output, and the gate what it multiplies, which is there
        # already if the projection keeps a narrow copy.
        there = not rank.writes_scores and rank.training.precision.narrow != "none"
        text = "q < e ? 0 : s b a v e / t" if there else "s b a v e / t"
        yield from rank.saved_tensor("attention output before its gate", text, span, source=KEPT)


def _projections(rank: Rank) -> list[tuple[str, Real]]:
    """Return the outputs of the QKV projection on this rank, each with its width."""
    d = rank.model.head_dim
    return [
        ("queries", (1 + rank.model.output_gate) * rank.heads * d),
        ("keys", rank.kv_heads * d),
        ("values", rank.kv_heads * d),
    ]


def _columns(rank: Rank) -> Real:
    """Return the output size of the QKV projection on this rank."""
    queries = (1 + rank.model.output_gate) * rank.heads
    return (queries + 2 * rank.kv_heads) * rank.model.head_dim


def _unsharded_parameters(name: str, elements: Real, rank: Rank) -> Parameters:
    return Parameters(
        name=name,
        elements=elements,
        total=elements,
        count=rank.attention_layers.count,
        replicated=True,
        source="replicated on every rank",
    )
