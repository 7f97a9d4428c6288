"""Questions about a machine or a step: its ridge points, and changes that reach a target."""

from __future__ import annotations

from parcost import (
    ONE,
    SECONDS,
    Real,
    block,
    fraction,
    integer,
    quantity,
    reference,
    switch,
    word,
)
from parcost_plugins.vocabulary.hardware import Device, Fabric


@block("roofline", label="required")
class Roofline:
    """The ridge points of a machine: for each level, the FLOPs per byte at which compute and
    transfer are balanced.
    """

    device: Device = reference("device", default="device", doc="device of the roofline")
    fabric: Fabric = reference("fabric", default="fabric", doc="network of its devices")
    compute: str = word(
        "fp32", "tf32", "fp16", "bf16", "fp8", "fp4", default="bf16", doc="type of the matrix peak"
    )


@block("targets", label="none")
class Targets:
    """Targets of a training step; the report lists the changes that reach them."""

    step_time: Real | None = quantity(
        SECONDS, default=None, positive=True, doc="longest acceptable step time"
    )
    mfu: Real | None = fraction(
        default=None, positive=True, doc="lowest acceptable model FLOPs utilisation"
    )
    bubble: Real | None = fraction(
        default=None,
        positive=True,
        doc="largest acceptable pipeline bubble, as a share of the step",
    )
    slack: Real = fraction(
        positive=True,
        doc=(
            "allowed increase of the step time compared with infinite bandwidth, for the "
            "sufficient bandwidth"
        ),
    )
    # Where words are drawn. None of them decides a number.
    compute_bound: Real = quantity(
        ONE, doc="largest communication over computation of a compute-bound level"
    )
    near_ridge: Real = quantity(
        ONE, doc="largest communication over computation of a level near the ridge point"
    )
    communication_bound: Real = quantity(
        ONE,
        doc=(
            "largest communication over computation of a communication-bound level; above it the "
            "level is strongly communication-bound"
        ),
    )
    exposed: Real = fraction(doc="largest exposed share of a reduction that counts as hidden")
    as_fast: Real = fraction(
        doc=("relative difference of step times below which ZeRO stages count as equally fast")
    )
    excellent: Real = fraction(doc="lowest efficiency of a job that is called excellent")
    very_good: Real = fraction(doc="lowest efficiency of a job that is called very good")
    fair: Real = fraction(
        doc="lowest efficiency of a job that is called fair; below it is a problem"
    )


@block("plan", label="optional")
class Plan:
    """Comparison of parallelism strategies: each is applied to the study and evaluated."""

    recompute: bool = switch(
        default=True, doc="full recomputation is tried if a strategy does not fit without it"
    )
    widest_tp: Real | None = integer(
        default=None,
        doc="largest tensor parallel degree to try; by default one unit of the first level",
    )
