"""Transformers, described like in their configuration files."""

from __future__ import annotations

from typing import NamedTuple

from parcost import BYTES, ONE, Real, block, integer, integers, quantity, switch, word
from parcost.numeric import ceil_div, where
from parcost_plugins.vocabulary.aliases import ALIASES
from parcost_plugins.vocabulary.layout import Layout


class AttentionInput(NamedTuple):
    """A tensor that every tensor-parallel rank needs in full for its heads.

    *name* is "" for the residual stream. A *multiplied* tensor is also needed for the weight
    gradient.
    """

    name: str
    width: Real
    multiplied: bool = True


@block(
    "model",
    label="required",
    used_with={
        ("rope_dim", "nope_dim", "v_dim"): "latent attention: a `kv_lora` above 0",
        (
            "delta_key_heads",
            "delta_key_dim",
            "delta_value_dim",
            "delta_convolution",
        ): "layers of a gated delta net: `delta_heads` above 0",
        ("saved",): "a nominal model, which is known by its `parameters`",
    },
    aliases=ALIASES["model"],
)
class Model:
    """A transformer, dense or with experts; or a nominal model with only a parameter count."""

    layers: int = integer(structural=True, maximum=1e5, doc="transformer layers")
    hidden: Real = integer(default=0, minimum=0, doc="hidden size (h)")
    heads: Real = integer(default=0, minimum=0, doc="query heads (a)")
    kv_heads: Real = integer(
        default="max(heads, 1)", doc="number of key and value heads; GQA if fewer than `heads`"
    )
    head_dim: Real = integer(
        default="hidden / max(heads, 1)", minimum=0, doc="size of one head (d)"
    )
    ffn: Real = integer(default="4 * hidden", minimum=0, doc="FFN hidden size of a dense layer (f)")
    gated: bool = switch(default=True, doc="SwiGLU or GeGLU: three matrices instead of two")
    vocabulary: Real = integer(default=0, minimum=0, doc="vocabulary size (V)")
    tied: bool = switch(default=False, doc="the output head shares the embedding's weights")
    norm: str = word("rms", "layer", default="rms", doc="RMSNorm, or LayerNorm with a bias")
    norm_weights: Real | None = integer(
        default=None,
        minimum=0,
        maximum=2,
        doc=(
            "number of learned vectors per norm: 2 for gain and bias, 1 for a gain, 0 for none; by "
            "default 1 for RMSNorm and 2 for LayerNorm"
        ),
    )
    norms: int = integer(
        default=2,
        minimum=0,
        structural=True,
        doc="norms of a layer: 4 with sandwich norms, 1 where attention and MLP share one",
    )
    embedding_norm: bool = switch(default=False, doc="an additional norm after the embedding")
    qk_norm: bool = switch(default=False, doc="an RMSNorm on every query head and key head")
    qk_norm_whole: bool = switch(
        default=False,
        doc="norms of queries and keys have a gain for all heads together, not one for each head",
    )
    parallel_residual: bool = switch(
        default=False,
        doc=(
            "parallel residual: attention and MLP have the same input, and their outputs are added "
            "together"
        ),
    )
    biases: bool = switch(default=False, doc="every linear layer of a block has a bias")
    qkv_biases: bool = switch(
        default=False, doc="only the query, key and value projections have a bias"
    )
    output_bias: bool = switch(
        default=False, doc="only the output projection of attention has a bias"
    )
    mlp_biases: bool = switch(default=False, doc="only the projections of a dense MLP have a bias")
    squared_relu: bool = switch(
        default=False, doc="the activation of an MLP without a gate is the square of a ReLU"
    )
    activation_parameters: int = integer(
        default=0,
        minimum=0,
        structural=True,
        doc="number of learned parameters of the activation of a dense MLP, such as 2 for xIELU",
    )
    head_bias: bool = switch(default=False, doc="the output head has a bias")
    positions: int = integer(
        default=0, minimum=0, structural=True, doc="rows of learned positions; 0 for RoPE or ALiBi"
    )
    alibi: bool = switch(
        default=False,
        doc="ALiBi: positions are a bias on the scores; there is no rotary embedding",
    )
    causal: bool = switch(
        default=True, doc="causal attention: a token attends only to earlier tokens"
    )

    # Attention in a window
    window: int = integer(
        default=0,
        minimum=0,
        structural=True,
        doc="window size in tokens (w); 0: no window",
    )
    full_every: int = integer(
        default=0,
        minimum=0,
        structural=True,
        doc=(
            "interval n of full-attention layers between layers with a window or a gated delta "
            "net: every n-th layer; 0: none"
        ),
    )
    full_layers: tuple[int, ...] = integers(
        default=(),
        doc="list of full-attention layers, counted from 0, in place of `full_every`",
    )
    chunked: bool = switch(
        default=False,
        doc="chunked attention: a token attends only to earlier tokens of its own window",
    )
    sinks: bool = switch(default=False, doc="a learned attention sink for every query head")
    output_gate: bool = switch(
        default=False,
        doc="output gate of attention; the query projection also computes the gates",
    )

    # Gated delta net
    delta_heads: int = integer(
        default=0,
        minimum=0,
        structural=True,
        doc=(
            "number of value heads of a gated delta net (linear attention), which replaces "
            "attention except in layers of `full_every` or `full_layers`; 0: none"
        ),
    )
    delta_key_heads: Real = integer(
        default="delta_heads", minimum=0, doc="number of query and key heads of a gated delta net"
    )
    delta_key_dim: Real = integer(
        default="head_dim", minimum=0, doc="size of a query or key head of a gated delta net"
    )
    delta_value_dim: Real = integer(
        default="delta_key_dim", minimum=0, doc="size of a value head of a gated delta net"
    )
    delta_convolution: Real = integer(
        default=4, doc="kernel size of the convolution of a gated delta net, in tokens"
    )

    # Multi-head latent attention
    kv_lora: int = integer(
        default=0,
        minimum=0,
        structural=True,
        doc="MLA: rank of compressed keys and values (multi-head latent attention); 0: no MLA",
    )
    q_lora: int = integer(
        default=0,
        minimum=0,
        structural=True,
        doc="MLA: rank of compressed queries; 0: queries are not compressed",
    )
    nope_dim: Real = integer(
        default="head_dim", minimum=0, doc="MLA: size of a query and key head without positions"
    )
    rope_dim: Real = integer(
        default=0,
        minimum=0,
        doc="MLA: size of the rotary part of a head; keys share one for all heads",
    )
    v_dim: Real = integer(default="head_dim", minimum=0, doc="MLA: size of a value head")

    # Mixture of experts
    experts: int = integer(
        default=0,
        minimum=0,
        structural=True,
        doc="number of routed experts of an MoE layer (E); 0: dense model",
    )
    top_k: Real = integer(default=1, maximum=1e5, doc="number of routed experts per token")
    expert_ffn: Real = integer(default="ffn", minimum=0, doc="FFN hidden size of a routed expert")
    shared_experts: int = integer(
        default=0, minimum=0, structural=True, doc="number of shared experts"
    )
    shared_ffn: Real = integer(
        default="expert_ffn", minimum=0, doc="FFN hidden size of one shared expert"
    )
    clamped: bool = switch(
        default=False, doc="gate and up of routed experts are clamped before the activation"
    )
    shared_gate: bool = switch(default=False, doc="the shared expert's output is gated per token")
    router_bias: bool = switch(
        default=False, doc="the router has a bias or a correction term per expert"
    )
    dense_first: int = integer(
        default=0,
        minimum=0,
        structural=True,
        doc="number of first layers that are dense in an MoE model",
    )
    moe_every: int = integer(
        default=1,
        structural=True,
        doc="interval n of MoE layers after the `dense_first` layers: the last of each n layers",
    )
    dense_layers: tuple[int, ...] = integers(
        default=(),
        doc="list of dense layers, counted from 0, in place of `dense_first` and `moe_every`",
    )

    # Multi-token prediction
    prediction_layers: int = integer(
        default=0,
        minimum=0,
        maximum=1e5,
        structural=True,
        doc="number of multi-token prediction (MTP) layers, each with the head again",
    )

    # By stated size
    parameters: Real | None = quantity(
        ONE,
        default=None,
        positive=True,
        doc=(
            "total parameters of a nominal model for planning, spread evenly over the layers, in "
            "place of the model shape"
        ),
    )
    saved: Real = quantity(
        BYTES,
        default=0.0,
        doc=(
            "nominal model: bytes that a layer saves per token for backward, such as `34 B * "
            "hidden`"
        ),
    )

    @property
    def is_nominal(self) -> bool:
        """Whether only the model's size is known."""
        return self.parameters is not None

    @property
    def is_latent(self) -> bool:
        """Whether attention is multi-head latent attention (MLA)."""
        return self.kv_lora > 0

    @property
    def norm_vectors(self) -> Real:
        """The number of learned vectors in a norm."""
        if self.norm_weights is not None:
            return self.norm_weights
        return 2.0 if self.norm == "layer" else 1.0

    @property
    def has_qkv_biases(self) -> bool:
        """Whether the query, key and value projections have a bias."""
        return self.biases or self.qkv_biases

    @property
    def has_output_bias(self) -> bool:
        """Whether the output projection of attention has a bias."""
        return self.biases or self.output_bias

    @property
    def has_mlp_biases(self) -> bool:
        """Whether the projections of a dense MLP have a bias."""
        return self.biases or self.mlp_biases

    @property
    def qk_dim(self) -> Real:
        """Size of a query or key head."""
        return self.nope_dim + self.rope_dim if self.kv_lora else self.head_dim

    @property
    def value_dim(self) -> Real:
        """Size of a value head."""
        return self.v_dim if self.kv_lora else self.head_dim

    @property
    def delta_columns(self) -> Real:
        """Total size of queries, keys and values of a gated delta net over all heads."""
        keys = self.delta_key_heads * self.delta_key_dim
        return 2 * keys + self.delta_heads * self.delta_value_dim

    @property
    def attention_inputs(self) -> tuple[AttentionInput, ...]:
        """The inputs of the column-parallel GEMMs of attention, per token."""
        if not self.is_latent:
            return (AttentionInput("", self.hidden),)
        queries = (
            AttentionInput("compressed queries", self.q_lora)
            if self.q_lora
            else AttentionInput("", self.hidden)
        )
        latent = (queries, AttentionInput("compressed keys and values", self.kv_lora))
        if isinstance(self.rope_dim, float) and self.rope_dim == 0.0:
            return latent
        # It is joined to the keys behind their projection, which does not read it.
        return (*latent, AttentionInput("rotated keys", self.rope_dim, multiplied=False))

    @property
    def shared_width(self) -> Real:
        """Total FFN hidden size of all shared experts."""
        return self.shared_experts * self.shared_ffn

    def padded_vocabulary(self, layout: Layout) -> Real:
        """Return the rows of the embedding after padding for tensor parallelism."""
        step = layout.vocabulary_multiple * layout.tp
        padded = ceil_div(self.vocabulary, step) * step
        return where(layout.vocabulary_multiple > 1, padded, self.vocabulary)
