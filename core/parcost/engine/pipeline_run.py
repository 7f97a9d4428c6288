"""A pipeline with its times: the plan, the replay and the activities of each device."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from parcost.contract.outcome import OTHER
from parcost.contract.pipelines import Activity, Times
from parcost.contract.terms import Edge, Memory, Once, Work
from parcost.engine.bounds import device_seconds
from parcost.engine.load import Load
from parcost.engine.memory import device_lines
from parcost.engine.replay import Hop, PipelinePlan, Timeline
from parcost.engine.trace import activities
from parcost.numeric import Real, is_array
from parcost.records import record

if TYPE_CHECKING:
    from parcost.contract.outcome import MemoryLine
    from parcost.contract.plugin import Plugin
    from parcost.contract.terms import Moment, Pass
    from parcost.engine.pairs import PlanPairs

_SLOWDOWN = "slowdown"  # of compute, by what runs beside it
_ROUNDING = 1e-9  # of a pass
_PASSES: Mapping[str, tuple[Pass, ...]] = {
    "F": ("F",),
    "B": ("R", "B"),
    "W": ("W",),
    "BW": ("R", "B", "W"),
}


@record(kw_only=True, eq=False)
class PipelineRun:
    """A pipeline with its times.

    *loads* has the load of each copy of a virtual stage, and *kinds* the first stage that equals
    it. *works*, *edges*, *onces* and *memory* are the terms. *pairs* are the communication times
    hidden in pairs. A search omits the terms and pairs.
    """

    plan: PipelinePlan
    loads: Sequence[Load]
    kinds: Sequence[int]
    times: Times
    hop: Hop
    timeline: Timeline
    works: Sequence[tuple[Plugin, Work]] = ()
    edges: Sequence[tuple[Plugin, Edge]] = ()
    onces: Sequence[tuple[Plugin, Once]] = ()
    memory: Sequence[tuple[Plugin, Memory]] = ()
    pairs: PlanPairs | None = None

    def device_seconds(self) -> Sequence[Real]:
        """Return the busy time of each device in passes, in seconds."""
        return device_seconds(self.plan, self.times)

    def device_alive(self) -> Sequence[Real]:
        """Return the maximum number of micro-batches in flight on each device."""

        def most(d: int) -> Real:
            return self.plan.by_order(
                lambda order: float(max(sum(moment.alive) for moment in order.peaks[d]))
            )

        return [most(d) for d in range(self.plan.pipeline.stages)]

    def activities(self) -> Sequence[Sequence[Activity]]:
        """Return the passes of each device with their times, in order.

        Raises:
            ValueError: The run has several candidates.
        """
        times = self.times
        if is_array(*times.F, *times.B, *times.W, self.plan.pipeline.micro_batches):
            raise ValueError("a sweep has no single timeline: evaluate one of its points")
        return activities(self.plan, times, self.hop)

    def pass_parts(self) -> Mapping[tuple[str, int], Mapping[str, float]]:
        """Return the exposed seconds of a pass on a virtual stage, by cause."""
        found: dict[tuple[str, int], Mapping[str, float]] = {}
        for stage, load in zip(self.plan.stage, self.loads, strict=True):
            for kind, passes in _PASSES.items():
                parts: dict[str, float] = {}
                for work, exposed in zip(load.works, load.exposed, strict=True):
                    if work.pass_ in passes and exposed:
                        cause = work.cause or OTHER
                        parts[cause] = parts.get(cause, 0.0) + float(exposed)
                whole = float(sum(load.seconds[name] for name in passes))
                rest = whole - sum(parts.values())
                if rest > _ROUNDING * whole:
                    parts[_SLOWDOWN] = rest
                found[kind, stage] = parts
        return found

    def memory_by_moment(self) -> Sequence[Mapping[Moment, Sequence[MemoryLine]]]:
        """Return the memory lines of each device at each moment."""
        return device_lines(self.memory, self.plan)
