"""Gated delta net (GDN): linear attention with a state that each token corrects.

Queries, keys and values pass through a short convolution. Each head has a state of key size x value
size. Kernels process chunks of tokens: GEMMs within a chunk, and the state between chunks. Heads
are split over the tensor-parallel ranks. Value heads share queries and keys, which are replicated
before the kernels.

Operators and saved tensors are those of flash-linear-attention, which Megatron-Core and
transformers call; without it transformers runs a slow loop.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from attrs import evolve

from parcost import Check, Memory, Moment, Real, Study, block_name, hookimpl, map_counts, sum_counts
from parcost.numeric import all_of, any_of, maximum
from parcost_plugins.model.norms import input_casts
from parcost_plugins.model.rank import Rank, rank_of
from parcost_plugins.model.rulebook import RULES
from parcost_plugins.model.shapes import head_check
from parcost_plugins.physics.elementwise import (
    GATED,
    PLAIN,
    REORDERED,
    Passes,
    Traffic,
    elementwise,
    repetition,
)
from parcost_plugins.physics.passes import LayerSpan, linear
from parcost_plugins.vocabulary import (
    Adapters,
    Gemm,
    Model,
    ModelFlops,
    Parameters,
    Serving,
    Stream,
)
from parcost_plugins.vocabulary.causes import ACTIVATIONS
from parcost_plugins.vocabulary.operators import ATTENTION_COLUMNS, ATTENTION_ROWS

GDN = "Yang et al. 2024 (Gated Delta Networks), section 3"
CHUNKED = "flash-linear-attention, fla/ops/gated_delta_rule/chunk.py"

_CHUNK = 64  # tokens of a chunk: BT in that file
#: Of the chunked rule: norms of queries and keys, cumulated decays, key products, their inverse,
#: W and U, states, outputs. Backward makes W, U and states again.
_KERNELS, _GRADIENT_KERNELS = 8, 10


class _DeltaNet(NamedTuple):
    """Sizes of the gated delta nets on one rank."""

    rank: Rank
    span: LayerSpan
    heads: Real  # value heads
    keys: Real  # width of the keys, all heads together
    repeated: Real  # the same behind their repetition for each value head
    values: Real  # width of the values

    @property
    def convolution_width(self) -> Real:
        """Width of queries, keys and values together."""
        return 2 * self.keys + self.values


def _delta_net(study: Study) -> _DeltaNet | None:
    rank = rank_of(study)
    model, t = rank.model, rank.layout.tp
    if not model.delta_heads or model.is_nominal:
        return None
    heads = model.delta_heads / t
    return _DeltaNet(
        rank=rank,
        span=rank.delta_layers,
        heads=heads,
        keys=model.delta_key_heads * model.delta_key_dim / t,
        repeated=heads * model.delta_key_dim,
        values=heads * model.delta_value_dim,
    )


@hookimpl
def checks(study: Study) -> Iterator[Check]:
    """Require whole heads on each rank, and reject features that are not modeled with a
    delta net.
    """
    rank = rank_of(study)
    model, layout, place = rank.model, rank.layout, block_name(rank.model)
    if model.delta_heads:
        keys = maximum(model.delta_key_heads, 1.0)
        yield RULES.check(
            "delta-heads-share",
            (model.delta_key_heads > 0) & (model.delta_heads % keys == 0),
            f"{place}.delta_key_heads",
            heads=model.delta_heads,
            keys=model.delta_key_heads,
        )
        for name in ("delta_key_dim", "delta_value_dim"):
            yield head_check(model, name, getattr(model, name), "a gated delta net")
        yield RULES.check(
            "delta-heads-split",
            model.delta_key_heads % layout.tp == 0,
            "layout.tp",
            keys=model.delta_key_heads,
            tp=layout.tp,
        )
    parts = {
        "a gated delta net": (model.delta_heads > 0, "delta_heads = 0"),
        "a gate on the output of attention": (model.output_gate, "output_gate = off"),
    }
    others = (
        ("latent attention (MLA)", not model.is_latent, f"{place}.kv_lora", "kv_lora = 0"),
        ("adapters", study.get(Adapters) is None, "adapters", ""),
        ("serving", not study.all(Serving), f"{place}.layers", ""),
    )
    alone = (
        ("attention in a window", not model.window, f"{place}.window", "window = 0"),
        ("attention in both directions", model.causal, f"{place}.causal", "causal = on"),
        ("context parallelism", layout.cp == 1, "layout.cp", "layout.cp = 1"),
    )
    for part, (given, without) in parts.items():
        for other, holds, subject, instead in (*others, *(alone if model.delta_heads else ())):
            if given and not all_of(holds):
                way = f"write `{instead}`" if instead else f"leave the block `{other}` out"
                yield RULES.check(
                    "mixer-beside", holds, subject, part=part, other=other, way=way, without=without
                )


@hookimpl
def parameters(study: Study) -> Iterator[Parameters]:
    """Return the projections, the convolution, the decays and the norm of the output."""
    found = _delta_net(study)
    if found is None:
        return
    rank, count, t = found.rank, found.span.count, found.rank.layout.tp
    h, model = rank.model.hidden, rank.model
    for name, columns in (
        ("delta net input projection", found.convolution_width + found.values),
        ("delta net gate projection", 2 * found.heads),
        ("delta net output projection", found.values),
    ):
        yield Parameters(
            name=name,
            elements=h * columns,
            total=h * columns * t,
            count=count,
            linear=True,
            source=GDN,
        )
    for name, each in (
        ("delta net convolution", found.convolution_width * model.delta_convolution),
        ("delta net decays", 2 * found.heads),
    ):
        yield Parameters(
            name=name, elements=each, total=each * t, count=count, matrices=0.0, source=GDN
        )
    yield Parameters(
        name="delta net norm",
        elements=model.delta_value_dim,
        total=model.delta_value_dim,
        count=count,
        replicated=True,
        matrices=0.0,
        source="the gain is replicated on every rank",
    )


@hookimpl
def flops(study: Study) -> Iterator[ModelFlops]:
    """Return the FLOPs of the projections, and of the rule by definition.

    A token has four products with the state of each head.
    """
    found = _delta_net(study)
    if found is None:
        return
    model, layers = found.rank.model, sum_counts(found.span.count)
    values = model.delta_heads * model.delta_value_dim
    columns = model.delta_columns + 2 * values + 2 * model.delta_heads
    yield ModelFlops(
        name="delta net projections",
        per_token=2 * layers * model.hidden * columns,
        kind="matmul",
        source="2 FLOPs per matrix parameter",
    )
    yield ModelFlops(
        name="delta net rule",
        per_token=layers
        * (8 * values * model.delta_key_dim + 2 * model.delta_convolution * model.delta_columns),
        kind="attention",
        source="Megatron-Bridge, flop_utils.py: 4 products with a state of key by value size, "
        "and the convolution",
    )


@hookimpl
def operators(study: Study) -> Iterator[Gemm | Stream]:
    """Return the projections, the convolution, the gates, the chunked rule and the norm."""
    found = _delta_net(study)
    if found is None:
        return
    rank, span, tokens = found.rank, found.span, found.rank.tokens
    h, e, trained = rank.model.hidden, rank.element, rank.trains_model
    name = "delta net input projection"
    for part, columns, host in (
        (name, found.convolution_width + found.values, ATTENTION_COLUMNS),
        ("delta net gate projection", 2 * found.heads, ""),
    ):
        yield from linear(part, tokens, columns, h, span, host=host, source=GDN, trained=trained)
    yield from input_casts(rank, name, 2, span)
    # Queries, keys and values are joined in the order of channels, convolved, and taken apart.
    size = tokens * found.convolution_width
    yield from elementwise("delta net inputs, joined", REORDERED, size, e, span)
    yield from elementwise("delta net convolution", PLAIN, size, e, span)
    if any_of(found.repeated > found.keys):
        passes, both = repetition(found.repeated / found.keys), 2 * found.keys * tokens
        yield from elementwise("queries and keys, repeated", passes, both, e, span, times=2)
    heads, model = tokens * found.heads, rank.model
    for kernels in elementwise("delta net rule", _rule(model), heads, e, span):
        done = _rule_flops(model, gradient=kernels.pass_ == "B")
        yield evolve(kernels, flops=heads * done)
    gated = GATED["fused"]
    yield from elementwise("delta net norm and gate", gated, tokens * found.values, e, span)
    yield from linear(
        "delta net output projection",
        tokens,
        h,
        found.values,
        span,
        host=ATTENTION_ROWS,
        source=GDN,
        trained=trained,
    )


def _rule(model: Model) -> Passes:
    """Return the kernels of the chunked rule, by token and head.

    Each kernel reads and writes whole tensors: keys and queries of size k, and values of size v. It
    also reads and writes products within a chunk of c tokens, and a state per chunk. Their work is
    counted in FLOPs of the forward pass, because small GEMMs are far below peak.
    """
    k, v, c = model.delta_key_dim, model.delta_value_dim, float(_CHUNK)
    state, work = k * v / c, _rule_flops(model, gradient=False)
    return Passes(
        Traffic(_KERNELS, 11 * k + 6 * v + 6 * c + 2 * state, steps=work, step_kind="delta"),
        Traffic(
            _GRADIENT_KERNELS,
            26 * k + 15 * v + 2 * c + 4 * state,
            steps=work,
            step_kind="delta_gradient",
        ),
    )


def _rule_flops(model: Model, *, gradient: bool) -> Real:
    """Return the FLOPs of the chunked rule for a token and head; its *gradient* has twice as many.

    Backward also recomputes W, U and the states.
    """
    k, v, c = model.delta_key_dim, model.delta_value_dim, float(_CHUNK)
    forward = 6 * k * v + c * (6 * k + 4 * v) + c**2 / 3
    return 2 * forward + 2 * c * (k + v) + 4 * k * v if gradient else forward


@hookimpl
def memory(study: Study) -> Iterator[Memory]:
    """Return tensors saved for backward, and the states of the current layer."""
    found = _delta_net(study)
    if found is None:
        return
    rank, span, model = found.rank, found.span, found.rank.model
    again = rank.recompute.norms or rank.recomputes_outputs
    yield from rank.saved_input("delta net input", span.rerun_all(again), "query", "key", "value")
    w = (model.delta_columns, "")
    symbols = {"H": (model.delta_heads, ""), "V": (model.delta_heads * model.delta_value_dim, "")}
    symbols["K"] = (model.delta_heads * model.delta_key_dim, "")
    for name, text, more in (
        ("delta net convolution input", "s b w e / t", {"w": w}),
        ("delta net queries and keys", "2 s b K e / t", symbols),
        ("delta net values", "s b V e / t", symbols),
        ("delta net gates", "s b V e / t", symbols),
        ("delta net decays and chunk inverses", "s b H (8 + 64 e) / t", symbols),
        ("delta net rule output", "s b V e / t", symbols),
        ("delta net output", "s b V q / t", symbols),
    ):
        used = {name_: more[name_] for name_ in more if name_ in text}
        yield from rank.saved_tensor(name, text, span, used, source=CHUNKED)
    transient: tuple[tuple[Moment, str], ...] = (
        ("forward", "s b (K D / 64 + K + 2 V) e / t, D a value head, 64 tokens of a chunk"),
        ("backward", "s b (2 K D / 64 + K + 3 V) e / t, D a value head, 64 tokens of a chunk"),
    )
    symbols["D"] = (model.delta_value_dim, "")
    for moment, text in transient:
        yield Memory(
            name=f"delta net states and W, U, {moment}",
            cause=ACTIVATIONS,
            bytes_=rank.formula(text, symbols, source=CHUNKED),
            count=map_counts(min, span.count, 1),
            once_per_device=True,
            moments=(moment,),
        )
