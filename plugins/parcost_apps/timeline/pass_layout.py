"""The slices of a pass, laid out from time zero; each pass of its kind uses a copy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from parcost.contract.terms import Pass, Work
from parcost.contract.traces import COMPUTE_STREAM
from parcost.engine.load import Load
from parcost.engine.pipeline_run import PipelineRun
from parcost_apps.timeline.streams import ROUNDING, stream_of

_LANES = 8  # of one stream; what more would take is its rest
#: The kinds of the ops of a pass, each with the copy of a virtual stage that it runs on.
PassKey: TypeAlias = tuple[tuple[str, int], ...]


class _Part(NamedTuple):
    """A slice of a pass, in seconds since the pass began."""

    work: int
    kind: Any
    stream: str
    start: float
    end: float
    beside: bool
    stage: int
    of: float
    calls: float


class _Cost(NamedTuple):
    """The cost of one work in a pass: *took* in total, split into exposed and hidden seconds."""

    work: int
    term: Work
    took: float
    exposed: float
    hidden: float
    slows: float
    calls: float


def pass_layout(run: PipelineRun, key: PassKey) -> PassLayout:
    """Return the slices of a pass, or of a pair of passes, starting at time zero."""
    layout = PassLayout()
    hidden: Sequence[float] = ()
    if len(key) > 1:
        (_, forward), (_, backward) = key
        assert run.pairs is not None
        stages = run.plan.stage
        pair = run.pairs.find(stages[forward], stages[backward])
        hidden = list(map(float, pair.hidden_seconds))
    split = any(run.plan.orders[0][1].split)
    for kind, k in key:
        for passes in _PARTS_SPLIT[kind] if split else _PARTS[kind]:
            layout.add(passes, _costs(run.loads[k], passes, hidden), run.plan.stage[k])
    layout.hide()
    layout.parts.sort(key=lambda part: (part.start, part.end))
    again = layout.again if len(key) == 1 else 0.0
    layout.passes = [("", again, layout.end)]
    if again:
        layout.passes.insert(0, ("R", 0.0, again))
    return layout


#: The passes of an op, in groups within which what has an empty window may hide.
_PARTS: Mapping[str, Sequence[tuple[Pass, ...]]] = {
    "F": [("F",)],
    "B": [("R", "B")],
    "W": [("W",)],
    "BW": [("R", "B", "W")],
}
_PARTS_SPLIT: Mapping[str, Sequence[tuple[Pass, ...]]] = {**_PARTS, "BW": [("R", "B"), ("W",)]}


def _costs(load: Load, passes: Sequence[Pass], hidden: Sequence[float]) -> Sequence[_Cost]:
    """Return the costs of the works in *passes*; *hidden* are the seconds that a pair hides."""
    found = []
    for i, work in enumerate(load.works):
        if work.pass_ not in passes or not load.counts[i]:
            continue
        more = hidden[i] if hidden else 0.0
        found.append(
            _Cost(
                work=i,
                term=work,
                took=float(load.took[i]),
                exposed=float(load.exposed[i]) - more,
                hidden=float(load.hidden[i]) + more,
                slows=0.0 if work.window is None else float(work.slowdown * load.covered[i]),
                calls=float(load.counts[i]),
            )
        )
    return found


class PassLayout:
    """Places the slices of a pass: exposed time first, then hidden work."""

    def __init__(self) -> None:
        self.parts: list[_Part] = []
        self.passes: list[tuple[str, float, float]] = []  # R, or "" for all else
        self.again = 0.0  # the end of what runs forward again
        self.end = 0.0
        self._hidden: list[tuple[_Cost, int, float]] = []  # with the stage and the first moment

    def add(self, passes: Sequence[Pass], costs: Sequence[_Cost], stage: int) -> None:
        """Place the serial and exposed time of *passes* in sequence."""
        begin = self.end
        for pass_ in passes:
            hosts: dict[str, float] = {}
            own = [cost for cost in costs if cost.term.pass_ == pass_]
            for cost in own:
                if cost.term.window is None:
                    hosts.setdefault(cost.term.host, self.end)
                    self._wait(cost, stage, self.end)
            for cost in own:
                if cost.term.window:
                    self._wait(cost, stage, hosts.get(cost.term.window, begin))
            if pass_ == "R":
                self.again = self.end
        for cost in costs:
            if cost.term.window == "":
                self._wait(cost, stage, begin)

    def hide(self) -> None:
        """Place hidden work in the idle time of its streams."""
        for cost, stage, begin in self._hidden:
            left, lane = cost.hidden, 0
            while left > ROUNDING * self.end and lane < _LANES:
                lane += 1
                stream = stream_of(cost.term, beside=True, lane=lane)
                left = self._fill(cost, "work", stream, begin, left, stage)
            lane = 0
            while left > ROUNDING * self.end > 0:
                lane += 1
                stream = stream_of(cost.term, beside=True, rest=True, lane=lane)
                left = self._fill(cost, "rest", stream, 0.0, left, stage)

    def _fill(
        self, cost: _Cost, kind: str, stream: str, begin: float, left: float, stage: int
    ) -> float:
        """Place *left* seconds in a stream's idle time after *begin*, and return the rest."""
        for start, end in self._gaps(stream, begin):
            taken = min(left, end - start)
            self._put(cost, kind, stream, start, start + taken, stage, beside=True)
            left -= taken
            if left <= ROUNDING * self.end:
                break
        return left

    def _wait(self, cost: _Cost, stage: int, begin: float) -> None:
        """Place exposed time and slowdown, and queue the hidden part for placement after
        *begin*.
        """
        if cost.slows > 0:
            end = self.end + cost.slows
            self._put(cost, "slowdown", COMPUTE_STREAM, self.end, end, stage)
            self.end = end
        if cost.exposed > ROUNDING * cost.took:
            end = self.end + cost.exposed
            self._put(cost, "work", stream_of(cost.term), self.end, end, stage)
            self.end = end
        if cost.hidden > 0:
            self._hidden.append((cost, stage, begin))

    def _gaps(self, stream: str, begin: float) -> Sequence[tuple[float, float]]:
        """Return the idle intervals of a stream after *begin*."""
        busy = sorted((p.start, p.end) for p in self.parts if p.stream == stream)
        found, at = [], begin
        for start, end in busy:
            if start > at:
                found.append((at, start))
            at = max(at, end)
        if self.end > at:
            found.append((at, self.end))
        return found

    def _put(
        self,
        cost: _Cost,
        kind: str,
        stream: str,
        start: float,
        end: float,
        stage: int,
        *,
        beside: bool = False,
    ) -> None:
        of = (end - start) / cost.took if cost.took and kind != "slowdown" else 0.0
        part = _Part(cost.work, kind, stream, start, end, beside, stage, of, cost.calls)
        self.parts.append(part)
