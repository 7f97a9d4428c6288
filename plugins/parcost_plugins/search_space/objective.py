"""Objectives of a search. All follow from the step time, the devices and the batch."""

from __future__ import annotations

from collections.abc import Iterator

from parcost import Objective, Real, Study
from parcost.numeric import floor
from parcost_plugins.physics import flops_per_token
from parcost_plugins.vocabulary import Cluster, Price, Training


def peak_of(study: Study) -> Real | None:
    """Return the peak FLOP/s of a device in the compute type, None if unknown."""
    peak: Real | None = getattr(study[Cluster].device, study[Training].precision.compute)
    return peak


def all_of(study: Study) -> Iterator[Objective]:
    """Yield the objectives, each with the inputs that the study lacks for it."""
    training, cluster = study[Training], study[Cluster]
    devices, tokens = cluster.devices, training.global_batch * training.sequence

    def per_token(seconds: Real) -> Real:
        return seconds * devices / tokens

    yield Objective(
        name="step_time", title="step time", unit="s", cost=lambda s: s, value=lambda cost: cost
    )
    yield Objective(
        name="tokens_per_second_per_device",
        title="tokens/s per device",
        unit="",
        cost=per_token,
        value=lambda cost: 1.0 / cost,
        largest=True,
    )
    peak, compute = peak_of(study), training.precision.compute
    ideal = 1.0 if peak is None else flops_per_token(study) / peak  # device-seconds for a token
    yield Objective(
        name="mfu",
        title="MFU (model FLOPs)",
        unit="%",
        cost=lambda s: per_token(s) / ideal,
        value=lambda cost: 1.0 / cost,
        largest=True,
        short="MFU",
        needs=f"the peak `{compute}` of the device" if peak is None else "",
    )
    price = study.get(Price)
    per_second = 0.0 if price is None else price.device_hour
    yield Objective(
        name="cost_per_million_tokens",
        title="cost per million tokens",
        unit="USD",
        cost=lambda s: per_token(s) * per_second * 1e6,
        value=lambda cost: cost,
        needs="`price { device_hour = 2.50 USD/h }`" if price is None else "",
    )
    yield Objective(
        name="fewest_devices",
        title="number of devices",
        unit="",
        # The fastest of equally many: less than one device is added for its step.
        cost=lambda s: devices + s / (1.0 + s),
        value=floor,
    )
