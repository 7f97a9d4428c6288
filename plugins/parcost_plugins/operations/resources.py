"""The resources of a run: days, device-hours, cost, energy, carbon dioxide.

A device that waits for a restart costs as much as a working one, so all figures use wall time. Its
power is assumed to be the average of a step, which is slightly too high.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

from parcost import Figure, Formula, MissingFigure, Real, Study, attribute, formula
from parcost.numeric import minimum, ratio
from parcost_plugins.vocabulary import Cluster, Energy, Price, Run
from parcost_plugins.vocabulary.anchor import step_time_note

if TYPE_CHECKING:
    from parcost_plugins.operations.speed import Speed


_RUN = "`run { tokens = 15 T tokens }`"
_PRICE = "`price { device_hour = 2.50 USD/h }`"
_ENERGY = "`energy { }`"
_INTENSITY = "`energy { intensity = 400 g/kWh }`"
_POWER = "the power of the device (`device.power` or `energy.power`)"
_NEEDS = {
    "days": (_RUN,),
    "gpu_hours": (_RUN,),
    "cost": (_RUN, _PRICE),
    "cost_per_million_tokens": (_PRICE,),
    "energy": (_RUN, _ENERGY, _POWER),
    "carbon": (_RUN, _ENERGY, _INTENSITY, _POWER),
    "site_power": (_ENERGY, _POWER),
    "energy_per_million_tokens": (_ENERGY, _POWER),
}


def resource_figures(study: Study, speed: Speed) -> tuple[list[Figure], list[Figure]]:
    """Return the headline figures of a run at *speed*, and its details."""
    run, price, energy = study.get(Run), study.get(Price), study.get(Energy)
    headline: list[Figure] = []
    further = [_rate(speed)]
    seconds: Real | None = None
    if run is not None:
        seconds = ratio(run.tokens, speed.tokens)
        headline += _length(run, speed, step_time_note(study))
    if price is not None:
        headline += _cost(price, speed, seconds, step_time_note(study))
    if energy is not None:
        drawn = draw(study, energy, speed.busy)
        if drawn is not None:
            shown, more = _energy(energy, drawn, speed, seconds)
            headline += shown
            further += more
    return headline, further


def needs(study: Study) -> Iterator[MissingFigure]:
    """Return each figure that cannot be computed, with the blocks and attributes that it needs."""
    energy, cluster = study.get(Energy), study.get(Cluster)
    power = energy is not None and energy.power is not None
    power = power or (cluster is not None and cluster.device.power is not None)
    given = {
        _RUN: study.get(Run) is not None,
        _PRICE: study.get(Price) is not None,
        _ENERGY: energy is not None,
        _POWER: power,
        _INTENSITY: energy is not None and energy.intensity is not None,
    }
    for name, wanted in _NEEDS.items():
        lacks = [what for what in wanted if not given[what]]
        if _INTENSITY in lacks and _ENERGY in lacks:
            lacks.remove(_ENERGY)
        if lacks:
            yield MissingFigure(name=name, needs=" and ".join(lacks))


def draw(study: Study, energy: Energy, busy: Real | Formula = 1.0) -> Formula | None:
    """Return the site power per device in W, None if it is unknown.

    *busy* is the share of time in which the device computes.
    """
    power = energy.power
    cluster = study.get(Cluster)
    if power is None and cluster is not None:
        device = cluster.device
        power = device.power
        if power is not None and device.power_cap is not None:
            power = minimum(power, device.power_cap)
    if power is None:
        return None
    return formula(
        "P (i + (1 - i) (a b + w (1 - b))) k PUE, P design power, i idle, a activity in the share "
        "b that computes, w activity in the rest that waits, k hosts and network",
        P=(power, "W"),
        i=energy.idle_power,
        a=energy.activity,
        b=busy,
        w=energy.waiting_activity,
        k=energy.host_power,
        PUE=energy.pue,
        origins=partial(_shares_of_power, energy),
        source="shares of the design power, times hosts, network and cooling",
    )


def _shares_of_power(energy: Energy) -> dict[str, Formula]:
    names = {
        "i": "idle_power",
        "a": "activity",
        "w": "waiting_activity",
        "k": "host_power",
        "PUE": "pue",
    }
    return {symbol: attribute(energy, name) for symbol, name in names.items()}


def _rate(speed: Speed) -> Figure:
    return Figure(
        name="effective_tokens_per_second",
        title="tokens per second of wall time",
        value=_wall_rate(speed),
        unit="",
    )


def _wall_rate(speed: Speed) -> Formula:
    return formula(
        "speed goodput",
        goodput=speed.useful,
        speed=ratio(speed.tokens, speed.useful),
        source=speed.source,
    )


def _length(run: Run, speed: Speed, kind: str) -> Iterator[Figure]:
    of_time = ", ".join(filter(None, ("wall time", kind)))
    inputs = {"D": (run.tokens, ""), "r": (_wall_rate(speed), "")}
    yield Figure(
        name="days",
        title="training time",
        value=formula("D / r, D tokens at r per second of wall time", inputs),
        unit="day",
        note=of_time,
        brief=of_time,
    )
    yield Figure(
        name="gpu_hours",
        title="device-hours of the run",
        value=formula("N D / r", {**inputs, "N": (speed.devices, "")}),
        unit="h",
    )


def _cost(price: Price, speed: Speed, seconds: Real | None, kind: str) -> Iterator[Figure]:
    hourly = {"N": (speed.devices, ""), "c": (price.device_hour, "USD/h")}
    if seconds is not None:
        yield Figure(
            name="cost",
            title="training cost",
            value=formula("N c T", {**hourly, "T": (seconds, "s")}),
            unit="USD",
            brief=kind,
        )
    yield Figure(
        name="cost_per_million_tokens",
        title="cost per million tokens",
        value=formula("ratio(N c, r) 1e6", hourly, r=speed.tokens),
        unit="USD",
        brief="" if seconds is None else None,
    )


def _energy(
    energy: Energy, drawn: Formula, speed: Speed, seconds: Real | None
) -> tuple[list[Figure], list[Figure]]:
    site = formula("N P, P by device", N=speed.devices, P=(drawn, "W"))
    headline: list[Figure] = []
    if seconds is not None:
        headline.append(
            Figure(
                name="energy",
                title="training energy",
                value=formula("P T", P=(site, "W"), T=(seconds, "s")),
                unit="MWh",
                note="including devices, hosts, network and cooling",
                brief="devices, hosts, network, cooling",
            )
        )
        if energy.intensity is not None:
            headline.append(
                Figure(
                    name="carbon",
                    title="CO2 emissions",
                    value=formula(
                        "E g",
                        E=(formula("P T", P=(site, "W"), T=(seconds, "s")), "J"),
                        g=(energy.intensity, "g/kWh"),
                    ),
                    unit="kg",
                    brief="",
                )
            )
    further = [
        Figure(name="site_power", title="power drawn for the job", value=site, unit="W"),
        Figure(
            name="energy_per_million_tokens",
            title="energy per million tokens",
            value=formula("ratio(P, r) 1e6", P=(site, "W"), r=speed.tokens),
            unit="kWh",
        ),
    ]
    return headline, further
