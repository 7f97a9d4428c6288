"""What backward makes again instead of keeping it, besides ``training.recompute``."""

from __future__ import annotations

from parcost import block, integer, switch


@block("recompute", label="none")
class Recompute:
    """Parts of a layer that are made again in backward, and how many layers as a whole.

    The switches add to ``training { recompute = ... }``; ``every`` and ``layers`` say how
    many of the layers ``recompute = full`` is about.
    """

    norms: bool = switch(default=False, doc="outputs of the layer norms")
    activation: bool = switch(default=False, doc="outputs of SwiGLU, GeGLU or GELU")
    up_projection: bool = switch(
        default=False, doc="MLA: queries, keys and values, from their compressed form"
    )
    mlp: bool = switch(default=False, doc="whole dense MLPs, from their input")
    moe: bool = switch(
        default=False, doc="whole mixtures of experts, from their input, with their exchange"
    )
    every: int = integer(
        default=1, structural=True, doc="of the layers, every n-th is recomputed as a whole"
    )
    layers: int = integer(
        default=0,
        minimum=0,
        structural=True,
        doc="of each virtual stage, the first n are recomputed as a whole; 0 is all",
    )
