"""Serving: prompts in, tokens out, and a KV cache.

Serving has no step. A ``serving`` block is a calculation that may stand beside a training job of
the same model, or alone.
"""

from __future__ import annotations

from parcost import (
    BYTES,
    ONE,
    SECONDS,
    Real,
    block,
    fraction,
    integer,
    quantity,
    reference,
    word,
)
from parcost_plugins.vocabulary.hardware import Device, Fabric
from parcost_plugins.vocabulary.model import Model


@block("serving", label="required")
class Serving:
    """One replica of a model for inference, or several with shared experts."""

    model: Model = reference("model", default="model", doc="model that is served")
    device: Device = reference("device", default="device", doc="device of the replica")
    fabric: Fabric | None = reference(
        "fabric", default=None, doc="network between its devices; needed from two devices on"
    )
    compute: str = word("fp32", "tf32", "fp16", "bf16", "fp8", "fp4", doc="type of the products")
    weights: Real = quantity(
        BYTES, positive=True, doc="bytes of one parameter as it is held and read"
    )
    activation: Real = quantity(
        BYTES, positive=True, doc="bytes of one element that travels between devices"
    )
    kv: Real = quantity(
        BYTES, positive=True, default="activation", doc="bytes of one element of the KV cache"
    )

    tp: Real = integer(default=1, doc="tensor parallel degree: devices that share every layer")
    pp: int = integer(default=1, structural=True, doc="pipeline parallel degree")
    ep: Real = integer(
        default=1, doc="expert parallel degree: devices that share the experts of a layer"
    )
    attention_replicas: Real = quantity(
        ONE,
        positive=True,
        default="max(1, ep / tp)",
        doc="groups of tp devices with requests of their own, whose experts are shared",
    )

    batch: Real = integer(
        default=1,
        qualifiers={"sequences": 1.0},
        doc="sequences that one group decodes together (n_b)",
    )
    batches: Real = integer(
        default="pp",
        doc="batches of this size in flight; by default as many as keep all stages busy",
    )
    prompt: Real = integer(default=1, qualifiers={"tokens": 1.0}, doc="tokens of a prompt (S)")
    output: Real = integer(
        default=0, minimum=0, qualifiers={"tokens": 1.0}, doc="tokens of an answer"
    )
    context: Real = quantity(
        ONE,
        default="prompt + output / 2",
        qualifiers={"tokens": 1.0},
        doc="tokens that a sequence has in the cache, on average while it decodes",
    )
    longest: Real = quantity(
        ONE,
        default="max(prompt + output, context)",
        positive=True,
        qualifiers={"tokens": 1.0},
        doc="tokens that room is kept for in the cache of every sequence",
    )

    matmul_efficiency: Real | None = fraction(
        positive=True,
        default=None,
        doc="share of the peak; by default as in training",
    )
    memory_efficiency: Real | None = fraction(
        positive=True,
        default=None,
        doc="share of the memory bandwidth; by default as in training",
    )
    collective: str = word(
        "auto",
        registry="collectives",
        default="auto",
        doc="collective algorithm of the all-reduces",
    )
    all_reduce: Real | None = quantity(
        SECONDS,
        default=None,
        doc="measured time of one all-reduce while decoding; by default computed from the fabric",
    )
    kernels_per_layer: Real = integer(
        default=0,
        minimum=0,
        doc="kernels launched one by one while decoding; 0 inside a CUDA graph",
    )
    issue: Real = quantity(
        SECONDS, default="framework.issue", doc="host time to launch one of these kernels"
    )
