"""Transformers, as their configuration files describe them."""

from __future__ import annotations

from parcost import Real, block, integer, switch, word
from parcost.numeric import ceil_div, where
from parcost_plugins.vocabulary.layout import Layout


@block("model", label="required")
class Model:
    """A dense decoder-only transformer."""

    layers: int = integer(structural=True, doc="transformer layers")
    hidden: Real = integer(doc="width of the residual stream (h)")
    heads: Real = integer(doc="query heads (a)")
    kv_heads: Real = integer(default="heads", doc="key and value heads; fewer than heads is GQA")
    head_dim: Real = integer(default="hidden / heads", doc="size of one head (d)")
    ffn: Real = integer(default="4 * hidden", doc="inner width of the MLP (f)")
    gated: bool = switch(default=True, doc="SwiGLU or GeGLU: three matrices instead of two")
    vocabulary: Real = integer(doc="rows of the embedding (V)")
    tied: bool = switch(default=False, doc="the output head shares the embedding's weights")
    norm: str = word("rms", "layer", default="rms", doc="RMSNorm, or LayerNorm with a bias")
    biases: bool = switch(default=False, doc="every linear layer of a block has a bias")
    qkv_biases: bool = switch(
        default=False, doc="the query, key and value projections have one where others have none"
    )
    positions: int = integer(
        default=0, minimum=0, structural=True, doc="rows of learned positions; 0 for RoPE"
    )

    def padded_vocabulary(self, layout: Layout) -> Real:
        """Return the rows of the embedding after padding for tensor parallelism."""
        step = layout.vocabulary_multiple * layout.tp
        padded = ceil_div(self.vocabulary, step) * step
        return where(layout.vocabulary_multiple > 1, padded, self.vocabulary)
