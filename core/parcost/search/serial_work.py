"""A lower bound of the step time from serial work, without a dimension for choices.

A step takes at least the makespan of its serial work, without overlap, messages and once-per-step
terms. The work is summed by pass and row, and the minimum over all choices is taken: the sums have
the dimensions of the degrees alone. In a large space, few combinations of degrees remain to be
bounded with overlap, for each choice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from parcost.contract.pipelines import Times
from parcost.contract.terms import Edge, Once, Pass, Work
from parcost.engine.bounds import lower_bound
from parcost.engine.load import KERNELS

if TYPE_CHECKING:
    from parcost.contract.plugin import Plugin
    from parcost.engine.replay import PipelinePlan

_ROUNDING = 1e-12  # sums in another order
_PASS_OF: Mapping[Pass, Pass] = {"F": "F", "R": "B", "B": "B", "W": "W"}  # as schedules time them


class SerialWork:
    """The serial work of *terms*, whose arrays begin with one dimension for each of *choices*.

    Overlapping work is omitted.
    """

    def __init__(self, terms: Sequence[tuple[Plugin, Any]], choices: int) -> None:
        self._choices = tuple(range(choices))
        sums: dict[tuple[Pass, bool, Any], Any] = {}
        self._endless: list[Any] = []
        for _, term in terms:
            if isinstance(term, (Work, Once, Edge)):
                self._note_endless(term)
            if isinstance(term, Work) and term.window is None:
                key = (_PASS_OF[term.pass_], term.resource in KERNELS, term.count)
                sums[key] = sums.get(key, 0.0) + term.seconds
        self._sums = [(*key, self._least(seconds)) for key, seconds in sums.items()]

    def _least(self, value: Any) -> Any:
        return value.min(axis=self._choices) if np.ndim(value) else value

    def _note_endless(self, term: Work | Once | Edge) -> None:
        times = (term.seconds, *(term.boundaries if isinstance(term, Edge) else ()))
        for seconds in times:
            finite = np.isfinite(seconds)
            if not finite.all():
                self._endless.append(~finite.all(axis=self._choices) if finite.ndim else True)

    def sums(self, pick: Callable[[Any], Any], *, kernels: bool) -> Iterator[tuple[Pass, Any, Any]]:
        """Yield pass, row and seconds of serial work at the selected points.

        With *kernels*, communication is omitted: passes that run as pairs may hide it.
        """
        for pass_, kernel, row, seconds in self._sums:
            if kernel or not kernels:
                yield pass_, row, pick(seconds) * (1.0 - _ROUNDING)

    def may_not_end(self, pick: Callable[[Any], Any]) -> Any:
        """Return where some term may have no finite time, so that the bound does not hold."""
        found: Any = np.False_
        for endless in self._endless:
            found = found | (pick(endless) if np.ndim(endless) else endless)
        return found


def bound_seconds(
    plan: PipelinePlan,
    micro_batches: Any,
    sums: Iterable[tuple[Pass, Any, Any]],
    counts: Callable[[Any], Sequence[float]],
) -> Any:
    """Return the lower bound of the makespan of *plan* in seconds, with these *sums* of work.

    *counts* returns the minimum count of a row on each virtual stage.
    """
    rows = [(pass_, counts(row), seconds) for pass_, row, seconds in sums]
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
