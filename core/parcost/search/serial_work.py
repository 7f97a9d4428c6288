"""A very cheap lower bound of the step time: serial work, divided evenly over the devices.

A pipeline takes at least the busy time of its busiest device, and that is at least the average over
its devices. Of 80 equal layers of 10 ms on 4 devices a micro-batch keeps each busy for 200 ms; 100
micro-batches take at least 20 s, whatever the order. The minimum over all choices is taken, so the
sums only have the dimensions of the degrees. In a large space, few combinations of degrees remain
to be bounded with windows, stages and messages.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from parcost.contract.terms import Edge, Once, Work
from parcost.engine.pairs import KERNELS

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from parcost.contract.plugin import Plugin

_ROUNDING = 1e-12  # sums in another order


class SerialWork:
    """The serial work of *terms*, whose arrays begin with one dimension for each of *choices*.

    Overlapping work is omitted. So is communication if the schedule runs passes as pairs.
    """

    def __init__(self, terms: Sequence[tuple[Plugin, Any]], choices: int) -> None:
        self._choices = tuple(range(choices))
        sums: dict[tuple[Any, bool], Any] = {}
        self._endless: list[Any] = []
        for _, term in terms:
            if isinstance(term, (Work, Once, Edge)):
                self._note_endless(term)
            if isinstance(term, Work) and term.window is None:
                key = (term.count, term.resource in KERNELS)
                sums[key] = sums.get(key, 0.0) + term.seconds
        self._sums = [(count, kernel, self._least(s)) for (count, kernel), s in sums.items()]

    def _least(self, value: Any) -> Any:
        return value.min(axis=self._choices) if np.ndim(value) else value

    def _note_endless(self, term: Work | Once | Edge) -> None:
        times = (term.seconds, *(term.boundaries if isinstance(term, Edge) else ()))
        for seconds in times:
            finite = np.isfinite(seconds)
            if not finite.all():
                self._endless.append(~finite.all(axis=self._choices) if finite.ndim else True)

    def seconds(
        self, pick: Callable[[Any], Any], count: Callable[[Any], float], *, kernels: bool
    ) -> Any:
        """Return the seconds of a micro-batch on all devices in total, at selected points.

        *count* returns the minimum number of occurrences. With *kernels* no communication is
        counted.
        """
        found: Any = 0.0
        for row, kernel, seconds in self._sums:
            if (kernel or not kernels) and (times := count(row)):
                found = found + times * pick(seconds)
        return found * (1.0 - _ROUNDING)

    def may_not_end(self, pick: Callable[[Any], Any]) -> Any:
        """Return where some term may have no finite time, so that the bound does not hold."""
        found: Any = np.False_
        for endless in self._endless:
            found = found | (pick(endless) if np.ndim(endless) else endless)
        return found


def even_share(seconds: Any, micro_batches: Any, stages: Any, endless: Any) -> NDArray[np.float64]:
    """Return the lower bound of the step time in seconds, minus infinity where there is none."""
    share = micro_batches * seconds / stages
    bound: NDArray[np.float64] = np.where(endless | ~np.isfinite(share), -np.inf, share)
    return bound
