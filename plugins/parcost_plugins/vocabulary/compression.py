"""Gradients made smaller for the wire, and what that takes."""

from __future__ import annotations

from parcost import BYTES, ONE, Real, block, fraction, integer, quantity, word


@block("compression", label="none")
class Compression:
    """How gradients are compressed before they are reduced.

    Integers cannot be added up on the way round a ring: they are exchanged all to all,
    added by one rank each, and gathered. So are signs. What top-k keeps stands at other
    places on every rank, so that all of it is gathered.
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
    scale: Real = quantity(BYTES, doc="one scale of a quantised block")
    block: Real = integer(doc="elements that share a scale")
    density: Real = fraction(positive=True, doc="top-k: elements that are sent")
    value: Real = quantity(BYTES, doc="top-k: one value on the wire")
    index: Real = quantity(BYTES, doc="top-k: where the value stands")
    rank: Real = integer(doc="PowerSGD: rank of the approximation")
    factor: Real = quantity(BYTES, doc="PowerSGD: one element of the factors on the wire")
    minimum_rate: Real = quantity(
        ONE, doc="PowerSGD: a matrix that would shrink by less than this is sent as it is"
    )
    residual: Real = quantity(
        BYTES, doc="held per element of what was not sent: signs, top-k and PowerSGD feed it back"
    )
    cast_traffic: Real = quantity(BYTES, doc="memory traffic of a cast, per element")
    quantise_traffic: Real = quantity(
        BYTES, doc="memory traffic per element: quantise, add up what arrives, quantise again"
    )
    sign_traffic: Real = quantity(BYTES, doc="memory traffic of signs and feedback, per element")
    select_traffic: Real = quantity(BYTES, doc="memory traffic of selecting, per element")
    project_traffic: Real = quantity(
        BYTES, doc="memory traffic of PowerSGD per element: two projections, feedback, the result"
    )
    steps: Real = quantity(
        ONE,
        default=1.0,
        minimum=1.0,
        doc="steps that make the progress of one step without compression",
    )
