"""Questions about a machine or a step: its ridges, and changes that reach a target."""

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
    """The ridges of a machine: the FLOPs per byte at which each level is balanced."""

    device: Device = reference("device", default="device", doc="which accelerator")
    fabric: Fabric = reference("fabric", default="fabric", doc="which network")
    compute: str = word(
        "fp32", "tf32", "fp16", "bf16", "fp8", "fp4", default="bf16", doc="which matrix peak"
    )


@block("targets", label="none")
class Targets:
    """Targets of a training step; the report lists the changes that reach them."""

    step_time: Real | None = quantity(
        SECONDS, default=None, positive=True, doc="longest step that will do"
    )
    mfu: Real | None = fraction(
        default=None, positive=True, doc="model FLOPs utilisation, at least"
    )
    bubble: Real | None = fraction(
        default=None, positive=True, doc="pipeline bubble as a share of the step, at most"
    )
    slack: Real = fraction(
        positive=True,
        doc="by which a step may be longer than on a link of any bandwidth, for the bandwidth "
        "that removes a bottleneck",
    )
    # Where words are drawn. None of them decides a number.
    compute_bound: Real = quantity(
        ONE, doc="communication over computation, up to which a level is compute-bound"
    )
    near_ridge: Real = quantity(ONE, doc="the same, up to which it is near the ridge")
    communication_bound: Real = quantity(
        ONE, doc="the same, up to which it is communication-bound; far beyond the ridge above"
    )
    exposed: Real = fraction(doc="of a reduction, up to which it counts as hidden")
    as_fast: Real = fraction(
        doc="by which a ZeRO stage may take longer than the fastest and count as fast"
    )
    excellent: Real = fraction(doc="efficiency of a job from which it is called so")
    very_good: Real = fraction(doc="efficiency from which it is called so")
    fair: Real = fraction(doc="efficiency from which it is called so; a problem below")


@block("plan", label="optional")
class Plan:
    """Compare parallelism strategies: each is laid out for this study, and evaluated."""

    recompute: bool = switch(
        default=True, doc="try full recomputation where a strategy does not fit without"
    )
    widest_tp: Real | None = integer(
        default=None, doc="largest tensor parallel degree to try; one unit of the first level"
    )
