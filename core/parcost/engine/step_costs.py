"""Once-per-step costs: gathers before the pipeline fills, and reductions while it drains.

A stage idles before its first forward pass and after its last backward pass. A transfer can run in
that time, and overlap with the neighbouring micro-batch. The remaining time is exposed:

- fill: no forward pass of a stage starts before its terms are done; the replay delays the stages
  accordingly, and the extra time is exposed. Terms on arrival begin when the first micro-batch
  reaches the stage, so that the first micro-batch waits on every stage;
- drain: a stage ends with its terms, and the step ends with its last stage;
- end: the terms of the longest stage, once every stage has drained.

The slowdown of the compute that hides the terms makes a stage longer. Idle time of the stage
absorbs that as well.

The terms of one stage in one group run in sequence, on any resource. A device with several virtual
stages serves them in order in fill, as their parameters are needed. In drain it serves the last one
first, as their gradients are ready. Terms with *after_device* wait for its last pass. Time is only
added to chains of events, so additional work never shortens the step.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import partial, reduce
from typing import Literal

from attrs import evolve

from parcost.contract.queries import key_of
from parcost.contract.terms import KERNELS, Once, Work
from parcost.engine.load import Load
from parcost.engine.maxima import MaximumChoice, columns, find_maximum, total
from parcost.engine.pipeline_run import PipelineRun
from parcost.engine.replay import PipelinePlan, Timeline
from parcost.engine.stage_costs import (
    PASSES,
    count,
    occurs_anywhere,
    shared_resources,
    times_of,
)
from parcost.numeric import Mask, Real, all_of, any_of, maximum, minimum, where
from parcost.records import record

When = Literal["fill", "drain", "end"]
WHENS: tuple[When, ...] = ("fill", "drain", "end")


@record(kw_only=True, eq=False)
class GroupCost:
    """The seconds that a group adds to the step, by term, on the device with the longest delay.

    *under* are the seconds hidden by compute, and *slowdown* is the time that they add to compute.
    *made_up* are further seconds of slowdown, which idle time absorbs.
    """

    exposed: Sequence[Real]
    hidden: Sequence[Real]
    times: Sequence[Real]  # that each occurs there
    under: Sequence[Real]
    slowdown: Sequence[Real]
    made_up: Sequence[Real]


NOTHING = GroupCost(exposed=(), hidden=(), times=(), under=(), slowdown=(), made_up=())


@record(kw_only=True, eq=False)
class StageTimes:
    """A group on one virtual stage: the seconds of each term, and the part covered by compute.

    *seconds* is the sum of all terms. *exposed* is the part that compute does not hide, plus the
    slowdown of compute. *kernels* are the seconds of kernels, with the slowdown. *busy* are seconds
    by resource. *waits* is true if some terms wait for the last pass of the device.
    """

    took: Sequence[Real]
    covered: Sequence[Real]
    seconds: Real
    exposed: Real
    kernels: Real
    busy: Mapping[str, Real]
    waits: Mask


def occurrences(term: Work | Once, plan: PipelinePlan, device: MaximumChoice) -> Real:
    """Return the number of occurrences of *term* on a device."""
    return device.select(lambda d: total(count(term, plan.stage[k]) for k in plan.held[d]))


class TermGroup:
    """The terms of one *when* (fill, drain or end), and their times by copy of a virtual stage."""

    def __init__(
        self,
        terms: Sequence[Once],
        run: PipelineRun,
        times: Callable[[int, Mask], StageTimes] | None = None,
    ) -> None:
        """Compute the times of all stages, or take them from *times*.

        *times* is a function of the kind of a stage, and of whether its last op is a separate W.
        """
        self.terms = terms
        self.run = run
        self.on_arrival = any(term.on_arrival for term in terms)
        found: dict[Hashable, StageTimes] = {}
        self.stages: list[StageTimes] = []
        for k, kind in enumerate(run.kinds):
            key = (kind, tuple(order.split[k] for _, order in run.plan.orders))
            if key not in found:
                ends_in_w = run.plan.splits_weights(k)
                made = partial(stage_times, terms, run.loads[k]) if times is None else times
                found[key] = made(run.plan.stage[k] if times is None else kind, ends_in_w)
            self.stages.append(found[key])

    def duration(self) -> Real:
        """Return the longest time of the group on a device in seconds, if nothing is hidden."""
        if not self.terms:
            return 0.0
        return find_maximum(
            [total(self.stages[x].seconds for x in xs) for xs in self.run.plan.held]
        )[0]

    def delay(self) -> tuple[Real, Mask]:
        """Return the seconds by which the group delays the pipeline, and the mask where that is
        exact.

        The pipeline waits for the first stage. The delay is exact if the other stages are ready
        when the first micro-batch reaches them; elsewhere the true delay is larger.
        """
        if not self.terms:
            return 0.0, True
        before, releases = self.run.timeline, self.releases()
        later: Real = 0.0
        for seconds in _busiest_seconds(self.run, self):
            later = maximum(later, seconds - before.seconds)
        in_time: Mask = True
        for release, start in zip(releases, before.starts, strict=True):
            in_time = in_time & (release - releases[0] <= start)
        return maximum(later, releases[0]), in_time

    def releases(self) -> Sequence[Real]:
        """Return the earliest start of the forward passes by copy of a stage, in seconds."""
        plan = self.run.plan
        releases: list[Real] = [0.0] * len(self.stages)
        if self.on_arrival:
            waits: dict[int, Real] = {}  # by virtual stage
            for k, stage in enumerate(self.stages):
                x = plan.stage[k]
                waits[x] = maximum(waits.get(x, 0.0), stage.exposed)
            for k, start in enumerate(self.run.timeline.starts):
                releases[k] = start + total(waits[x] for x in waits if x <= plan.stage[k])
            return releases
        for held in plan.held:
            done: Real = 0.0
            for x in held:
                releases[x] = done + self.stages[x].exposed
                done = done + self.stages[x].seconds
        return releases

    def ready(self, held: Sequence[int], ends: Sequence[Real]) -> Mapping[int, Real]:
        """Return the earliest time of the terms in drain of each copy on a device, in seconds.

        *held* are its copies of virtual stages, and *ends* the ends of their last backward passes.
        """
        waits: Mask = False
        for x in held:
            waits = waits | self.stages[x].waits
        if waits is False:
            return {x: ends[x] for x in held}
        last = reduce(maximum, (ends[x] for x in held))
        return {x: where(waits, last, ends[x]) for x in held}

    def outlasts(self, fill: TermGroup, timeline: Timeline) -> Real:
        """Return the seconds between the end of the pipeline and the end of the group, with *fill*
        before it.
        """
        return _excess(self, fill, timeline)[0] if self.terms else 0.0

    def cost(self, exposed: Real, lateness: Sequence[Real]) -> GroupCost:
        """Divide the *exposed* seconds among the terms, on the device with the largest *lateness*.

        If nothing is exposed, it is the device with the most hidden seconds. Compute hides terms
        first, then idle time of the device, in the order of the terms. The remaining idle time
        absorbs the slowdown of compute.
        """
        held = self.run.plan.held
        hidden = [total(self.stages[x].seconds for x in xs) for xs in held]
        _, device = find_maximum(
            [where(exposed > 0, a, b) for a, b in zip(lateness, hidden, strict=True)]
        )
        took = device.row(lambda d: columns([self.stages[x].took for x in held[d]]))
        covered = device.row(lambda d: columns([self.stages[x].covered for x in held[d]]))
        slowed = [term.slowdown * c for term, c in zip(self.terms, covered, strict=True)]
        sticks_out = total(took) - total(covered) + total(slowed)
        idle = maximum(sticks_out - exposed, 0.0)
        queued = maximum(exposed - sticks_out, 0.0)  # behind another stage of the device
        parts: list[Real] = []
        made_up: list[Real] = []
        for t, c in zip(took, covered, strict=True):
            hides, waits = minimum(t - c, idle), minimum(c, queued)
            idle, queued = idle - hides, queued - waits
            parts.append(t - c - hides + waits)
        for slow in slowed:
            made_up.append(minimum(slow, idle))
            idle = idle - made_up[-1]
        if self.on_arrival:  # the rest is of stages of other devices
            every = maximum(total(took), 1e-300)
            parts = [part + queued * t / every for part, t in zip(parts, took, strict=True)]
        return GroupCost(
            exposed=parts,
            hidden=[maximum(t - e, 0.0) for t, e in zip(took, parts, strict=True)],
            times=[occurrences(term, self.run.plan, device) for term in self.terms],
            under=covered,
            slowdown=[s - made for s, made in zip(slowed, made_up, strict=True)],
            made_up=made_up,
        )


def add(terms: Mapping[When, Sequence[Once]], run: PipelineRun) -> Mapping[When, GroupCost]:
    """Return the cost that each group of *terms* adds to the step."""
    fill, drain, end = (TermGroup(terms[when], run) for when in ("fill", "drain", "end"))
    filled, timeline = _fill(fill, run)
    longest = [total(end.stages[x].seconds for x in held) for held in run.plan.held]
    return {
        "fill": filled,
        "drain": _drain(drain, fill, timeline),
        "end": end.cost(find_maximum(longest)[0], longest) if end.terms else NOTHING,
    }


def added_seconds(fill: TermGroup, drain: TermGroup, end: TermGroup) -> Real:
    """Return the step time in seconds of a run with all terms of the groups."""
    run = fill.run
    timeline = _delay_pipeline(fill, run)[2] if fill.terms else run.timeline
    return timeline.seconds + drain.outlasts(fill, timeline) + end.duration()


def kernel_seconds(run: PipelineRun) -> Sequence[Real]:
    """Return the seconds of a step in which kernels run, on each device.

    Overlapping kernels count once; the slowdown of compute is included.
    """
    m, plan = run.plan.pipeline.micro_batches, run.plan
    groups = [
        TermGroup([once for _, once in run.onces if once.when == when], run) for when in WHENS
    ]

    def seconds(k: int) -> Real:
        once = total(group.stages[k].kernels for group in groups)
        return m * plan.shares[k] * run.loads[k].kernel_seconds + once

    return [total(seconds(k) for k in held) for held in plan.held]


def _fill(group: TermGroup, run: PipelineRun) -> tuple[GroupCost, Timeline]:
    """Return the cost of the group, and the timeline of the pipeline that it delays."""
    if not group.terms:
        return NOTHING, run.timeline
    later, lateness, after = _delay_pipeline(group, run)
    return group.cost(later, lateness), after


def _delay_pipeline(group: TermGroup, run: PipelineRun) -> tuple[Real, Sequence[Real], Timeline]:
    """Return the delay of the pipeline by the group, in total and per device, in seconds.

    The third result is the delayed timeline.
    """
    before, releases = run.timeline, group.releases()
    crowded = [seconds - before.seconds for seconds in _busiest_seconds(run, group)]
    lateness: list[Real] = []
    for held, crowd in zip(run.plan.held, crowded, strict=True):
        late = maximum(crowd, 0.0)
        for x in held:
            late = maximum(late, releases[x] - before.starts[x])
        lateness.append(late)
    later, after = _release_delay(releases, run)
    for crowd in crowded:
        later = maximum(later, crowd)
    after = evolve(after, seconds=before.seconds + later)
    return later, lateness, after


def _release_delay(releases: Sequence[Real], run: PipelineRun) -> tuple[Real, Timeline]:
    """Return the delay of the pipeline in seconds if each stage waits for its release.

    The pipeline waits for the first stage. If the other stages are released before its first
    micro-batch reaches them, the whole pipeline only starts later.
    """
    before, first = run.timeline, releases[0]
    if all(all_of(r - first <= s) for r, s in zip(releases, before.starts, strict=True)):
        starts = [start + first for start in before.starts]
        ends = [end + first for end in before.ends]
        return first, Timeline(seconds=before.seconds + first, starts=starts, ends=ends)
    after = run.plan.timeline(run.times, run.hop, releases)
    return maximum(after.seconds - before.seconds, 0.0), after


def _drain(group: TermGroup, fill: TermGroup, timeline: Timeline) -> GroupCost:
    """Return the cost of the group after the pipeline, which *fill* has delayed."""
    if not group.terms:
        return NOTHING
    return group.cost(*_excess(group, fill, timeline))


def _excess(group: TermGroup, fill: TermGroup, timeline: Timeline) -> tuple[Real, Sequence[Real]]:
    """Return the seconds by which the group ends after the pipeline, in total and per device."""
    lateness: list[Real] = []
    crowds = _busiest_seconds(group.run, fill, group)
    for held, crowd in zip(group.run.plan.held, crowds, strict=True):
        done: Real = 0.0
        ready = group.ready(held, timeline.ends)
        for x in reversed(held):
            stage = group.stages[x]
            done = maximum(done + stage.seconds, ready[x] + stage.exposed)
        lateness.append(maximum(done, crowd) - timeline.seconds)
    return maximum(find_maximum(lateness)[0], 0.0), lateness


def _busiest_seconds(run: PipelineRun, *groups: TermGroup) -> Sequence[Real]:
    """Return a lower bound of each device's step time in seconds: its busiest resource.

    It matters only on devices with several virtual stages, where terms of one stage overlap with
    the work of another.
    """
    if all(len(held) == 1 for held in run.plan.held):
        return [0.0] * run.plan.pipeline.stages
    m, shares = run.plan.pipeline.micro_batches, run.plan.shares
    names = {
        name
        for group in groups
        for term in group.terms
        for name in (str(term.resource), *term.also)
    }
    known: dict[Hashable, Real] = {}  # many devices are alike
    found: list[Real] = []
    for held in run.plan.held:
        alike: dict[Hashable, list[int]] = {}
        for k in held:
            stages = (id(group.stages[k]) for group in groups)
            alike.setdefault((id(run.loads[k]), *stages), []).append(k)
        each = [(copies, total(shares[k] for k in copies)) for copies in alike.values()]
        key = tuple(
            (x, len(copies), key_of(share)) for x, (copies, share) in zip(alike, each, strict=True)
        )
        if key not in known:
            most: Real = 0.0
            for resource in names:
                busy: Real = 0.0
                for (k, *others), share in each:
                    busy = busy + m * share * run.loads[k].busy_seconds(PASSES, resource)
                    for group in groups:
                        once = group.stages[k].busy.get(resource, 0.0)
                        busy = busy + (1 + len(others)) * once
                most = maximum(most, busy)
            known[key] = most
        found.append(known[key])
    return found


def stage_times(terms: Sequence[Once], load: Load, stage: int, ends_in_w: Mask) -> StageTimes:
    """Return the times of *terms* on virtual stage *stage*, and the part that compute of the stage
    covers.

    *load* is the load of the stage. *ends_in_w* is true if its last op is a separate W. Terms on
    the same resource use the compute in order; a later term uses the remaining compute.
    """
    took: list[Real] = [0.0] * len(terms)
    covered: list[Real] = [0.0] * len(terms)
    used: dict[str, Real] = {}
    busy: dict[str, Real] = {}
    slowed: Real = 0.0
    waits: Mask = False
    for i, term in enumerate(terms):
        times = count(term, stage)
        if not occurs_anywhere(times):
            continue
        seconds = times_of(term.seconds, times)
        if term.after_device:  # of many layouts, those that have it
            waits = waits | (seconds > 0)
        busy[term.resource] = busy.get(term.resource, 0.0) + seconds
        room = _idle_seconds(term, term.resource, load, ends_in_w) - used.get(term.resource, 0.0)
        hides = minimum(maximum(room, 0.0), maximum(seconds - term.tail, 0.0))
        over: dict[str, tuple[Real, Real]] = {}  # what it needs of others beyond the room there
        for other, share in shared_resources(term):
            busy[other] = busy.get(other, 0.0) + share * seconds
            room = maximum(_idle_seconds(term, other, load, ends_in_w) - used.get(other, 0.0), 0.0)
            over[other] = share, maximum(share * seconds - room, 0.0)
            hides = minimum(hides, seconds - over[other][1])
        used[term.resource] = used.get(term.resource, 0.0) + hides
        for other, (share, beyond) in over.items():
            beyond = maximum(beyond, share * (seconds - hides))  # noqa: PLW2901  it is busy then
            used[other] = used.get(other, 0.0) + (share * seconds - beyond)
        took[i], covered[i] = seconds, hides
        slowed = slowed + term.slowdown * hides
    apart = [t - c for t, c in zip(took, covered, strict=True)]
    kernels = total(a for a, term in zip(apart, terms, strict=True) if term.resource in KERNELS)
    return StageTimes(
        took=took,
        covered=covered,
        seconds=total(took),
        exposed=total(took) - total(covered) + slowed,
        kernels=kernels + slowed,
        busy=busy,
        waits=waits,
    )


def _idle_seconds(term: Once, resource: str, load: Load, ends_in_w: Mask) -> Real:
    """Return the seconds of a micro-batch in which *resource* is idle, so that *term* can be
    hidden.

    The first forward pass hides terms in fill. Gradients become ready during the last backward op,
    which is W if the schedule separates it from B.
    """
    if term.when == "end" or term.after_device or not any_of(term.beside != 0):
        return 0.0
    if term.when == "fill":
        return term.beside * load.idle_seconds(("F",), resource)
    fused = load.idle_seconds(("R", "B", "W"), resource)
    if ends_in_w is False:
        return term.beside * fused
    return term.beside * where(ends_in_w, load.idle_seconds(("W",), resource), fused)
