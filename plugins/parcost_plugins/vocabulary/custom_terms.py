"""Cost terms defined by the user in the spec."""

from __future__ import annotations

from parcost import BYTES, SECONDS, Real, block, integer, quantity, string, word


@block("term", label="required")
class CustomTerm:
    """A cost defined by the user, as an expression."""

    seconds: Real = quantity(SECONDS, default=0.0, doc="time of one occurrence")
    memory: Real = quantity(BYTES, default=0.0, doc="bytes held on the device")
    per: str = word(
        "step",
        "micro_batch",
        "layer",
        default="step",
        doc="frequency of the time: once per step, per micro-batch, or per layer",
    )
    during: str = word("forward", "backward", default="forward", doc="pass of the time")
    when: str = word("fill", "drain", "end", default="end", doc="place of a time per step")
    resource: str = string(default="compute", doc="resource that the term occupies")
    stage: int | None = integer(
        default=None,
        minimum=0,
        structural=True,
        doc="virtual stage that has the term; by default all stages",
    )
    source: str = string(default="", doc="source of the figure")
