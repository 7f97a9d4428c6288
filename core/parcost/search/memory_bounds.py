"""Lower bounds of peak memory for layouts of many structures under one schedule, at once.

Each structure has a few devices that may have the highest memory. Their copies of each kind, and
the micro-batches in flight, are arrays over the points of all structures.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import TYPE_CHECKING, Any

import numpy as np

from parcost.engine.memory import DeviceMemory
from parcost.numeric import maximum
from parcost.records import replace_values

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from parcost.contract.terms import Memory, Moment
    from parcost.engine.orders import AliveCounts
    from parcost.numeric import Real
    from parcost.search.timing import SketchPlan


def peak_memory(
    terms: Sequence[Memory],
    plans: Sequence[SketchPlan],
    kinds: Sequence[Sequence[int]],
    micro_batches: Sequence[NDArray[np.float64]],
) -> Real:
    """Return the peak memory over all devices in bytes, at the points of all structures.

    A structure has a plan, the kind of each virtual stage, and the micro-batches at each of its
    points. The counts of *terms* are by kind.
    """
    if all(plan.drawn.fused for plan in plans):  # a B frees what its W would
        alike: dict[str, Any] = {"freed_at_b": 0.0}
        terms = [replace_values(term, alike) if term.per_micro_batch else term for term in terms]
    held = _BoundMemory(terms, list(map(_PeakCounts, plans, kinds, micro_batches)))
    return reduce(maximum, (b for d in range(len(held.copies)) for b in held.moments(d)))


class _BoundMemory(DeviceMemory):
    """The memory of the devices that may need the most memory.

    If structures differ in the number of such devices, the maximum is used.
    """

    def __init__(self, terms: Sequence[Memory], structures: Sequence[_PeakCounts]) -> None:
        shape = np.max([one.numbers.shape for one in structures], axis=0)
        numbers = np.concatenate([one.spread(one.numbers, shape) for one in structures], axis=-1)
        copies: list[list[tuple[int, Real]]] = [
            [(x, float(n[0]) if (n == n[0]).all() else n) for x, n in enumerate(own) if n.any()]
            for own in numbers
        ]
        super().__init__(terms, copies)
        self._alive = [
            np.concatenate([one.spread(one.alive(field), shape) for one in structures], axis=-1)
            for field in self.fields
        ]

    def alive(self, d: int, moment: Moment) -> Sequence[Real]:  # noqa: ARG002  at one moment
        return [alive[d, x] for alive in self._alive for x, _ in self.copies[d]]


class _PeakCounts:
    """The copies on devices of one structure, and the micro-batches in flight at their peaks.

    A device is omitted if another device with equal stages holds at least as much. *numbers* has
    the copies by device and kind.
    """

    def __init__(
        self, plan: SketchPlan, kinds: Sequence[int], micro_batches: NDArray[np.float64]
    ) -> None:
        order = plan.drawn
        devices: list[int] = []
        first: dict[tuple[int, ...], list[AliveCounts]] = {}
        for d, held in enumerate(plan.held):
            (peak,) = order.peaks[d]
            others = first.setdefault(tuple(kinds[plan.stage[k]] for k in held), [])
            if not any(other.covers(peak) for other in others):
                others.append(peak)
                devices.append(d)
        copies = [(i, k) for i, d in enumerate(devices) for k in plan.held[d]]
        where = np.zeros((len(devices), 1 + max(kinds), len(copies)))
        for j, (i, k) in enumerate(copies):
            where[i, kinds[plan.stage[k]], j] = 1.0
        self.numbers = where.sum(axis=-1, keepdims=True)
        self._where, self._most = where, micro_batches
        self._peaks = [
            np.array([[n] for d in devices for n in order.peaks[d][0][field]]) for field in range(4)
        ]
        growing = np.array([[k in order.growing] for _, k in copies])
        self._scale = np.where(growing, micro_batches / order.micro_batches, 1.0)

    def alive(self, field: int) -> NDArray[np.float64]:
        """Return the micro-batches in flight by device and kind, at each point.

        Fields from 2 on are after the op of a peak.
        """
        before = self._peaks[field % 2]
        most = _in_flight(before, self._scale, self._most)
        if field >= 2:
            most = most - (before - self._peaks[field])
        found: NDArray[np.float64] = self._where @ most
        return found

    def spread(self, values: NDArray[np.float64], shape: NDArray[np.intp]) -> NDArray[np.float64]:
        """Return *values* by device and kind at each point, padded to as many devices and kinds.

        Further devices equal the first one, and further kinds have zeros.
        """
        devices, kinds, _ = values.shape
        found = np.zeros((shape[0], shape[1], len(self._most)))
        found[:devices, :kinds] = values
        found[devices:, :kinds] = values[0]
        return found


def _in_flight(
    alive: NDArray[Any], scale: NDArray[np.float64], most: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return the micro-batches in flight on copies: the counts of a sketch, scaled, and at most
    *most*.
    """
    return np.minimum(alive * scale, most)
