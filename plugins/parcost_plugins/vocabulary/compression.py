"""Gradient compression, and its cost."""

from __future__ import annotations

from parcost import BYTES, ONE, SECONDS, Real, block, fraction, integer, quantity, word
from parcost_plugins.vocabulary.link_rates import link_rate

#: Bits of an element on the wire: types that can be summed in transit, and others.
SUMMED = {"fp16": 16.0, "bf16": 16.0}
EXCHANGED = {"int8": 8.0, "int4": 4.0, "one_bit": 1.0}


@block(
    "compression",
    label="none",
    used_with={
        (): "a `compression.method`",
        ("density", "value", "index", "select_traffic"): "`compression.method = top_k`",
        (
            "rank",
            "factor",
            "minimum_rate",
            "project_traffic",
        ): "`compression.method = power_sgd`",
    },
)
class Compression:
    """How gradients are compressed before they are reduced.

    Integers and signs cannot be summed in a ring. They are exchanged by an all-to-all, summed by
    one rank each, and gathered. Top-k selects different elements on every rank, so all of them are
    gathered.
    """

    method: str = word(
        "none",
        "fp16",
        "bf16",
        "int8",
        "int4",
        "one_bit",
        "top_k",
        "power_sgd",
        default="none",
        doc="a narrower type, signs with error feedback, the largest elements, or low rank",
    )
    scale: Real = quantity(BYTES, doc="bytes of the scale of a quantised block")
    block: Real = integer(doc="elements that share a scale")
    density: Real = fraction(positive=True, doc="top-k: share of the elements that are sent")
    value: Real = quantity(BYTES, doc="top-k: bytes of one value on the wire")
    index: Real = quantity(BYTES, doc="top-k: bytes of the index of a value")
    rank: Real = integer(doc="PowerSGD: rank of the approximation")
    factor: Real = quantity(BYTES, doc="PowerSGD: bytes of one element of the factors on the wire")
    minimum_rate: Real = quantity(
        ONE, doc="PowerSGD: least compression ratio; matrices below it are sent uncompressed"
    )
    residual: Real = quantity(
        BYTES,
        doc="bytes held per element for error feedback (signs, top-k, PowerSGD)",
    )
    cast_traffic: Real = quantity(BYTES, doc="memory traffic of a cast, per element")
    quantise_traffic: Real = quantity(
        BYTES,
        doc="memory traffic per element: quantise, add up the received values, quantise again",
    )
    sign_traffic: Real = quantity(BYTES, doc="memory traffic of signs and feedback, per element")
    select_traffic: Real = quantity(BYTES, doc="memory traffic of the top-k selection, per element")
    project_traffic: Real = quantity(
        BYTES, doc="memory traffic of PowerSGD per element: two projections, feedback, the result"
    )
    steps: Real = quantity(
        ONE,
        default=1.0,
        minimum=1.0,
        doc="number of steps with the same progress as one step without compression",
    )


@block("exchange", label="required")
class ExchangeSketch:
    """The reduction of gradients over some ranks, compressed or not: the bytes that each sends."""

    elements: Real = quantity(ONE, positive=True, doc="size of the gradients of a rank")
    ranks: Real = integer(default=1, doc="number of ranks that reduce them (P)")
    size: Real = quantity(
        BYTES, default=4.0, positive=True, doc="size of one gradient without compression"
    )
    method: str = word(
        "none",
        "fp16",
        "bf16",
        "int8",
        "int4",
        "one_bit",
        "top_k",
        "power_sgd",
        default="none",
        doc="compression method",
    )
    scale: Real = quantity(BYTES, default=0.0, doc="bytes of the scale of a quantised block")
    block: Real = integer(default=1, doc="elements that share a scale")
    density: Real = fraction(
        default=0.01, positive=True, doc="top-k: share of the elements that are sent"
    )
    value: Real = quantity(BYTES, default="size", doc="top-k: bytes of one value on the wire")
    index: Real = quantity(BYTES, default=4.0, doc="top-k: bytes of the index of a value")
    rank: Real = integer(default=1, doc="PowerSGD: rank of the approximation (r)")
    rows: Real = quantity(
        ONE,
        positive=True,
        default="elements",
        doc="PowerSGD: size of the matrices, assumed equal",
    )
    columns: Real = quantity(
        ONE,
        positive=True,
        default=1.0,
        doc="PowerSGD: size of the matrices, assumed equal",
    )
    bandwidth: Real | None = link_rate(default=None, doc="send bandwidth of a rank")
    period: Real = integer(default=1, doc="steps from one exchange to the next")
    fragments: Real = integer(
        default=1, doc="number of parts that are exchanged one after the other"
    )


@block("buckets", label="required")
class BucketSketch:
    """Gradients in equal buckets overlapped with backward, without a model."""

    gradients: Real = quantity(BYTES, positive=True, doc="reduced in all (G)")
    count: Real = integer(default=1, doc="number of buckets (N)")
    ranks: Real = integer(default=2, doc="number of ranks that reduce them")
    factor: Real = quantity(
        ONE,
        positive=True,
        default="2 * (ranks - 1) / ranks",
        doc="bytes sent per byte of gradients; 2 for a ring of many ranks",
    )
    bandwidth: Real = link_rate(doc="bandwidth of a bucket of this size")
    whole_bandwidth: Real = link_rate(
        default="bandwidth", doc="bandwidth of one message with all gradients"
    )
    overhead: Real = quantity(SECONDS, default=0.0, doc="fixed cost of one bucket (alpha)")
    bucket_time: Real = quantity(
        SECONDS,
        positive=True,
        default="factor * gradients / (count * bandwidth) + overhead",
        doc="communication time of one bucket (tau)",
    )
    backward: Real = quantity(SECONDS, positive=True, doc="backward time that can hide the buckets")
    step: Real = quantity(
        SECONDS, default="backward", doc="compute time of the step without the buckets"
    )
    contention: Real = quantity(
        ONE,
        default=0.0,
        doc="slowdown of compute: seconds lost per second of overlapped traffic (kappa)",
    )
