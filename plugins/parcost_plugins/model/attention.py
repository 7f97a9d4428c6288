"""Attention: multi-head, grouped-query and multi-query, fused or not.

Heads are split over the tensor-parallel ranks. Where there are more ranks than key and
value heads, each rank holds a copy of one, with its parameters and its products.
"""

from __future__ import annotations

from collections.abc import Iterator

from parcost import Check, Memory, Pass, Real, Study, hookimpl
from parcost_plugins.model.rank import FP32, MASK, SPLIT, Rank, linear, rank_of, stream
from parcost_plugins.vocabulary import (
    FusedAttention,
    Gemm,
    ModelFlops,
    Parameters,
    Stream,
    Training,
)
from parcost_plugins.vocabulary.operators import ATTENTION_COLUMNS, ATTENTION_ROWS

# Forward multiplies twice: queries by keys, and probabilities by values. Backward has two
# products for the gradient of each, and makes the probabilities again, as it kept none.
FUSED_BACKWARD = 5 / 2
FUSED = "Dao 2023 (FlashAttention 2), section 3.1"


@hookimpl
def checks(study: Study) -> list[Check]:
    """Require that every key and value head serves as many query heads."""
    model = study[Training].model
    return [
        Check(
            id="kv-heads-share",
            holds=model.heads % model.kv_heads == 0,
            subject=f"{vars(model)['label']}.kv_heads",
            message="{heads} heads do not share {kv} KV heads evenly",
            inputs={"heads": model.heads, "kv": model.kv_heads},
        )
    ]


@hookimpl
def parameters(study: Study) -> Iterator[Parameters]:
    """Return the projections and their biases."""
    rank = rank_of(study)
    model, count = rank.model, rank.layers
    h, d = model.hidden, model.head_dim
    columns, all_columns = _columns(rank), (model.heads + 2 * model.kv_heads) * d
    yield Parameters(
        name="QKV projection",
        elements=h * columns,
        total=h * all_columns,
        count=count,
        source=SPLIT,
    )
    if model.biases or model.qkv_biases:
        yield Parameters(
            name="QKV biases", elements=columns, total=all_columns, count=count, source=SPLIT
        )
    yield Parameters(
        name="attention output projection",
        elements=h * rank.heads * d,
        total=h * model.heads * d,
        count=count,
        source=SPLIT,
    )
    if model.biases:
        yield Parameters(
            name="attention output bias",
            elements=h,
            total=h,
            count=count,
            replicated=True,
            source=SPLIT,
        )


@hookimpl
def flops(study: Study) -> list[ModelFlops]:
    """Return the FLOPs of the projections, and of a core that skips what causality masks."""
    rank = rank_of(study)
    model = rank.model
    projected = (2 * model.heads + 2 * model.kv_heads) * model.head_dim
    core = 2 * model.heads * model.head_dim * rank.training.sequence
    return [
        ModelFlops(
            name="attention projections",
            per_token=2 * model.layers * model.hidden * projected,
            kind="matmul",
            source="2 FLOPs per matrix parameter",
        ),
        ModelFlops(
            name="attention core",
            per_token=model.layers * core,
            kind="attention",
            source="2 products of 2 a d s FLOPs, half of them masked",
        ),
    ]


@hookimpl
def operators(study: Study) -> Iterator[Gemm | FusedAttention | Stream]:
    """Return what attention runs: projections, rotation, core."""
    rank = rank_of(study)
    model, count, again = rank.model, rank.layers, rank.layer_again
    h, d = model.hidden, model.head_dim
    yield from linear(
        "QKV projection",
        rank.tokens,
        _columns(rank),
        h,
        count,
        again=again,
        host=ATTENTION_COLUMNS,
    )
    if not model.positions:
        turned = 2 * rank.element * (rank.heads + rank.kv_heads) * d * rank.tokens
        yield from stream("rotary embedding", turned, turned, count, again=again)
    yield from _fused(rank) if rank.training.flash_attention else _unfused(rank)
    yield from linear(
        "attention output projection",
        rank.tokens,
        h,
        rank.heads * d,
        count,
        again=again,
        host=ATTENTION_ROWS,
    )


@hookimpl
def memory(study: Study) -> Iterator[Memory]:
    """Return what backward needs: the input, Q, K, V, the output, and what the core keeps."""
    rank = rank_of(study)
    e, tokens, head, again = rank.element, rank.tokens, rank.model.head_dim, rank.layer_again
    residual, kept = f"{rank.residual_text} q", rank.kept_element
    queries, keys = e * tokens * rank.heads * head, e * tokens * rank.kv_heads * head
    yield rank.saved("attention input", kept * rank.residual, residual, "s b h t q", again=again)
    yield rank.saved("queries", queries, "s b a d e / t", "s b a d t e", again=again)
    yield rank.saved("keys", keys, "s b k d e / t", "s b k d t e", again=again)
    yield rank.saved("values", keys, "s b k d e / t", "s b k d t e", again=again)
    yield rank.saved(
        "attention output",
        kept * tokens * rank.heads * head,
        "s b a d q / t",
        "s b a d t q",
        again=again,
    )
    rows = tokens * rank.heads
    if rank.training.flash_attention:
        yield rank.saved("softmax statistics", FP32 * rows, "4 s b a / t", "s b a t", again=again)
        return
    scores, again = rows * rank.training.sequence, rank.core_again
    letters = "s b a t e"
    yield rank.saved("attention probabilities", e * scores, "s s b a e / t", letters, again=again)
    if rank.training.dropout:
        yield rank.saved(
            "attention dropout mask", MASK * scores, "s s b a / t", "s b a t", again=again
        )
        yield rank.saved(
            "attention probabilities after dropout",
            e * scores,
            "s s b a e / t",
            letters,
            again=again,
        )


def _columns(rank: Rank) -> Real:
    """Return the outputs of the QKV projection on this rank."""
    return (rank.heads + 2 * rank.kv_heads) * rank.model.head_dim


def _fused(rank: Rank) -> Iterator[FusedAttention]:
    sequence, count = rank.training.sequence, rank.layers
    forward = 2 * rank.heads * rank.model.head_dim * sequence * rank.tokens
    passes: list[tuple[Pass, Real]] = [("F", forward), ("B", FUSED_BACKWARD * forward)]
    if rank.core_again:
        passes.append(("R", forward))
    for pass_, flops_ in passes:
        yield FusedAttention(
            name="attention core", flops=flops_, pass_=pass_, count=count, source=FUSED
        )


def _unfused(rank: Rank) -> Iterator[Gemm | Stream]:
    """Yield the core as separate kernels, which compute what causality masks as well."""
    again, count, e = rank.core_again, rank.layers, rank.element
    scores = rank.training.sequence * rank.tokens * rank.heads
    yield from _products(rank, "F")
    if again:
        yield from _products(rank, "R")
    yield from stream("softmax", 2 * e * scores, 3 * e * scores, count, again=again)
    if rank.training.dropout:
        moved = (2 * e + MASK) * scores
        yield from stream("attention dropout", moved, moved, count, again=again)
    yield from _gradient_products(rank)


def _products(rank: Rank, pass_: Pass) -> Iterator[Gemm]:
    s, d = rank.training.sequence, rank.model.head_dim
    yield _per_head(rank, "attention scores", s, s, d, pass_)
    yield _per_head(rank, "attention context", s, d, s, pass_)


def _gradient_products(rank: Rank) -> Iterator[Gemm]:
    s, d = rank.training.sequence, rank.model.head_dim
    yield _per_head(rank, "attention probabilities' gradient", s, s, d, "B")
    yield _per_head(rank, "values' gradient", s, d, s, "B")
    yield _per_head(rank, "queries' gradient", s, d, s, "B")
    yield _per_head(rank, "keys' gradient", s, d, s, "B")


def _per_head(rank: Rank, name: str, m: Real, n: Real, k: Real, pass_: Pass) -> Gemm:
    return Gemm(
        name=name,
        m=m,
        n=n,
        k=k,
        pass_=pass_,
        count=rank.layers,
        batch=rank.training.micro_batch * rank.heads,
        source=SPLIT,
    )
