"""Loads of virtual stages, for layouts of many structures at once.

Virtual stages with equal counts are of one kind. Most structures have three kinds: first, middle
and last. Work is added up once for each kind, as arrays over all layouts. Each structure then
selects its layouts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from attrs import field, frozen

from parcost.contract.pipelines import Times
from parcost.contract.terms import Once, Work
from parcost.engine.load import Load
from parcost.engine.pairs import PlanPairs
from parcost.engine.stage_costs import PASSES, load
from parcost.engine.step_costs import WHENS, StageTimes, TermGroup, When, stage_times
from parcost.records import replace_values

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from parcost.engine.pipeline_run import PipelineRun
    from parcost.engine.replay import PipelinePlan
    from parcost.numeric import Mask, Real


class StageLoads:
    """The loads of each kind of virtual stage; the count of a term is one number for each kind.

    *pairs*: the schedule runs pairs, which need the seconds of each work.
    """

    def __init__(self, terms: Sequence[Any], *, pairs: bool) -> None:
        self.works = sorted(
            (t for t in terms if isinstance(t, Work)),
            key=lambda work: (PASSES.index(work.pass_), work.name),
        )
        onces = sorted((t for t in terms if isinstance(t, Once)), key=lambda once: once.name)
        self.onces: Mapping[When, Sequence[Once]] = {
            when: [once for once in onces if once.when == when] for when in WHENS
        }
        self.pairs = pairs
        self._loads: dict[tuple[int, bool], Load] = {}
        self._times: dict[tuple[When, int, bool, bool], StageTimes] = {}

    def load(self, kind: int, *, split: bool) -> Load:
        """Return the load of a kind; *split* is true if the schedule separates W from B."""
        if (kind, split) not in self._loads:
            found = load(self.works, kind, split=split)
            self._loads[kind, split] = found if self.pairs else found.sums()
        return self._loads[kind, split]

    def times(self, when: When, kind: int, *, split: bool, ends_in_w: bool) -> StageTimes:
        """Return the times of once-per-step terms; *ends_in_w* is true if the last op of the stage
        is W.
        """
        key = (when, kind, split, ends_in_w)
        if key not in self._times:
            found = stage_times(self.onces[when], self.load(kind, split=split), kind, ends_in_w)
            self._times[key] = replace_values(found, {"took": (), "covered": ()})
        return self._times[key]


@frozen(eq=False, slots=False)
class StructureLoads:
    """The loads of some layouts of one structure, by the *kinds* of its virtual stages."""

    stages: StageLoads
    kinds: Sequence[int]
    at: slice | NDArray[np.intp]
    _loads: dict[tuple[int, bool], Load] = field(factory=dict, init=False)

    def select(self, layouts: NDArray[np.intp]) -> StructureLoads:
        """Return the loads of some of the layouts."""
        at = np.arange(self.at.stop)[self.at] if isinstance(self.at, slice) else self.at
        return StructureLoads(self.stages, self.kinds, at[layouts])

    def by_stage(self, plan: PipelinePlan) -> tuple[Sequence[Load], Times]:
        """Return the load of each virtual stage, and the times of the passes."""
        split = any(plan.orders[0][1].split)
        loads = {kind: self._load(kind, split) for kind in dict.fromkeys(self.kinds)}
        passes = {kind: _passes(own.seconds) for kind, own in loads.items()}
        forward, backward, weights = zip(*(passes[kind] for kind in self.kinds), strict=True)
        found = [loads[kind] for kind in self.kinds]
        pairs = PlanPairs(plan, found[0].works, found).seconds if plan.pairs else {}
        return found, Times(forward, backward, weights, pairs)

    def group(self, when: When, run: PipelineRun) -> TermGroup:
        """Return the once-per-step terms of a run with these loads."""
        split = any(run.plan.orders[0][1].split)

        def times(kind: int, ends_in_w: Mask) -> StageTimes:
            found = self.stages.times(when, kind, split=split, ends_in_w=bool(ends_in_w))
            return _select_times(found, self._select)

        return TermGroup(self.stages.onces[when], run, times)

    def _load(self, kind: int, split: bool) -> Load:
        if (kind, split) not in self._loads:
            self._loads[kind, split] = self.stages.load(kind, split=split).select(self._select)
        return self._loads[kind, split]

    def _select(self, value: Any) -> Any:
        """Return the values of these layouts from an array over all layouts."""
        return value[self.at] if getattr(value, "ndim", 0) and value.shape[0] > 1 else value


def _select_times(times: StageTimes, pick: Callable[[Any], Any]) -> StageTimes:
    """Return the times of a stage at some layouts."""
    return replace_values(
        times,
        {
            "seconds": pick(times.seconds),
            "exposed": pick(times.exposed),
            "busy": {name: pick(seconds) for name, seconds in times.busy.items()},
            "waits": pick(times.waits),
        },
    )


def _passes(seconds: Any) -> tuple[Real, Real, Real]:
    return seconds["F"], seconds["R"] + seconds["B"], seconds["W"]
