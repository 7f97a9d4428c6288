"""Once-per-step terms on the timeline: before the first passes, after the last, and at the end.

Terms are placed as :mod:`parcost.engine.step_costs` counts them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from parcost.contract.pipelines import Activity, ops_of
from parcost.contract.plugin import Plugin
from parcost.contract.traces import COMPUTE_STREAM, Slice
from parcost.engine.pipeline_run import PipelineRun
from parcost.engine.replay import PipelinePlan
from parcost.engine.step_costs import TermGroup, When
from parcost.engine.trace import activities
from parcost_apps.timeline.streams import ONCE, ROUNDING, stream_of


class PlacedStep(NamedTuple):
    """The passes of a step, the end of its pipeline, and once-per-step slices, by device."""

    passes: Sequence[Sequence[Activity]]
    end: float
    once: Sequence[Sequence[Slice]]


def place_step(run: PipelineRun, seconds: float) -> PlacedStep:
    """Return a step of *seconds*: its passes, between its once-per-step terms."""
    plan, n = run.plan, len(run.plan.held)
    stamped: dict[When, list[tuple[Plugin, Any]]] = {"fill": [], "drain": [], "end": []}
    for plugin, term in run.onces:
        stamped[term.when].append((plugin, term))
    groups = {when: TermGroup([term for _, term in pairs], run) for when, pairs in stamped.items()}
    once: list[list[Slice]] = [[] for _ in range(n)]
    placed = {when: _OncePlaces(groups[when], pairs) for when, pairs in stamped.items()}
    releases = placed["fill"].fill(once) if stamped["fill"] else [0.0] * len(plan.device)
    passes = activities(plan, run.times, run.hop, releases)
    longest = max(sum(placed["end"].seconds(k) for k in held) for held in plan.held)
    end = seconds - longest
    done = max(float(device[-1].end) for device in passes)
    if stamped["drain"]:
        done = max(done, placed["drain"].drain(once, _ends(plan, passes)))
    if end - done > ROUNDING * seconds:
        d = max(range(n), key=lambda d: float(passes[d][-1].end))
        name = "links that are busy with terms once per step, next to passes"
        once[d].append(Slice(name, "rest", f"links, {ONCE}", done, end))
    end = max(end, done)  # a rounding at most
    if stamped["end"]:
        placed["end"].finish(once, end)
    return PlacedStep(passes, end, once)


def _ends(plan: PipelinePlan, passes: Sequence[Sequence[Activity]]) -> Sequence[Activity]:
    """Return the last backward pass of each copy of a virtual stage."""
    number = {(x, d): k for k, (x, d) in enumerate(zip(plan.stage, plan.device, strict=True))}
    last: dict[int, Activity] = {}
    for d, device in enumerate(passes):
        for activity in device:
            for op in ops_of(activity.op):
                if op.kind != "F":
                    last[number[op.stage, d]] = activity
    return [last[k] for k in range(len(plan.device))]


class _OncePlaces:
    """Places the terms of one group; a device processes its stages one after another."""

    def __init__(self, group: TermGroup, stamped: Sequence[tuple[Plugin, Any]]) -> None:
        self._group, self._stamped = group, stamped
        self._plan = group.run.plan

    def seconds(self, k: int) -> float:
        """Return the seconds of all terms on copy *k*."""
        return float(self._group.stages[k].seconds) if self._stamped else 0.0

    def fill(self, once: Sequence[list[Slice]]) -> Sequence[float]:
        """Place the terms before the first passes, and return the earliest start of each copy."""
        releases = [0.0] * len(self._plan.device)
        arrivals = self._group.releases() if self._group.on_arrival else None
        for d, held in enumerate(self._plan.held):
            done = 0.0
            for k in held:
                slows = self._slows(k)
                if arrivals is not None:
                    done = max(float(arrivals[k] - self._group.stages[k].exposed), 0.0)
                at = self._put(once[d], k, done, covered=False)
                once[d] += self._slowdowns(k, at)
                releases[k] = at + slows
                done = max(done + self.seconds(k), self._put(once[d], k, at, covered=True))
        return releases

    def drain(self, once: Sequence[list[Slice]], last: Sequence[Activity]) -> float:
        """Place the terms after the last passes, and return the end of the last one in seconds."""
        latest = 0.0
        ends = [float(activity.end) for activity in last]
        for d, held in enumerate(self._plan.held):
            done = 0.0
            ready = self._group.ready(held, ends)
            for k in reversed(held):
                end, slows = float(ready[k]), self._slows(k)
                covered = sum(map(float, self._group.stages[k].covered))
                begun = self._put(once[d], k, max(done, end - covered), covered=True)
                once[d] += self._slowdowns(k, end)
                if self.seconds(k):
                    done = self._put(once[d], k, max(begun, end + slows), covered=False)
            latest = max(latest, done)
        return latest

    def finish(self, once: Sequence[list[Slice]], end: float) -> None:
        """Place the terms that begin at the *end* of the pipeline.

        Each runs for all stages of a device before the next. So all devices run their collectives
        in the same order.
        """
        for d, held in enumerate(self._plan.held):
            at = end
            for i in range(len(self._stamped)):
                for k in held:
                    at = self._put(once[d], k, at, covered=False, only=i)

    def _slows(self, k: int) -> float:
        stage = self._group.stages[k]
        return sum(
            float(term.slowdown * c)
            for (_, term), c in zip(self._stamped, stage.covered, strict=True)
        )

    def _slowdowns(self, k: int, at: float) -> Iterator[Slice]:
        """Yield a slice for the slowdown of compute by each term, from time *at* on."""
        stage, x = self._group.stages[k], self._plan.stage[k]
        for (plugin, term), covered in zip(self._stamped, stage.covered, strict=True):
            if (slows := float(term.slowdown * covered)) > 0:
                stream, name = f"{COMPUTE_STREAM}, {ONCE}", f"slowdown by {term.name}"
                yield Slice(
                    name, "slowdown", stream, at, at + slows, stage=x, term=term, plugin=plugin
                )
                at += slows

    def _put(
        self, once: list[Slice], k: int, at: float, *, covered: bool, only: int | None = None
    ) -> float:
        """Place the part of each term that compute has *covered*, or the rest; return the end.

        *only* is the index of a single term to place.
        """
        stage, x = self._group.stages[k], self._plan.stage[k]
        which = slice(None) if only is None else slice(only, only + 1)
        rows = zip(self._stamped[which], stage.took[which], stage.covered[which], strict=True)
        for (plugin, term), took, under in rows:
            part = float(under) if covered else float(took) - float(under)
            if part > ROUNDING * float(took):
                once.append(
                    Slice(
                        term.name,
                        "once",
                        stream_of(term, once=True),
                        at,
                        at + part,
                        covered,
                        stage=x,
                        of=part / float(took),
                        calls=float(took) / float(term.seconds),
                        term=term,
                        plugin=plugin,
                    )
                )
                at += part
        return at
