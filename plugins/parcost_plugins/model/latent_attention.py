"""Multi-head latent attention (MLA): queries, keys and values through a low-rank projection.

The down projections are not split over the tensor-parallel ranks. With sequence parallelism each
rank projects its own tokens down, and the ranks gather the compressed tensors. Without it, each
rank projects all tokens. Every rank projects its own heads up. Training computes full keys and
values, because absorbing the projections into the queries helps only in decoding.

Two GEMMs project down: one for queries, one for keys and values. In low precision, each casts the
input and saves its own copy; in 8 bits both copies have 2 s b h bytes. Backward adds both gradients
of the input. ``--mla-down-proj-fusion`` of Megatron-Core fuses them into one GEMM.
"""

from __future__ import annotations

from collections.abc import Iterator

from attrs import evolve

from parcost import Memory, Real, Study, hookimpl, sum_counts
from parcost.numeric import any_of, where
from parcost_plugins.model import core
from parcost_plugins.model.rank import KEPT, Rank, rank_of
from parcost_plugins.physics.context import latent_blocks
from parcost_plugins.physics.elementwise import (
    ADDED,
    NORMS,
    REORDERED,
    ROTARY,
    elementwise,
    traffic_stream,
)
from parcost_plugins.physics.passes import SPLIT, LayerSpan, linear
from parcost_plugins.vocabulary import (
    FusedAttention,
    Gemm,
    KernelChoice,
    ModelFlops,
    Parameters,
    Stream,
)
from parcost_plugins.vocabulary.operators import ATTENTION_COLUMNS, ATTENTION_ROWS

MLA = "DeepSeek-AI 2024 (DeepSeek-V2), section 2.1"
WAIST = "Megatron-Core, multi_latent_attention.py: every rank projects its own tokens down"


@hookimpl
def parameters(study: Study) -> Iterator[Parameters]:
    """Return the parameters of the down, up and output projections, and of the norms
    between them.
    """
    rank = rank_of(study)
    model, t = rank.model, rank.layout.tp
    if not model.is_latent or model.is_nominal:
        return
    h, down = model.hidden, model.kv_lora + model.rope_dim
    if model.q_lora:
        yield _shard_parameters("MLA query down projection", rank, h * model.q_lora)
    yield _shard_parameters("MLA query up projection", rank, _inner(rank) * _queries(rank), t)
    yield _shard_parameters("MLA KV down projection", rank, h * down)
    yield _shard_parameters("MLA KV up projection", rank, model.kv_lora * _keys(rank), t)
    yield _shard_parameters("attention output projection", rank, h * model.heads * model.v_dim, t)
    yield _shard_parameters("MLA norms", rank, model.q_lora + model.kv_lora, linear=False)


@hookimpl
def flops(study: Study) -> Iterator[ModelFlops]:
    """Return the FLOPs of the projections and of the core."""
    rank = rank_of(study)
    model, h = rank.model, rank.model.hidden
    if not model.is_latent or model.is_nominal:
        return
    matrices = (
        h * (model.q_lora + model.kv_lora + model.rope_dim)
        + _inner(rank) * _queries(rank)
        + model.kv_lora * _keys(rank)
        + h * model.heads * model.v_dim
    )
    yield ModelFlops(
        name="attention projections",
        per_token=2 * sum_counts(rank.layers) * matrices,
        kind="matmul",
        source="2 FLOPs per matrix parameter",
    )
    yield core.flops(rank)


@hookimpl
def operators(study: Study) -> Iterator[Gemm | FusedAttention | Stream]:
    """Return the operators of attention: projections, norms, rotary embedding, core."""
    rank = rank_of(study)
    model, tokens, t, span = rank.model, rank.tokens, rank.layout.tp, rank.all_layers
    if not model.is_latent or model.is_nominal:
        return
    h, e, up = model.hidden, rank.element, span.rerun_all(rank.recompute.up_projection)
    own = tokens / rank.residual_shards
    down = {"query": model.q_lora, "KV": model.kv_lora + model.rope_dim}
    if _fuses_down(rank):
        down = {"query and KV": sum(down.values())}
    for part, columns in down.items():
        if columns:
            name = f"MLA {part} down projection"
            trained = rank.trains_model
            yield from linear(name, own, columns, h, span, source=WAIST, trained=trained)
    if not _fuses_down(rank):
        name = "sum of the gradients of queries, keys and values"
        yield traffic_stream(name, ADDED, own * h, rank.residual_element, "B", span.count)
    normed, norms = (model.q_lora + model.kv_lora) * own, 2 if model.q_lora else 1
    norm = NORMS[rank.fusion.norm]
    yield from elementwise("MLA norms", norm, normed, e, up, times=norms)
    yield from linear(
        "MLA query up projection",
        tokens,
        _queries(rank) / t,
        _inner(rank),
        up,
        host=ATTENTION_COLUMNS,
        source=MLA,
        trained=rank.trains_model,
    )
    yield from _keys_and_values(rank, up, latent_blocks(study))
    turned = (rank.heads + 1) * model.rope_dim * tokens
    yield from elementwise("rotary embedding", ROTARY[rank.fusion.rotary], turned, e, up)
    # Of the product behind keys and values each head's are copied apart; each key gets the one part
    # with positions as well. Megatron-LM, core/fusions/fused_mla_yarn_rope_apply.py: rotary_fwd_kv.
    apart = model.nope_dim + model.v_dim + model.rope_dim / 2  # the latter is written alone
    yield from elementwise("keys and values, split", REORDERED, tokens * rank.heads * apart, e, up)
    yield from core.operators(rank)
    yield from linear(
        "attention output projection",
        tokens,
        h,
        rank.heads * model.v_dim,
        span,
        host=ATTENTION_ROWS,
        trained=rank.trains_model,
    )


def _keys_and_values(rank: Rank, up: LayerSpan, blocks: Real) -> Iterator[Gemm]:
    """Yield the GEMMs that compute keys and values of *blocks* blocks, each as long as this rank's
    sequence shard.

    If ranks exchange compressed tensors, every rank also projects received blocks. It projects them
    again in backward if only the compressed tensor was saved. Backward of the projection runs for
    each block before its gradient is sent. Its weight gradients are accumulated.
    """
    for product in linear(
        "MLA KV up projection",
        blocks * rank.tokens,
        _keys(rank) / rank.layout.tp,
        rank.model.kv_lora,
        up,
        host=ATTENTION_COLUMNS,
        source=MLA,
        trained=rank.trains_model,
    ):
        if product.pass_ == "B":
            yield evolve(product, m=(2 * blocks - 1) * rank.tokens)
        else:
            yield product


@hookimpl
def memory(study: Study) -> Iterator[Memory]:
    """Return tensors saved for backward: the compressed ones, and the heads unless recomputed."""
    rank = rank_of(study)
    model = rank.model
    if not model.is_latent or model.is_nominal:
        return
    span = rank.all_layers
    up = span.rerun_all(rank.recompute.up_projection)
    again = span.rerun_all(rank.recompute.norms or rank.recomputes_outputs)
    copies: Real = 1.0
    if not _fuses_down(rank):
        # Each product keeps the narrow copy that it made; a wide input is one tensor for both.
        copies = where(rank.saved_element_size < rank.element, 2.0, 1.0)
    text, symbols = f"{rank.residual_text} q", {}
    if any_of(copies > 1):
        text, symbols = f"{text} c", {"c": (copies, "")}
    yield from rank.saved_tensor("attention input", text, again, symbols)
    divided = " / t" if rank.layout.sequence_parallel else ""
    kept, normed = rank.normed_element_text, up.rerun_all(rank.recomputes_outputs)
    for name, symbol, width in (
        ("compressed queries", "r", model.q_lora),
        ("compressed keys and values", "l", model.kv_lora),
    ):
        if width:  # the norm keeps its input, and the projection up what the norm makes of it
            yield from rank.saved_tensor(name, f"s b {symbol} {kept}{divided}", span, source=KEPT)
            yield from rank.saved_tensor(
                f"{name}, normed", f"s b w q{divided}", normed, {"w": (width, "")}, source=KEPT
            )
    for name, symbol in (("queries", "d"), ("keys", "d"), ("values", "v")):
        yield from rank.saved_tensor(name, f"s b a {symbol} e / t", up, source=KEPT)
    yield from core.memory(rank)


def _fuses_down(rank: Rank) -> bool:
    """Return whether one GEMM projects queries, keys and values down."""
    return rank.study[KernelChoice].fused_down_projection and bool(rank.model.q_lora)


def _inner(rank: Rank) -> Real:
    """Return the input size of the query projection: the query rank, or the hidden size."""
    return rank.model.q_lora or rank.model.hidden


def _queries(rank: Rank) -> Real:
    """Return the output size of the query projection, over all ranks."""
    return rank.model.heads * rank.model.qk_dim


def _keys(rank: Rank) -> Real:
    """Return the output size of the key and value projection, over all ranks."""
    return rank.model.heads * (rank.model.nope_dim + rank.model.v_dim)


def _shard_parameters(
    name: str, rank: Rank, total: Real, shards: Real | None = None, *, linear: bool = True
) -> Parameters:
    return Parameters(
        name=name,
        elements=total if shards is None else total / shards,
        total=total,
        count=rank.layers,
        replicated=shards is None,
        linear=linear,
        matrices=float(linear),
        source=SPLIT if shards is not None else MLA,
    )
