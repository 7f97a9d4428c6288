"""The cost of one micro-batch on a virtual stage: exposed and hidden seconds of each Work."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from attrs import field

from parcost.contract.terms import KERNELS, Pass, Work
from parcost.engine.maxima import total
from parcost.numeric import Real, maximum
from parcost.records import record, replace_values


@record(kw_only=True, eq=False)
class Load:
    """All work of one micro-batch on one virtual stage.

    *counts* are the occurrences of each of *works*, and *shares* its further busy resources.
    *took*, *exposed*, *hidden* and *covered* are the seconds of each work. *covered* seconds are
    hidden by the hosts of the work, and slow them down. The seconds *alone* do not overlap.
    """

    works: Sequence[Work]
    counts: Sequence[float]
    shares: Sequence[Iterable[tuple[str, Real]]]
    took: Sequence[Real]
    alone: Sequence[Real]
    exposed: list[Real]
    hidden: list[Real]
    covered: list[Real]
    seconds: dict[Pass, Real]
    flops: Real
    _busy: dict[tuple[Pass, str], Real] = field(factory=dict, repr=False)  # once asked
    _idle: dict[tuple[Sequence[Pass], str], Real] = field(factory=dict, repr=False)

    @property
    def total(self) -> Real:
        """The seconds of all passes together."""
        found = self.seconds
        return found["F"] + (found["R"] + found["B"]) + found["W"]

    @property
    def kernel_seconds(self) -> Real:
        """The seconds in which kernels run, including the slowdown of compute."""
        works = zip(self.works, self.exposed, strict=True)
        return self.total - total(t for work, t in works if work.resource not in KERNELS)

    def sums(self) -> Load:
        """Return the load without single works: only sums by pass and by resource."""
        self._sum_busy()
        names = ("works", "counts", "shares", "took", "alone", "exposed", "hidden", "covered")
        return replace_values(self, {**dict.fromkeys(names, ()), "flops": 0.0, "_idle": {}})

    def select(self, pick: Callable[[Real], Real]) -> Load:
        """Return the load for some of its candidates, without the seconds of each work.

        *pick* selects them from an array. Works keep their exposed seconds and their slowdown.
        """
        self._sum_busy()
        values = {
            "works": [replace_values(w, {"slowdown": pick(w.slowdown)}) for w in self.works],
            "exposed": [pick(seconds) for seconds in self.exposed],
            "seconds": {name: pick(seconds) for name, seconds in self.seconds.items()},
            "_busy": {key: pick(seconds) for key, seconds in self._busy.items()},
        }
        return replace_values(self.sums(), values)

    def _sum_busy(self) -> None:
        """Sum the busy seconds of each pass and resource."""
        if not self._busy:
            for work, time, shares in zip(self.works, self.took, self.shares, strict=True):
                key = (work.pass_, work.resource)
                self._busy[key] = self._busy.get(key, 0.0) + time
                for other, share in shares:
                    key = (work.pass_, other)
                    self._busy[key] = self._busy.get(key, 0.0) + share * time

    def busy_seconds(self, passes: Iterable[Pass], resource: str) -> Real:
        """Return the seconds of *passes* in which *resource* is busy."""
        self._sum_busy()
        return total(self._busy.get((pass_, resource), 0.0) for pass_ in passes)

    def idle_seconds(self, passes: tuple[Pass, ...], resource: str) -> Real:
        """Return the seconds of *passes* in which *resource* is idle."""
        if (passes, resource) not in self._idle:
            found = -self.busy_seconds(passes, resource)
            for pass_ in passes:
                found = found + self.seconds[pass_]
            self._idle[passes, resource] = maximum(found, 0.0)
        return self._idle[passes, resource]
