"""Flows at once over shared links, each with its max-min fair share."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import inf

from attrs import frozen

from parcost import Check, Figure, Real, called
from parcost.numeric import is_array, maximum
from parcost_plugins.networks.saying import Sayer
from parcost_plugins.vocabulary import Sharing

_SOURCE = "Bertsekas and Gallager 1992, 6.5.2: max-min fair shares by progressive filling"


@frozen(kw_only=True)
class Moving:
    """So many bytes over these resources, from *start* on."""

    bytes_: float
    over: Sequence[str]
    start: float = 0.0


def fair_rates(
    flows: Mapping[str, Sequence[str]], bandwidths: Mapping[str, float]
) -> dict[str, float]:
    """Return the max-min fair rate of every flow over its resources.

    All rates grow alike until some resource is full; its flows stay there and the others
    grow on.

    >>> fair_rates({"a": ["nic"], "b": ["nic", "uplink"]}, {"nic": 50.0, "uplink": 10.0})
    {'b': 10.0, 'a': 40.0}
    """
    left, growing = dict(bandwidths), dict(flows)
    rates: dict[str, float] = {}
    while growing:
        shares = {
            name: left[name] / users
            for name in left
            if (users := sum(name in over for over in growing.values()))
        }
        if not shares:
            return {**rates, **dict.fromkeys(growing, inf)}
        full = min(shares, key=lambda name: shares[name])
        for flow in [flow for flow, over in growing.items() if full in over]:
            rates[flow] = shares[full]
            for name in growing.pop(flow):
                left[name] = max(left[name] - shares[full], 0.0)
    return rates


def finish(flows: Mapping[str, Moving], bandwidths: Mapping[str, float]) -> dict[str, float]:
    """Return when every flow is done, as shares change with those that come and go.

    >>> short, long = Moving(bytes_=1.0, over=["nic"]), Moving(bytes_=3.0, over=["nic"])
    >>> finish({"short": short, "long": long}, {"nic": 1.0})
    {'short': 2.0, 'long': 4.0}
    """
    left = {name: flow.bytes_ for name, flow in flows.items()}
    done: dict[str, float] = {}
    now = 0.0
    while left:
        active = {n: flows[n].over for n in left if flows[n].start <= now}
        rates = fair_rates(active, bandwidths)
        arrivals = [flows[n].start - now for n in left if n not in active]
        ends = {n: left[n] / rates[n] if left[n] else 0.0 for n in active}
        step = min([*arrivals, *ends.values()])
        now += step
        for name in active:
            if ends[name] <= step:
                done[name] = now
                del left[name]
            else:
                left[name] -= rates[name] * step
    return done


def flows(sharing: Sharing) -> Iterator[Figure | Check]:
    """Yield when each flow of *sharing* ends, and what each resource is busy for."""
    label = called(sharing)
    known = {called(resource): resource.bandwidth for resource in sharing.resources}
    moving = {called(flow): flow for flow in sharing.flows}
    unknown = [
        (name, part) for name, f in moving.items() for part in f.over.split() if part not in known
    ]
    yield Check(
        id="flow-over-nothing",
        holds=not unknown and bool(moving) and all(f.over.split() for f in moving.values()),
        subject=f"{label}.flow",
        message="`{label}` has {what}",
        inputs={
            "label": label,
            "what": f"a flow `{unknown[0][0]}` over `{unknown[0][1]}`, which it does not describe"
            if unknown
            else "no flow over any resource",
        },
        help=f"its resources are {', '.join(f'`{name}`' for name in known) or 'none'}",
    )
    numbers = [*known.values(), *(n for f in moving.values() for n in (f.bytes, f.start))]
    yield Check(
        id="sharing-sweep",
        holds=not is_array(*numbers),
        subject=f"{label}.flow",
        message="`{label}` is a sweep, and flows are followed one point at a time",
        inputs={"label": label},
        help="write a study for each point",
    )
    if unknown or is_array(*numbers) or not all(f.over.split() for f in moving.values()):
        return
    say = Sayer(sharing, _SOURCE)
    ends = finish(
        {
            name: Moving(bytes_=float(f.bytes), over=f.over.split(), start=float(f.start))
            for name, f in moving.items()
        },
        {name: float(rate) for name, rate in known.items()},
    )
    for name, flow in moving.items():
        given = {"n": (flow.bytes, "B")}
        yield say(name, f"flow {name} ends", ends[name], "s", "bytes over changing shares", given)
    longest: Real = 0.0
    for name, rate in known.items():
        total = sum((f.bytes for f in moving.values() if name in f.over.split()), 0.0)
        longest = maximum(longest, total / rate)
        given = {"n": (total, "B"), "B": (rate, "B/s")}
        yield say(f"{name}_seconds", f"{name} is busy", total / rate, "s", "all bytes / B", given)
    yield say("bound", "the busiest resource", longest, "s", "the longest of them", {})
    last = max(ends.values())
    yield say("seconds", "the last flow ends", last, "s", "the last of them", {})
