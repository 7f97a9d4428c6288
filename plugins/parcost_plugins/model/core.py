"""The attention core: queries times keys, and probabilities times values; fused or not.

Every kind of attention uses it. Its heads are split over the tensor-parallel ranks. Its queries are
split over the context-parallel ranks, and attend to all keys.
"""

from __future__ import annotations

from collections.abc import Iterator

from parcost import Memory, Pass, Real, occurs, sum_counts
from parcost_plugins.model.rank import Rank
from parcost_plugins.physics.elementwise import DROPOUT, REORDERED, SOFTMAX, elementwise
from parcost_plugins.physics.partition import Counts
from parcost_plugins.physics.passes import SPLIT, LayerSpan
from parcost_plugins.vocabulary import FusedAttention, Gemm, ModelFlops, Stream
from parcost_plugins.vocabulary.operators import ATTENTION_CORE, CORE_PRODUCTS, WINDOWED_CORE

FUSED = "Dao 2023 (FlashAttention 2), section 3.1"


def flops(rank: Rank) -> ModelFlops:
    """Return the FLOPs of attention, excluding scores that causality, windows or documents mask."""
    model = rank.model
    met = sum(
        sum_counts(span.count) * rank.keys(windowed) for windowed, span in rank.attention_spans
    )
    return ModelFlops(
        name="attention core",
        per_token=2 * model.heads * (model.qk_dim + model.value_dim) * met,
        kind="attention",
        source="2 matrix products, each 2 a d FLOPs per attended token (a heads of size d)",
    )


def operators(rank: Rank) -> Iterator[Gemm | FusedAttention | Stream]:
    """Yield the attention core, as one kernel or as several."""
    return _separate_kernels(rank) if rank.writes_scores else _fused_kernels(rank)


def memory(rank: Rank) -> Iterator[Memory]:
    """Yield tensors saved for backward besides Q, K and V: the output, and the scores."""
    span = rank.attention_layers
    fused = not rank.writes_scores  # scores that are not kept have to be made again
    span = span.rerun_none(fused and rank.keeps("core"))
    precision = rank.training.precision
    shared = fused and precision.kept_core is not None
    if fused or rank.keeps_input("output"):  # a fused core reads its own output again
        yield from rank.saved_tensor(
            "attention output",
            "s b a v o / t" if shared else "s b a v q / t",
            span,
        )
    if not rank.writes_scores:
        if precision.narrow != "none" and not shared:
            # The projection keeps a narrow copy; the core reads what it wrote itself.
            yield from rank.saved_tensor(
                "attention output in the compute type",
                "q < e ? s b a v e / t : 0",
                span,
                source=FUSED,
            )
        yield from rank.saved_tensor(
            "softmax statistics",
            "4 s b a / t",
            span,
            freed=1.0,
            source=FUSED,
        )
        return
    text, span = "S s b a e / t", span.rerun_all(rank.reruns_core)
    yield from rank.saved_tensor("attention probabilities", text, span, freed=1.0)
    if rank.training.dropout:
        yield from rank.saved_tensor("attention dropout mask", "S s b a / t", span, freed=1.0)
        yield from rank.saved_tensor("attention probabilities after dropout", text, span, freed=1.0)


def _fused_kernels(rank: Rank) -> Iterator[FusedAttention]:
    """Yield one kernel per pass."""
    qk, value = rank.model.qk_dim, rank.model.value_dim
    keys = rank.heads if rank.model.is_latent else rank.core_kv_heads
    read = {"F": rank.heads * qk + keys * (qk + value), "B": rank.heads * value}
    for windowed, layers in rank.attention_spans:
        span = layers.rerun_none(rank.keeps("core")).rerun_all(rank.reruns_core)
        each = 2 * rank.heads * rank.keys(windowed) * rank.tokens
        passes: list[tuple[Pass, Counts]] = [("F", span.count), ("B", span.count)]
        if occurs(span.reruns):
            passes.append(("R", span.reruns))
        for pass_, count in passes:
            of_queries, of_values = CORE_PRODUCTS[pass_]
            yield FusedAttention(
                name="attention core in a window" if windowed else "attention core",
                flops=each * (of_queries * qk + of_values * value),
                pass_=pass_,
                count=count,
                windowed=windowed,
                operands=rank.tokens * read["B" if pass_ == "B" else "F"],
                host=WINDOWED_CORE if windowed else ATTENTION_CORE,
                source=FUSED,
            )


def _separate_kernels(rank: Rank) -> Iterator[Gemm | Stream]:
    """Yield the unfused attention core as separate kernels, which also compute masked scores."""
    span, e = rank.attention_layers.rerun_all(rank.reruns_core), rank.element
    scores = rank.training.sequence * rank.tokens * rank.heads
    yield from _products(rank, "F", span.count)
    if occurs(span.reruns):
        yield from _products(rank, "R", span.reruns)
    yield from elementwise("softmax", SOFTMAX[rank.fusion.softmax], scores, e, span)
    if rank.training.dropout:
        yield from elementwise("attention dropout", DROPOUT["eager"], scores, e, span)
    yield from _gradient_products(rank, span)
    # Heads come out one after another, and the layer behind reads them side by side.
    context = rank.tokens * rank.heads * rank.model.value_dim
    yield from elementwise("transpose of the attention output", REORDERED, context, e, span)


def _products(rank: Rank, pass_: Pass, count: Counts) -> Iterator[Gemm]:
    s, S = rank.sequence, rank.training.sequence
    qk, value = rank.model.qk_dim, rank.model.value_dim
    yield _head_product(rank, "attention scores", (s, S, qk), pass_, count)
    yield _head_product(rank, "attention context", (s, value, S), pass_, count)


def _gradient_products(rank: Rank, span: LayerSpan) -> Iterator[Gemm]:
    s, S = rank.sequence, rank.training.sequence
    qk, value, count = rank.model.qk_dim, rank.model.value_dim, span.count
    yield _head_product(rank, "attention probabilities' gradient", (s, S, value), "B", count)
    yield _head_product(rank, "values' gradient", (S, value, s), "B", count)
    yield _head_product(rank, "queries' gradient", (s, qk, S), "B", count)
    yield _head_product(rank, "keys' gradient", (S, qk, s), "B", count)


def _head_product(
    rank: Rank, name: str, shape: tuple[Real, Real, Real], pass_: Pass, count: Counts
) -> Gemm:
    m, n, k = shape
    return Gemm(
        name=name,
        m=m,
        n=n,
        k=k,
        pass_=pass_,
        count=count,
        batch=rank.training.micro_batch * rank.heads,
        role="attention",
        source=SPLIT,
    )
