"""A lower bound of the step time from serial work, computed first for all layouts.

A step takes at least the makespan of its serial work, without overlap, messages and once-per-step
terms. The work is summed by pass and row. The minimum is taken over minor choices, such as the ZeRO
stage: each changes the serial work of kernels by at most 1 %. Recomputation is not a minor choice.
So the sums have few dimensions, and few layouts remain to be scored.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from parcost.contract.pipelines import Times
from parcost.contract.terms import KERNELS, Edge, Once, Pass, Work
from parcost.engine.bounds import lower_bound

if TYPE_CHECKING:
    from parcost.contract.plugin import Plugin
    from parcost.engine.replay import PipelinePlan

_ROUNDING = 1e-12  # sums in another order
_MINOR = 0.01  # change of the serial work of kernels
_PASS_OF: Mapping[Pass, Pass] = {"F": "F", "R": "B", "B": "B", "W": "W"}  # as schedules time them


class SerialWork:
    """The serial work of *terms*, whose arrays begin with one dimension for each of *choices*.

    Overlapping work is omitted. Sums have the minimum over *minor* choices.
    """

    def __init__(
        self, terms: Sequence[tuple[Plugin, Any]], choices: int, minor: Sequence[int] = ()
    ) -> None:
        self._choices, self._minor = tuple(range(choices)), tuple(minor)
        sums: dict[tuple[Pass, bool, Any], Any] = {}
        self._endless: list[Any] = []
        for _, term in terms:
            if isinstance(term, (Work, Once, Edge)):
                self._record_infinite(term)
        for work in _serial(terms):
            key = (_PASS_OF[work.pass_], work.resource in KERNELS, work.count)
            sums[key] = sums.get(key, 0.0) + self._least(work.seconds)
        self._sums = [(*key, seconds) for key, seconds in sums.items()]

    def _least(self, value: Any) -> Any:
        """Return the minimum over the minor choices that *value* depends on."""
        axes = tuple(k for k in self._minor if np.ndim(value) and value.shape[k] > 1)
        return value.min(axis=axes, keepdims=True) if axes else value

    def _record_infinite(self, term: Work | Once | Edge) -> None:
        times = (term.seconds, *(term.boundaries if isinstance(term, Edge) else ()))
        for seconds in times:
            finite = np.isfinite(seconds)
            if not finite.all():
                self._endless.append(~finite.all(axis=self._choices) if finite.ndim else True)

    def sums(self, pick: Callable[[Any], Any]) -> Iterator[tuple[Pass, bool, Any, Any]]:
        """Yield serial work at selected points: its pass, a flag for kernels, its row and its
        seconds.
        """
        for pass_, kernels, row, seconds in self._sums:
            yield pass_, kernels, row, pick(seconds) * (1.0 - _ROUNDING)

    def may_not_end(self, pick: Callable[[Any], Any]) -> Any:
        """Return the mask where a term may have no finite time, so that the bound is invalid."""
        found: Any = np.False_
        for endless in self._endless:
            found = found | (pick(endless) if np.ndim(endless) else endless)
        return found


def minor_choices(
    terms: Sequence[tuple[Plugin, Any]], choices: int, pick: Callable[[Any], Any]
) -> Sequence[int]:
    """Return the choices that each change the serial work of kernels by 1 % at most.

    The change is the mean over the points that *pick* selects.
    """
    whole: Any = np.zeros((1,) * (choices + 1))
    for work in (work for work in _serial(terms) if work.resource in KERNELS):
        whole = whole + pick(work.seconds) * float(np.sum(work.count))
    kept = np.where(np.isfinite(whole) & (whole > 0.0), whole, 1.0)
    changes = (np.mean(1.0 - kept.min(axis=k, keepdims=True) / kept) for k in range(choices))
    return [k for k, change in enumerate(changes) if change <= _MINOR]


def _serial(terms: Sequence[tuple[Plugin, Any]]) -> Iterator[Work]:
    return (term for _, term in terms if isinstance(term, Work) and term.window is None)


def bound_seconds(
    plan: PipelinePlan,
    micro_batches: Any,
    sums: Iterable[tuple[Pass, bool, Sequence[float], Any]],
) -> Any:
    """Return the lower bound of the makespan of *plan* in seconds, with these *sums* of work.

    Each sum has its counts by virtual stage. If passes run as pairs, communication is omitted,
    because pairs may hide it.
    """
    rows = [
        (pass_, counts, seconds)
        for pass_, kernels, counts, seconds in sums
        if kernels or not plan.pairs
    ]
    columns = [row for _, row, _ in rows]
    stages = plan.pipeline.stages * plan.pipeline.chunks
    keys = list(zip(*columns, strict=True)) if columns else [()] * stages
    first: dict[tuple[float, ...], int] = {}
    alike = [first.setdefault(key, x) for x, key in enumerate(keys)]
    times = {x: _pass_seconds(rows, x) for x in first.values()}
    forward, backward, weights = zip(*(times[x] for x in alike), strict=True)
    return lower_bound(plan, Times(forward, backward, weights), 0.0, micro_batches, alike)


def _pass_seconds(
    rows: Sequence[tuple[Pass, Sequence[float], Any]], stage: int
) -> tuple[Any, Any, Any]:
    found: dict[Pass, Any] = {"F": 0.0, "B": 0.0, "W": 0.0}
    for pass_, counts, seconds in rows:
        if times := counts[stage]:
            found[pass_] = found[pass_] + (seconds if times == 1 else times * seconds)
    return found["F"], found["B"], found["W"]
