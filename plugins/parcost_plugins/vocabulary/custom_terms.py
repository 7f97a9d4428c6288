"""Cost terms defined by the user in the spec."""

from __future__ import annotations

from parcost import BYTES, SECONDS, Real, block, integer, quantity, string, word


@block("term", label="required")
class CustomTerm:
    """A cost defined by the user, as an expression."""

    seconds: Real = quantity(SECONDS, default=0.0, doc="time of one occurrence")
    memory: Real = quantity(BYTES, default=0.0, doc="bytes held on the device")
    per: str = word(
        "step", "micro_batch", "layer", default="step", doc="how often the time is spent"
    )
    during: str = word("forward", "backward", default="forward", doc="in which pass")
    when: str = word("fill", "drain", "end", default="end", doc="where a time per step stands")
    resource: str = string(default="compute", doc="what it keeps busy")
    stage: int | None = integer(
        default=None,
        minimum=0,
        structural=True,
        doc="the only virtual stage that has it; all where left out",
    )
    source: str = string(default="", doc="where the figure comes from")
