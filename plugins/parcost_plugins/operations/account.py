"""What a run takes: days, device-hours, money, energy, carbon dioxide.

A device that waits for a restart is paid for like one that works, so everything counts
wall time. It is taken to draw the same as well, which is a little too much.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from parcost import Figure, Formula, Real, Study
from parcost.numeric import minimum, ratio
from parcost_plugins.vocabulary import Cluster, Energy, Price, Run

if TYPE_CHECKING:
    from parcost_plugins.operations.known import Speed

MILLION = 1e6


def account(study: Study, speed: Speed) -> tuple[list[Figure], list[Figure]]:
    """Return the headline figures of a run at *speed*, and what is made on demand."""
    run, price, energy = study.get(Run), study.get(Price), study.get(Energy)
    headline: list[Figure] = []
    further = [_rate(speed)]
    seconds = None if run is None else ratio(run.tokens, speed.tokens)
    if run is not None and seconds is not None:
        headline += _length(run, speed, seconds)
    if price is not None:
        headline += _cost(price, speed, seconds)
    if energy is not None:
        drawn = draw(study, energy)
        if drawn is not None:
            shown, more = _energy(energy, drawn, speed, seconds)
            headline += shown
            further += more
    return headline, further


def draw(study: Study, energy: Energy) -> Real | None:
    """Return what the site draws for one device, or None where nothing says its power."""
    power = energy.power
    cluster = study.get(Cluster)
    if power is None and cluster is not None:
        device = cluster.device
        power = device.power
        if power is not None and device.power_cap is not None:
            power = minimum(power, device.power_cap)
    if power is None:
        return None
    share = energy.idle_power + (1.0 - energy.idle_power) * energy.activity
    return power * share * energy.host_power * energy.pue


def _rate(speed: Speed) -> Figure:
    return Figure(
        name="effective_tokens_per_second",
        title="tokens per second of wall time",
        value=speed.tokens,
        unit="",
        formula=Formula(
            text="speed x goodput",
            inputs={
                "goodput": (speed.useful, ""),
                "speed": (ratio(speed.tokens, speed.useful), ""),
            },
            source=speed.source,
        ),
    )


def _length(run: Run, speed: Speed, seconds: Real) -> Iterator[Figure]:
    inputs = {"D": (run.tokens, ""), "r": (speed.tokens, "")}
    yield Figure(
        name="days",
        title="length of the run",
        value=seconds,
        unit="day",
        formula=Formula(text="D / r, D tokens at r per second", inputs=inputs, source=speed.source),
        note="of wall time",
    )
    yield Figure(
        name="gpu_hours",
        title="device-hours of the run",
        value=seconds * speed.devices,
        unit="h",
        formula=Formula(
            text="N D / r", inputs={**inputs, "N": (speed.devices, "")}, source=speed.source
        ),
    )


def _cost(price: Price, speed: Speed, seconds: Real | None) -> Iterator[Figure]:
    rate = speed.devices * price.device_hour
    hourly = {"N": (speed.devices, ""), "c": (price.device_hour, "USD/h")}
    if seconds is not None:
        yield Figure(
            name="cost",
            title="cost of the run",
            value=rate * seconds,
            unit="USD",
            formula=Formula(text="N c T", inputs={**hourly, "T": (seconds, "s")}),
        )
    yield Figure(
        name="cost_per_million_tokens",
        title="cost per million tokens",
        value=ratio(rate, speed.tokens) * MILLION,
        unit="USD",
        formula=Formula(text="N c / r x 1e6", inputs={**hourly, "r": (speed.tokens, "")}),
    )


def _energy(
    energy: Energy, drawn: Real, speed: Speed, seconds: Real | None
) -> tuple[list[Figure], list[Figure]]:
    site = drawn * speed.devices
    formula = Formula(
        text="N P (i + (1 - i) a) k PUE, P design power, i idle, a activity, k hosts and network",
        inputs={
            "N": (speed.devices, ""),
            "i": (energy.idle_power, ""),
            "a": (energy.activity, ""),
            "k": (energy.host_power, ""),
            "PUE": (energy.pue, ""),
        },
        source="shares of the design power, times what stands beside the devices",
    )
    headline: list[Figure] = []
    if seconds is not None:
        headline.append(
            Figure(
                name="energy",
                title="energy of the run",
                value=site * seconds,
                unit="MWh",
                formula=Formula(text="P T", inputs={"P": (site, "W"), "T": (seconds, "s")}),
                note="of devices, hosts, network and cooling",
            )
        )
        if energy.intensity is not None:
            headline.append(
                Figure(
                    name="carbon",
                    title="carbon dioxide of the run",
                    value=site * seconds * energy.intensity,
                    unit="kg",
                    formula=Formula(
                        text="E g",
                        inputs={"E": (site * seconds, "J"), "g": (energy.intensity, "g/J")},
                    ),
                )
            )
    per_million = ratio(site, speed.tokens) * MILLION
    further = [
        Figure(
            name="site_power",
            title="power drawn for the job",
            value=site,
            unit="W",
            formula=formula,
        ),
        Figure(
            name="energy_per_million_tokens",
            title="energy per million tokens",
            value=per_million,
            unit="kWh",
            formula=Formula(text="P / r x 1e6", inputs={"P": (site, "W"), "r": (speed.tokens, "")}),
        ),
    ]
    return headline, further
