"""Parts of a dense transformer: parameters, operators, and saved activations.

Each part is a separate plugin, so that another kind of attention or MLP replaces one file. All
describe one tensor-parallel rank. ``parallelism.tensor`` describes the communication.

With LayerNorm, GELU, dropout and unfused attention, the saved tensors have the ``s b h (34 + 5 a s
/ h)`` bytes of Korthikanti et al. 2022. With RMSNorm, SwiGLU and FlashAttention they are those of
current models. A tensor is counted once, by the part that produces it: the embedding's output is
the input of the first layer's norm, and a recomputed layer's input is the checkpoint itself.
"""

from __future__ import annotations

from parcost import Rulebook, hookimpl
from parcost_plugins.model.rulebook import RULES

PARTS = (
    "adapters",
    "attention",
    "delta_net",
    "details",
    "embedding",
    "head",
    "latent_attention",
    "mlp",
    "moe",
    "stated_size",
    "norms",
    "prediction",
    "shapes",
)


@hookimpl
def rulebooks() -> list[Rulebook]:
    """Return the rulebook of this package, with a page for each rule."""
    return [RULES]
