"""Serving: prefill, decoding and the KV cache.

Serving has no training step. A ``serving`` block is a calculation, with or without a training job
in the same study.
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

    model: Model = reference("model", default="model", doc="served model")
    device: Device = reference("device", default="device", doc="device of the replica")
    fabric: Fabric | None = reference(
        "fabric", default=None, doc="network between its devices; required for two devices or more"
    )
    compute: str = word(
        "fp32", "tf32", "fp16", "bf16", "fp8", "fp4", doc="type of the matrix products"
    )
    weights: Real = quantity(BYTES, positive=True, doc="bytes of one stored parameter")
    activation: Real = quantity(
        BYTES, positive=True, doc="bytes of one element that travels between devices"
    )
    kv: Real = quantity(
        BYTES, positive=True, default="activation", doc="bytes of one element of the KV cache"
    )

    tp: Real = integer(
        default=1, doc="tensor parallel degree: devices over which each layer is split"
    )
    pp: int = integer(default=1, structural=True, doc="pipeline parallel degree")
    ep: Real = integer(
        default=1,
        doc="expert parallel degree: devices over which the experts of a layer are distributed",
    )
    attention_replicas: Real = quantity(
        ONE,
        positive=True,
        default="max(1, ep / tp)",
        doc="number of groups of tp devices with separate requests and common experts",
    )

    batch: Real = integer(
        default=1,
        qualifiers={"sequences": 1.0},
        doc="batch size of one group during decoding (n_b)",
    )
    batches: Real = integer(
        default="pp",
        doc="number of batches in flight; by default enough to keep all stages busy",
    )
    prompt: Real = integer(default=1, qualifiers={"tokens": 1.0}, doc="tokens of a prompt (S)")
    output: Real = integer(
        default=0, minimum=0, qualifiers={"tokens": 1.0}, doc="tokens of a response"
    )
    context: Real = quantity(
        ONE,
        default="prompt + output / 2",
        qualifiers={"tokens": 1.0},
        doc="mean number of tokens per sequence in the cache during decoding",
    )
    longest: Real = quantity(
        ONE,
        default="max(prompt + output, context)",
        positive=True,
        qualifiers={"tokens": 1.0},
        doc="tokens for which the cache of each sequence reserves memory",
    )

    matmul_efficiency: Real | None = fraction(
        positive=True,
        default=None,
        doc="share of the peak that is achieved; by default as in training",
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
        doc="number of kernels launched separately during decoding; 0 with a CUDA graph",
    )
    issue: Real = quantity(
        SECONDS, default="framework.issue", doc="host time to launch one of these kernels"
    )
