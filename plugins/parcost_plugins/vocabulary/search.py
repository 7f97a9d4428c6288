"""The goal of a layout search: ``search { objective = mfu, most_memory = 70 GiB }``."""

from __future__ import annotations

from parcost import BYTES, ONE, SECONDS, Real, block, fraction, integer, quantity, string, word


@block("search", label="none")
class Search:
    """The objective of `parcost search`, its limits and its axes.

    Axes are the sweeps of the study, with their values, and the axes in this block. If no axes are
    named, `parcost search` chooses them for the model and the machine.
    """

    objective: str = word(
        "step_time",
        "tokens_per_second_per_device",
        "mfu",
        "cost_per_million_tokens",
        "fewest_devices",
        default="step_time",
        doc=(
            "figure to minimise or maximise; among equal numbers of devices the fastest step wins"
        ),
    )
    axes: str = string(
        default="",
        doc="axes of the search, as in `tp, pp, schedule`; by default all",
    )
    most_memory: Real | None = quantity(
        BYTES, default=None, positive=True, doc="largest memory on the device with the highest peak"
    )
    longest_step: Real | None = quantity(
        SECONDS, default=None, positive=True, doc="longest step time"
    )
    least_mfu: Real | None = fraction(
        default=None,
        positive=True,
        doc="smallest model FLOPs utilisation (MFU) of a layout",
    )
    least_tokens_per_second: Real | None = quantity(
        ONE, default=None, positive=True, doc="fewest tokens per second of the whole job"
    )
    most_devices: Real | None = integer(
        default=None, doc="largest number of devices, if devices are an axis"
    )
    deadline: Real | None = quantity(
        SECONDS, default=None, positive=True, doc="time within which all `tokens` must be trained"
    )
    tokens: Real | None = quantity(
        ONE, default=None, positive=True, doc="tokens to train until the deadline"
    )
    headroom: Real = fraction(
        default=0.0,
        doc="share of the usable memory to keep free, on the device with the highest peak",
    )
    tolerance: float = fraction(
        default=0.03,
        doc=("relative difference of step times below which simpler layouts are listed first"),
    )
    top: int = integer(default=10, structural=True, doc="number of listed layouts")
    budget: float = quantity(
        SECONDS, default=60.0, doc="time limit of the search; the remaining gap is printed"
    )
