"""Pairs: a forward and a backward pass that run together; each hides communication of the other.

Kernels of both halves alternate on the device. Communication of one half overlaps with kernels of
the other. The order within a half is fixed. So a pair takes at least the largest of three times:
its longer half, all its kernels with their slowdown, and all its messages on one resource. It never
takes longer than both halves in sequence.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from parcost.contract.terms import KERNELS, Work
from parcost.engine.load import Load
from parcost.engine.maxima import total
from parcost.engine.replay import PipelinePlan
from parcost.numeric import Real, any_of, maximum, where
from parcost.records import record


@record(kw_only=True, eq=False)
class PairTimes:
    """The times of a pair: its *seconds*, and the *exposed* seconds of each work in each half.

    *gain* is the time in seconds that the pair saves over both halves in sequence.
    """

    seconds: Real
    exposed: Mapping[int, Real]
    gain: Real
    works: int

    @property
    def hidden_seconds(self) -> Sequence[Real]:
        """The seconds of each work that are hidden in the pair and exposed outside."""
        found: list[Real] = [0.0] * self.works
        messages = total(self.exposed.values())
        for i, time in self.exposed.items():
            found[i] = self.gain * (time / where(messages > 0, messages, 1.0))
        return found


def pair_times(forward: Load, backward: Load, share: Real) -> PairTimes:
    """Return the times of a pair that achieves a *share* of the possible gain."""
    first = forward.seconds["F"]
    second = backward.seconds["R"] + backward.seconds["B"] + backward.seconds["W"]
    apart = first + second
    halves = {"F": forward}
    exposed: dict[int, Real] = {}
    slowed: dict[float, Real] = {}
    kernels = apart
    for i, work in enumerate(forward.works):
        time = halves.get(work.pass_, backward).exposed[i]
        if work.resource in KERNELS or not any_of(time != 0):
            continue
        exposed[i] = time
        if isinstance(work.slowdown, float):
            slowed[work.slowdown] = slowed.get(work.slowdown, 0.0) + time
        else:
            kernels = kernels - time + work.slowdown * time
    for slowdown, time in slowed.items():
        kernels = kernels - (1.0 - slowdown) * time
    if not exposed:
        return PairTimes(seconds=apart, exposed={}, gain=0.0, works=len(forward.works))
    least = maximum(maximum(first, second), kernels)
    for resource in _resources(forward):  # hidden or not, it is busy
        busy = forward.busy_seconds(("F",), resource) + backward.busy_seconds(
            ("R", "B", "W"), resource
        )
        least = maximum(least, busy)
    gain = share * maximum(apart - least, 0.0)
    return PairTimes(seconds=apart - gain, exposed=exposed, gain=gain, works=len(forward.works))


def _resources(load: Load) -> set[str]:
    """Return the resources that the works of a load keep busy, except those of kernels."""
    found = {work.resource for work in load.works if work.resource not in KERNELS}
    return found.union(*(work.also for work in load.works))


class PlanPairs:
    """The pairs of a plan: their times, and the seconds that they hide on each device."""

    def __init__(self, plan: PipelinePlan, works: Sequence[Work], loads: Sequence[Load]) -> None:
        """Compute all pairs; *loads* has one load per virtual stage, and equal stages share one
        object.
        """
        self._plan = plan
        self._works = works
        known: dict[tuple[int, int], PairTimes] = {}
        self._found: dict[tuple[int, int], PairTimes] = {}
        for x, y in plan.pairs:
            key = (id(loads[x]), id(loads[y]))
            if key not in known:
                known[key] = pair_times(loads[x], loads[y], plan.pipeline.overlap)
            self._found[x, y] = known[key]

    @property
    def seconds(self) -> Mapping[tuple[int, int], Real]:
        """The seconds of each pair, by virtual stages."""
        return {both: pair.seconds for both, pair in self._found.items()}

    def find(self, forward: int, backward: int) -> PairTimes:
        """Return the pair of an F and a BW on these virtual stages."""
        return self._found[forward, backward]

    def hidden_seconds(self, d: int) -> Sequence[Real]:
        """Return the seconds of each work that the pairs of device *d* hide in a step."""
        found: list[Real] = [0.0] * len(self._works)
        for both, pair in self._found.items():
            often = self._plan.pair_count(d, *both)
            found = [
                sum_ + often * more for sum_, more in zip(found, pair.hidden_seconds, strict=True)
            ]
        return found
