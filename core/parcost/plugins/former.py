"""Plugins for versions 2 and 3 of the contract, adapted to the version of today.

Version 3 had a hook for each kind of chart, and one for intervals. Its memory terms knew no end of
backward: a term that lists ``backward`` is held until then. A case of version 2 was a single
pipeline, with the times of each virtual stage; today it has runs of equal stages, and many
pipelines at once. The adapter expands the runs. For a case that version 2 cannot express, it
returns None, and the core replays the order: slower, and never wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate, chain, repeat
from types import GeneratorType
from typing import TYPE_CHECKING, Any

import pluggy
from attrs import evolve

from parcost.contract.pipelines import Case, Op, Pair, PipelineShape, Times
from parcost.contract.study import Schedule
from parcost.contract.terms import Memory
from parcost.numeric import any_of, is_array
from parcost.records import record

if TYPE_CHECKING:
    from parcost.contract.study import Study
    from parcost.numeric import Mask, Real

hookspec = pluggy.HookspecMarker("parcost")

#: The hook of today, by its name in version 3.
NEW_NAMES: Mapping[str, str] = {
    "intervals": "figures",
    "calculation_charts": "charts",
    "timeline_charts": "charts",
    "point_charts": "charts",
}

intervals = hookspec(lambda study, outcome: ())
calculation_charts = hookspec(lambda study: ())
timeline_charts = hookspec(lambda timeline: ())
point_charts = hookspec(lambda points: ())


@record(kw_only=True, eq=False)
class CaseOfVersion2:
    """A case of version 2: one pipeline, with the times of each virtual stage."""

    stages: int
    micro_batches: Real
    chunks: int
    times: Times
    hop: Real
    hops: tuple[Real, ...]  # over each boundary of neighbouring devices
    virtual_stages: int
    boundaries: tuple[Real, ...] = ()  # whose messages differ: none


class ScheduleOfVersion2(Schedule):
    """A schedule that was written for version 2."""

    def __init__(self, schedule: Schedule) -> None:
        self._schedule = schedule
        self._of_studies: dict[int, ScheduleOfVersion2] = {id(schedule): self}
        for name in ("name", "copies", "frameworks", "search_default"):
            setattr(self, name, getattr(schedule, name))

    def for_study(self, study: Study) -> Schedule:
        """Return the schedule with its options from the study."""
        found = self._schedule.for_study(study)
        if id(found) not in self._of_studies:  # which keeps it, so that its id stays its own
            self._of_studies[id(found)] = ScheduleOfVersion2(found)
        return self._of_studies[id(found)]

    def limits(self, shape: PipelineShape) -> str | None:
        """Return why the schedule does not exist for *shape*, or None."""
        return self._schedule.limits(shape)

    def order(self, stages: int, micro_batches: int, chunks: int) -> Sequence[Sequence[Op | Pair]]:
        """Return the list of ops of each device, in order."""
        return self._schedule.order(stages, micro_batches, chunks)

    def closed_form(self, case: Case) -> tuple[Real, Mask] | None:
        """Return the makespan of a single pipeline in seconds, and where it is exact."""
        former = _former(case)
        return None if former is None else self._schedule.closed_form(former)

    def lower_bound(self, case: Case) -> Real | None:
        """Return a lower bound of the makespan of a single pipeline in seconds."""
        former = _former(case)
        return None if former is None else self._schedule.lower_bound(former)

    def spans(self, case: Case) -> tuple[Sequence[Real], Sequence[Real]] | None:
        """Return the start and end times of the first stage of each run, in seconds."""
        former = _former(case)
        found = None if former is None else self._schedule.spans(former)
        if found is None or any(len(row) != former.virtual_stages for row in found):
            return found  # the core names what it lacks
        first = list(accumulate(map(int, case.counts), initial=0))[:-1]
        starts, ends = ([row[x] for x in first] for row in found)
        return starts, ends


def memory_of_version_3(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a hook for memory with ``end_of_backward`` in the terms that list ``backward``."""

    def memory(*arguments: Any) -> Any:
        answer = function(*arguments)
        if not isinstance(answer, (list, tuple, GeneratorType)):
            return answer  # the core names what it lacks
        return (_until_end_of_backward(term) for term in answer)

    return memory


def _until_end_of_backward(term: Any) -> Any:
    if not isinstance(term, Memory) or "backward" not in term.moments:
        return term
    return evolve(term, moments=tuple(dict.fromkeys((*term.moments, "end_of_backward"))))


def _former(case: Case) -> Any:
    """Return *case* in version 2; None for several pipelines, or for pairs that take less time."""
    if is_array(case.stages, case.chunks, *case.counts) or any_of(case.saved != 0):
        return None
    stages, chunks = int(case.stages), int(case.chunks)
    F, B, W = (
        list(chain.from_iterable(map(repeat, row, map(int, case.counts))))
        for row in (case.F, case.B, case.W)
    )
    return CaseOfVersion2(
        stages=stages,
        micro_batches=case.micro_batches,
        chunks=chunks,
        times=Times(F, B, W),
        hop=case.hop,
        hops=(case.hop,) * (stages - 1),
        virtual_stages=stages * chunks,
    )
