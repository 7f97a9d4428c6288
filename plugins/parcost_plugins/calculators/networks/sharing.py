"""Concurrent flows over shared links, each with its max-min fair share."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from parcost import Check, Figure, Formula, Real, Sheet, block_name, record
from parcost.numeric import is_array
from parcost_plugins.calculators.rulebook import RULES
from parcost_plugins.vocabulary import Flow, Sharing

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Uses = NDArray[np.float64]  # 1 where a flow, by row, goes over a resource, by column

_MOST = 100_000  # flows times resources: some seconds
_SOURCE = "Bertsekas and Gallager 1992, 6.5.2: max-min fair shares by progressive filling"


@record(kw_only=True)
class ActiveFlow:
    """A flow of *bytes_* over some resources, from *start* (seconds) on."""

    bytes_: float
    over: Sequence[str]
    start: float = 0.0


def finish(flows: Mapping[str, ActiveFlow], bandwidths: Mapping[str, float]) -> dict[str, float]:
    """Return the end of every flow in seconds, with fair shares that change as flows start and end.

    >>> short, long = ActiveFlow(bytes_=1.0, over=["nic"]), ActiveFlow(bytes_=3.0, over=["nic"])
    >>> finish({"short": short, "long": long}, {"nic": 1.0})
    {'short': 2.0, 'long': 4.0}
    """
    import numpy as np

    uses = _uses([flow.over for flow in flows.values()], bandwidths)
    rate_of = np.array([*bandwidths.values()])
    left = np.array([flow.bytes_ for flow in flows.values()])
    starts = np.array([flow.start for flow in flows.values()])
    done = np.full(len(flows), np.inf)
    now = 0.0
    while (waiting := np.isinf(done)).any():
        active = np.flatnonzero(waiting & (starts <= now))
        later = starts[waiting & (starts > now)]
        rates = _fill(uses[active], rate_of)
        needed = left[active] / rates
        step = float(min(later.min(initial=np.inf) - now, needed.min(initial=np.inf)))
        now += step
        ended = needed <= step
        done[active[ended]] = now
        left[active[~ended]] -= rates[~ended] * step
    order = np.argsort(done, kind="stable")
    names = list(flows)
    return {names[i]: float(done[i]) for i in order}


def _uses(flows: Iterable[Sequence[str]], resources: Iterable[str]) -> Uses:
    """Return a boolean matrix of flows by resources: whether the flow uses the resource."""
    import numpy as np

    place = {name: i for i, name in enumerate(resources)}
    listed = [[place[name] for name in over if name in place] for over in flows]
    found = np.zeros((len(listed), len(place)))
    for row, over in enumerate(listed):
        found[row, over] = 1.0
    return found


def _fill(uses: Uses, bandwidths: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return max-min fair rates in B/s: all rates grow together until a resource is full.

    Then the flows of this resource keep their rate, and the others grow further.
    """
    import numpy as np

    left = bandwidths.astype(float)
    users = uses.sum(axis=0)
    rates = np.full(len(uses), np.inf)
    growing = np.ones(len(uses), dtype=bool)
    while users.any():
        shares = np.where(users > 0, left / np.maximum(users, 1.0), np.inf)
        full = int(shares.argmin())
        stay = growing & (uses[:, full] > 0)
        rates[stay] = shares[full]
        growing &= ~stay
        gone = uses[stay].sum(axis=0)
        left = np.maximum(left - shares[full] * gone, 0.0)
        users = users - gone
    return rates


def flows(sharing: Sharing) -> Iterator[Figure | Check]:
    """Yield the end time of each flow of *sharing*, and the busy time of each resource."""
    label = block_name(sharing)
    known = {block_name(resource): resource.bandwidth for resource in sharing.resources}
    moving = {block_name(flow): flow for flow in sharing.flows}
    unknown = [
        (name, part) for name, f in moving.items() for part in f.over.split() if part not in known
    ]
    yield RULES.check(
        "flow-over-nothing",
        not unknown and bool(moving) and all(f.over.split() for f in moving.values()),
        f"{label}.flow",
        help=f"write one of its resources: {', '.join(f'`{name}`' for name in known) or 'none'}",
        label=label,
        what=f"a flow `{unknown[0][0]}` over `{unknown[0][1]}`, but no resource of this name"
        if unknown
        else "no flow over any resource",
    )
    numbers = [*known.values(), *(n for f in moving.values() for n in (f.bytes, f.start))]
    yield RULES.check("sharing-sweep", not is_array(*numbers), f"{label}.flow", label=label)
    size = len(moving) * len(known)
    yield RULES.check(
        "sharing-size",
        size <= _MOST,
        f"{label}.flow",
        flows=len(moving),
        resources=len(known),
        size=size,
        most=_MOST,
    )
    nowhere = unknown or not moving or not all(f.over.split() for f in moving.values())
    if nowhere or size > _MOST or is_array(*numbers):
        return
    yield from _ends(Sheet(label, source=_SOURCE), moving, known)


def _ends(sheet: Sheet, moving: Mapping[str, Flow], known: Mapping[str, Real]) -> Iterator[Figure]:
    """Yield the end of each flow in *moving* over resources of *known* bandwidth, in B/s."""
    ends = finish(
        {
            name: ActiveFlow(bytes_=float(f.bytes), over=f.over.split(), start=float(f.start))
            for name, f in moving.items()
        },
        {name: float(rate) for name, rate in known.items()},
    )
    done: dict[str, Formula] = {}
    for name, flow in moving.items():
        done[name] = Formula(
            text="bytes over shares that change, followed from one end of a flow to the next",
            inputs={"n": (flow.bytes, "B"), "start": (flow.start, "s")},
            source=_SOURCE,
            value=ends[name],
        )
        yield sheet(name, f"end of flow {name}", "s", done[name])
    busy: dict[str, Formula] = {}
    for name, rate in known.items():
        bytes_ = {other: f.bytes for other, f in moving.items() if name in f.over.split()}
        busy[name] = sheet.formula("sum(n) / B", n=(bytes_, "B"), B=(rate, "B/s"))
        yield sheet(f"{name}_seconds", f"busy time of {name}", "s", busy[name])
    yield sheet(
        "bound", "lower bound (busy time of the busiest resource)", "s", "max(t)", t=(busy, "s")
    )
    yield sheet("seconds", "end of the last flow", "s", "max(t)", t=(done, "s"))
