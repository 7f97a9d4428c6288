"""Compute and communication by level, and the sufficient bandwidth of each.

The times are per step: busy time of a device by compute, and of each level by collectives, hidden
or not. Their ratio limits the overlap: communication that takes longer than compute cannot be
hidden completely. The exposed time is the part that is not hidden. The sufficient bandwidth of a
level comes from an evaluation of the step at many bandwidths of that level. It is the smallest at
which the step is within ``targets.slack`` of the step with an infinite bandwidth. All other values,
overlap included, stay unchanged.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from parcost import (
    Curve,
    Figure,
    Formula,
    Outcome,
    Real,
    Section,
    Study,
    formula,
    record,
)
from parcost_plugins.analysis.advice import changes
from parcost_plugins.vocabulary import Cluster, Plan, Targets, Training

_COMPUTE = ("compute", "hbm")  # a wait, or a transfer to the host, is neither
_SEARCHED = (1e-3, 1e3)  # times the present bandwidth
_GRID = 61  # points of each of two passes

_RATIO = (
    "busy / compute: busy seconds of the level / seconds of compute; above 1 transfers cannot be "
    "hidden completely"
)
_WOULD_DO = (
    "sufficient: lowest bandwidth of a port for a step time within {slack:.0%} of an unlimited "
    "link, with the present overlap"
)


@record(kw_only=True, eq=False)
class LevelUse:
    """A level that the step uses, with seconds per step on the busiest device."""

    name: str
    level: Any
    bandwidth: Real  # of a device, for long messages
    busy: Real
    exposed: Real
    compute: Real

    @property
    def ratio(self) -> Real:
        """Communication over computation."""
        return self.busy / self.compute


def level_uses(study: Study, outcome: Outcome) -> list[LevelUse]:
    """Return the levels that the step uses, from the innermost outwards."""
    lines = [line for line in outcome.ledger if line.kind in ("work", "send_recv", "once")]
    names = {level.label: level for level in _levels(study)}
    compute = _sum(x.exposed + x.hidden for x in lines if x.resource in _COMPUTE)
    found = []
    for link in study.group("job").links:
        busy = _sum(x.exposed + x.hidden for x in lines if x.limit == link.name)
        exposed = _sum(x.exposed for x in lines if x.limit == link.name)
        if link.name in names and _is_nonzero(busy) and _is_nonzero(compute):
            found.append(
                LevelUse(
                    name=link.name,
                    level=names[link.name],
                    bandwidth=link.bandwidth,
                    busy=busy,
                    exposed=exposed,
                    compute=compute,
                )
            )
    return found


def _levels(study: Study) -> Sequence[Any]:
    return study[Cluster].fabric.levels


def _sum(values: Iterator[Real]) -> Real:
    return sum(values, 0.0)


def _is_nonzero(value: Real) -> bool:
    from parcost.numeric import any_of

    return any_of(value > 0)


def figures(study: Study, outcome: Outcome) -> Iterator[Figure]:
    """Yield ridge and ratio of each level, and the sufficient bandwidth."""
    compute = study[Training].precision.compute
    peak = getattr(study[Cluster].device, compute)
    levels = level_uses(study, outcome)
    wanted = {} if study.axes else sufficient_bandwidths(study, levels)
    for at in levels:
        if peak is not None:
            yield Figure(
                name=f"ridge.{at.name}",
                title=f"ridge point of {at.name}",
                value=formula("F / B", F=(peak, "FLOP/s"), B=(at.bandwidth, "B/s")),
                unit="",
                note=f"{compute} FLOPs per byte sent by one device",
            )
        yield Figure(
            name=f"communication_to_computation.{at.name}",
            title=f"communication / computation, {at.name}",
            value=formula("busy / compute", busy=(at.busy, "s"), compute=(at.compute, "s")),
            unit="",
            note="busy seconds of a step, hidden or exposed",
        )
        if (needed := wanted.get(at.name)) is not None:
            yield Figure(
                name=f"needed_bandwidth.{at.name}",
                title=f"lowest bandwidth of {at.name} within the slack",
                value=Formula(
                    text="lowest B for a step time within the slack of infinite B",
                    inputs={"slack": study[Targets].slack},
                    value=needed,
                ),
                unit="GB/s",
                note="of one port, in one direction, other values unchanged",
            )


def sufficient_bandwidths(study: Study, levels: Sequence[LevelUse]) -> dict[str, float]:
    """Return the sufficient bandwidth in B/s of each level, by name.

    Levels with measured times, and levels where no tried bandwidth suffices, are left out. All
    levels are searched in one evaluation, each in its own points with the other levels unchanged.
    """
    import numpy as np

    sought = [at for at in levels if not isinstance(at.level.bandwidth, Curve)]
    least, most = _SEARCHED
    ends = {at.name: (at.level.bandwidth * least, at.level.bandwidth * most) for at in sought}
    for _ in range(2):
        sought = [at for at in sought if at.name in ends]
        if not sought:
            return {}
        count = _GRID + 1
        values = {}
        for i, at in enumerate(sought):
            now = at.level.bandwidth
            tried = np.geomspace(*ends[at.name], _GRID)
            tried[-1] = ends[at.name][1]
            whole = np.full(count * len(sought), now)
            whole[i * count : (i + 1) * count] = np.append(tried, now * 1e9)
            values[at.level, "bandwidth"] = whole
        outcome = changes.evaluate_arrays(study, values)
        if outcome is None:
            return {}
        steps = changes.points(outcome, count * len(sought))
        for i, at in enumerate(sought):
            here = slice(i * count, (i + 1) * count)
            tried, own = values[at.level, "bandwidth"][here][:-1], steps[here]
            does = own[:-1] <= own[-1] * (1.0 + study[Targets].slack)
            first = int(np.argmax(does))
            if does.any():
                ends[at.name] = (tried[max(first - 1, 0)], tried[first])
            else:
                del ends[at.name]
    return {name: float(high) for name, (_, high) in ends.items()}


def regime(ratio: float, targets: Targets) -> str:
    """Return the name of a regime, such as compute-bound, from communication time / compute
    time.
    """
    if ratio <= float(targets.compute_bound):
        return "compute-bound"
    if ratio <= float(targets.near_ridge):
        return "near the ridge point"
    if ratio <= float(targets.communication_bound):
        return "communication-bound"
    return "strongly communication-bound"


def section(study: Study, outcome: Outcome) -> Iterator[Section]:
    """Yield the table of levels; with a plan or a target, with sufficient bandwidths.

    It is found by evaluating the step at many bandwidths.
    """
    levels = level_uses(study, outcome)
    if not levels:
        return
    targets = study[Targets]
    aims = (targets.step_time, targets.mfu, targets.bubble)
    asked = study.get(Plan) is not None or any(aim is not None for aim in aims)
    wanted = sufficient_bandwidths(study, levels) if asked else {}
    rows: list[tuple[Any, ...]] = []
    for at in levels:
        now = at.level.bandwidth
        row: tuple[Any, ...] = (
            at.name,
            (at.busy, "s"),
            (at.exposed, "s"),
            at.ratio,
            regime(float(at.ratio), targets),
            "measured" if isinstance(now, Curve) else (now, "B/s"),
        )
        if asked:
            needed = wanted.get(at.name)
            row = (*row, "none does" if needed is None else (needed, "B/s"))
        rows.append(row)
    columns = ("level", "busy", "exposed", "busy / compute", "regime", "bandwidth")
    yield Section(
        title="Compute and communication by level",
        columns=(*columns, "sufficient") if asked else columns,
        rows=rows,
        notes=[_RATIO, _WOULD_DO.format(slack=targets.slack)] if asked else [_RATIO],
    )
