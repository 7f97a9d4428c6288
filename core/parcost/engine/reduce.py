"""The reducer: from the terms of plugins to the step time and the memory, in five steps.

1. Work is added up to the cost of one micro-batch on each virtual stage (``stage_costs``).
2. The schedule's op order is replayed with these times (``orders``, ``replay``). It is replayed
   without and with the time of messages between devices. Passes that run together as a pair hide
   each other's messages (``pairs``).
3. Once-per-step terms are exposed if neither idle time of the stage nor the neighbouring
   micro-batch hides them (``step_costs``).
4. The ledger describes the reference device, the busiest. It has work, idle time in fill and
   drain, the cost of messages, and exposed once-per-step time. The step time is the sum of its
   exposed seconds, in order.
5. Memory is the peak over all devices and moments (``memory``).

Terms are first sorted by name, so that the order of plugins does not change any bit of a sum.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from attrs import evolve

from parcost.contract.counts import stage_numbers
from parcost.contract.outcome import Outcome
from parcost.contract.pipelines import Pipeline, Times
from parcost.contract.plugin import Fault
from parcost.contract.study import Schedule
from parcost.contract.terms import MOMENTS, Edge, Memory, Once, Work
from parcost.engine.bounds import device_seconds as busy_devices
from parcost.engine.ledger import bubble_line, once_lines, send_recv_lines, work_lines
from parcost.engine.load import Load
from parcost.engine.maxima import find_maximum, total
from parcost.engine.memory import peak_memory, reserved_bytes
from parcost.engine.pairs import PlanPairs
from parcost.engine.pipeline_run import PipelineRun
from parcost.engine.replay import Hop, PipelinePlan, Timeline, add_hops
from parcost.engine.schedule_calls import name_schedule_plugin
from parcost.engine.stage_costs import PASSES, kinds, load_where
from parcost.engine.step_costs import WHENS, kernel_seconds
from parcost.language.errors import FaultError, SpecError
from parcost.numeric import Mask, Real, any_of

if TYPE_CHECKING:
    from parcost.contract.plugin import Plugin
    from parcost.contract.study import Study

T = TypeVar("T")
Stamped = Sequence[tuple["Plugin", Any]]


def evaluate(study: Study) -> Outcome:
    """Return the step time and the memory of *study*.

    Raises:
        SpecError: No plugin provides the schedule, or the schedule does not support the pipeline.
        PluginError: The op order of the schedule is invalid.
    """
    pipeline, schedule = study.pipeline, study.schedule
    where = study.path or study.name
    terms, memory = study.contributions("terms"), study.contributions("memory")
    try:
        with name_schedule_plugin(study, pipeline.schedule):
            return reduce(pipeline, schedule, terms, memory, study.faults)
    except SpecError as error:
        raise SpecError(evolve(d, place=where) for d in error.diagnostics) from error


def reduce(
    pipeline: Pipeline,
    schedule: Schedule,
    terms: Stamped,
    memory: Stamped = (),
    faults: list[Fault] | None = None,
) -> Outcome:
    """Return the outcome as the sum of *terms* and *memory*, each with its plugin.

    An invalid term is omitted and recorded in *faults*; without *faults*, it raises a
    :class:`PluginError`.
    """
    whole, timelines = _run(pipeline, schedule, terms, memory, faults)
    plan, loads = whole.plan, whole.loads
    device = find_maximum(_busy_seconds(plan, loads, whole.times))[1]
    assert whole.pairs is not None
    ledger = work_lines(whole.works, loads, plan, device, whole.pairs)
    busy = total(line.exposed for line in ledger)
    if pipeline.stages > 1:
        ledger.append(bubble_line(plan, timelines[0].seconds, busy))
        seconds = [timeline.seconds for timeline in timelines]
        ledger += send_recv_lines(whole.edges, plan, device, seconds)
    ledger += once_lines(whole.onces, whole)
    ledger = [line for line in ledger if any_of(line.exposed != 0) or any_of(line.hidden != 0)]
    full = peak_memory(whole.memory, plan)
    return Outcome(
        pipeline=pipeline,
        step_seconds=total(line.exposed for line in ledger),
        ledger=ledger,
        device=device.index,
        ideal_seconds=busy,
        makespan_seconds=timelines[-1].seconds,
        flops=pipeline.micro_batches
        * device.select(lambda d: total(plan.shares[k] * loads[k].flops for k in plan.held[d])),
        memory_bytes=full.bytes_,
        memory_lines=full.lines,
        memory_device=full.device,
        memory_moment=full.moment,
        device_memory=full.devices,
        device_reserved=reserved_bytes(whole.memory, plan, full.devices),
        alive=[_alive(plan, x) for x in range(pipeline.stages * pipeline.chunks)],
        run=whole,
        kernels=partial(kernel_seconds, whole),
    )


def _run(
    pipeline: Pipeline,
    schedule: Schedule,
    terms: Stamped,
    memory: Stamped,
    faults: list[Fault] | None,
) -> tuple[PipelineRun, Sequence[Timeline]]:
    """Return the pipeline with its times and its timelines. The first timeline has no messages,
    each further one adds a kind of message.
    """
    plan = PipelinePlan(schedule, pipeline)
    stages = pipeline.stages * pipeline.chunks
    sound = _valid_terms("terms", terms, pipeline, faults)
    works = sorted(_instances(Work, sound), key=lambda p: (PASSES.index(p[1].pass_), p[1].name))
    edges = sorted(_instances(Edge, sound), key=lambda p: p[1].name)
    onces = sorted(_instances(Once, sound), key=lambda p: (WHENS.index(p[1].when), p[1].name))
    alike = kinds([*(work for _, work in works), *(once for _, once in onces)], stages)
    alone = [term for _, term in works]
    split = _split(plan)
    by_kind = {x: load_where(split, alone, x) for x in dict.fromkeys(alike)}
    by_stage = [by_kind[x] for x in alike]
    paired = PlanPairs(plan, alone, by_stage)
    loads = [by_stage[x] for x in plan.stage]
    seconds = {x: by_kind[x].seconds for x in by_kind}
    passes = {x: (t["F"], t["R"] + t["B"], t["W"]) for x, t in seconds.items()}
    forward, backward, weights = zip(*(passes[x] for x in alike), strict=True)
    times = Times(forward, backward, weights, paired.seconds)
    hops: list[Hop] = [0.0]  # as one kind of message after another is added
    for _, edge in edges:
        hops.append(add_hops(hops[-1], tuple(edge.boundaries) or edge.seconds))
    # All of them replayed, or none: the difference of two is the time of a message.
    timelines = [plan.timeline(times, hop, spans=bool(onces)) for hop in hops]
    kept = sorted(_valid_terms("memory", memory, pipeline, faults), key=lambda p: p[1].name)
    run = PipelineRun(
        plan=plan,
        loads=loads,
        kinds=[alike[x] for x in plan.stage],
        times=times,
        hop=hops[-1],
        timeline=timelines[-1],
        works=works,
        edges=edges,
        onces=onces,
        memory=kept,
        pairs=paired,
    )
    return run, timelines


def _busy_seconds(plan: PipelinePlan, loads: Sequence[Load], times: Times) -> Sequence[Real]:
    """Return the busy seconds of each device, to select the busiest.

    They are per micro-batch, or per step for pipelines with copies.
    """
    if plan.pairs or len(plan.device) > len(times.F):
        return busy_devices(plan, times)
    return [total(loads[k].total for k in held) for held in plan.held]


def _split(plan: PipelinePlan) -> Mask:
    """Return the mask where the order separates W from B; it may depend on the number of
    micro-batches.
    """
    found = {any(order.split) for _, order in plan.orders}
    return found.pop() if len(found) == 1 else plan.by_order(lambda o: float(any(o.split))) != 0


def _alive(plan: PipelinePlan, x: int) -> Real:
    copies = [k for k, stage in enumerate(plan.stage) if stage == x]
    return plan.by_order(lambda order: float(max(order.alive[k] for k in copies)))


def _instances(wanted: type[T], stamped: Stamped) -> Iterator[tuple[Plugin, T]]:
    return ((plugin, term) for plugin, term in stamped if isinstance(term, wanted))


def _valid_terms(
    hook: str, stamped: Stamped, pipeline: Pipeline, faults: list[Fault] | None
) -> Stamped:
    """Return the terms that are valid and fit the pipeline."""
    found: list[tuple[Plugin, Any]] = []
    stages = pipeline.stages * pipeline.chunks
    for plugin, term in stamped:
        complaint = _negative(term) or term_problem(term, pipeline.stages, (stages,))
        if not complaint:
            found.append((plugin, term))
        elif faults is None:
            raise FaultError(f"plugin {plugin} failed in `{hook}`: {complaint}")
        else:
            faults.append(Fault(plugin=plugin, hook=hook, message=complaint))
    return found


def _negative(term: Work | Edge | Once | Memory) -> str:
    amount = term.bytes_ if isinstance(term, Memory) else term.seconds
    below = any_of(amount < 0)
    if isinstance(term, Edge):
        below = below or any(any_of(seconds < 0) for seconds in term.boundaries)
    return f"`{term.name}` is negative" if below else ""


def term_problem(term: Work | Edge | Once | Memory, devices: int, stages: Sequence[int]) -> str:
    """Return the reason why a term is invalid for these numbers of devices and virtual stages, or
    "".

    *stages* has the number of virtual stages of each structure.
    """
    if isinstance(term, Edge):
        between, each = devices - 1, term.boundaries
        fits = not each or len(each) == between
        counted = (
            f"`{term.name}` has times for {len(each)} boundaries, but the pipeline has {between}"
        )
        return "" if fits else counted
    lengths = stage_numbers(term.count)
    if lengths and lengths != stages:
        pairs = zip(lengths, stages, strict=False)
        wrong = [f"{a} virtual stages, but the pipeline has {b}" for a, b in pairs if a != b]
        if wrong:
            return f"`{term.name}` has counts for {wrong[0]}"
    if isinstance(term, Work):
        known: Sequence[str] = PASSES
        said: Sequence[str] = (term.pass_,)
    elif isinstance(term, Once):
        known, said = WHENS, (term.when,)
    else:
        known, said = MOMENTS, (*term.moments, *term.cached)
    for word in said:
        if word not in known:
            return f"`{term.name}` names `{word}`, which is not one of {' or '.join(known)}"
    return ""
