"""What layouts are compared by. All follow from the step time, the devices and the batch."""

from __future__ import annotations

from collections.abc import Iterator

from parcost import Objective, Real, Study
from parcost_plugins.vocabulary import Cluster, Price, Training


def all_of(study: Study) -> Iterator[Objective]:
    """Yield the objectives that the study has the figures for."""
    training, cluster = study[Training], study[Cluster]
    devices, tokens = cluster.devices, training.global_batch * training.sequence

    def per_token(seconds: Real) -> Real:
        return seconds * devices / tokens

    yield Objective(
        name="step_time", title="step time", unit="s", cost=lambda s: s, value=lambda cost: cost
    )
    yield Objective(
        name="tokens_per_second_per_device",
        title="tokens per second and device",
        unit="",
        cost=per_token,
        value=lambda cost: 1.0 / cost,
        largest=True,
    )
    peak = getattr(cluster.device, training.precision.compute)
    if peak is not None:
        flops = 3.0 * sum((counted.per_token for counted in study.flops), 0.0)
        yield Objective(
            name="mfu",
            title="model FLOPs utilisation (MFU)",
            unit="%",
            cost=per_token,
            value=lambda cost: flops / (cost * peak),
            largest=True,
        )
    price = study.get(Price)
    if price is not None:
        yield Objective(
            name="cost_per_million_tokens",
            title="price of a million tokens",
            unit="USD",
            cost=per_token,
            value=lambda cost: cost * price.device_hour * 1e6,
        )
