"""The parts of a dense transformer: what each holds, runs, and keeps for backward.

A part is a plugin of its own, so that another kind of attention or MLP replaces one
file. All describe one tensor-parallel rank; what the ranks tell one another is not
said here but by ``parallelism.tensor``.

Saved tensors. One set of tensors gives both published accounts of activation memory:
with LayerNorm, GELU, dropout and unfused attention it adds up to the
s b h (34 + 5 a s / h) bytes of Korthikanti et al. 2022, and with RMSNorm, SwiGLU and
FlashAttention to what today's models keep. A tensor is counted where it is made and
once: the embedding's output is the input of the first layer's norm, and a recomputed
layer's input is the checkpoint itself.
"""

PARTS = (
    "attention",
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
