"""The goal of a layout search: ``search { objective = mfu, most_memory = 70 GiB }``."""

from __future__ import annotations

from parcost import BYTES, ONE, SECONDS, Real, block, fraction, integer, quantity, string, word


@block("search", label="none")
class Search:
    """The objective of `parcost search`, its limits and its axes.

    Axes are the sweeps of the study, with their values, and the axes named here. If no axes are
    named, `parcost search` chooses them for the model and the machine.
    """

    objective: str = word(
        "step_time",
        "tokens_per_second_per_device",
        "mfu",
        "cost_per_million_tokens",
        "fewest_devices",
        default="step_time",
        doc="what the best layout has the least or the most of; of equal numbers of devices the "
        "fastest step counts",
    )
    axes: str = string(
        default="",
        doc="what may be chosen, as in `tp, pp, schedule`; everything where it is left out",
    )
    most_memory: Real | None = quantity(
        BYTES, default=None, positive=True, doc="that the fullest device may need"
    )
    longest_step: Real | None = quantity(
        SECONDS, default=None, positive=True, doc="that a step may take"
    )
    least_mfu: Real | None = fraction(
        default=None, positive=True, doc="model FLOPs utilisation that a layout must reach"
    )
    least_tokens_per_second: Real | None = quantity(
        ONE, default=None, positive=True, doc="that the whole job must reach"
    )
    most_devices: Real | None = integer(
        default=None, doc="that may be used, where devices are an axis"
    )
    deadline: Real | None = quantity(
        SECONDS, default=None, positive=True, doc="by which all `tokens` have to be trained"
    )
    tokens: Real | None = quantity(
        ONE, default=None, positive=True, doc="to train in all, of which the deadline speaks"
    )
    headroom: Real = fraction(
        default=0.0, doc="of the usable memory of the fullest device, that stays free"
    )
    tolerance: float = fraction(
        default=0.03,
        doc="of the step time: layouts that differ by less are listed with the simpler ones first",
    )
    top: int = integer(default=10, structural=True, doc="layouts that are listed")
    budget: float = quantity(
        SECONDS, default=60.0, doc="time limit of the search; the remaining gap is printed"
    )
