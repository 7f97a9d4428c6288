"""The lines of the ledger: the seconds of a step by term, each with its formula.

All numbers are of the busiest device. It may differ between candidates: each line selects the
numbers of the busiest device, element by element.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from typing import TYPE_CHECKING

from parcost.contract.formulas import Formula, formula
from parcost.contract.outcome import BUBBLE, OTHER, LedgerLine
from parcost.contract.terms import COMPUTE, Edge, Once, Work
from parcost.engine.load import Load
from parcost.engine.maxima import MaximumChoice, columns, total
from parcost.engine.pairs import PlanPairs
from parcost.engine.pipeline_run import PipelineRun
from parcost.engine.replay import ALL, PipelinePlan
from parcost.engine.step_costs import WHENS, GroupCost, add
from parcost.numeric import Real, any_of, maximum

if TYPE_CHECKING:
    from parcost.contract.plugin import Plugin


def work_lines(
    works: Sequence[tuple[Plugin, Work]],
    loads: Sequence[Load],
    plan: PipelinePlan,
    device: MaximumChoice,
    paired: PlanPairs,
) -> list[LedgerLine]:
    """Return a line for each Work term, and one for the slowdown of compute that it causes.

    *loads* are by copy of a virtual stage. Communication that is hidden in *paired* passes counts
    as hidden.
    """
    m = plan.pipeline.micro_batches

    def on_device(row: Callable[[Load], Sequence[Real]]) -> Sequence[Real]:
        held = plan.held
        return device.row(
            lambda d: columns([_scale_by_share(plan, k, row(loads[k])) for k in held[d]])
        )

    times = on_device(lambda load: load.counts)
    at_once = device.row(paired.hidden_seconds) if plan.pairs else [0.0] * len(works)
    exposed = on_device(lambda load: load.exposed)
    hidden = on_device(lambda load: load.hidden)
    covered = on_device(lambda load: load.covered)
    lines: list[LedgerLine] = []
    for i, (plugin, work) in enumerate(works):
        lines.append(
            LedgerLine(
                name=work.name,
                kind="work",
                exposed=m * exposed[i] - at_once[i],
                hidden=m * hidden[i] + at_once[i],
                pass_=work.pass_,
                resource=work.resource,
                formula=work.formula,
                times=m * times[i],
                plugin=plugin,
                term=work,
                cause=work.cause or OTHER,
            )
        )
        if work.window is not None and any_of(work.slowdown != 0):
            lines.append(_slowdown(work, m, covered[i], plugin))
    return lines


def _scale_by_share(plan: PipelinePlan, k: int, row: Sequence[Real]) -> Sequence[Real]:
    """Return *row* multiplied by the share of the micro-batches that pass through copy *k*."""
    share = plan.shares[k]
    return row if share is ALL else [share * value for value in row]


def _slowdown(work: Work, m: Real, covered: Real, plugin: Plugin) -> LedgerLine:
    return LedgerLine(
        name=f"slowdown by {work.name}",
        kind="slowdown",
        exposed=m * (work.slowdown * covered),
        hidden=0.0,
        pass_=work.pass_,
        resource=COMPUTE,
        formula=formula(
            "m kappa t",
            m=m,
            kappa=work.slowdown,
            t=(covered, "s"),
            source="t: time overlapped with compute, which each second of it slows by kappa s",
        ),
        times=m,
        plugin=plugin,
        cause=work.cause or OTHER,
    )


def bubble_line(plan: PipelinePlan, makespan: Real, busy: Real) -> LedgerLine:
    """Return the pipeline bubble in seconds: the idle time of the device if messages took
    no time.
    """
    return LedgerLine(
        name="bubble",
        kind="bubble",
        exposed=maximum(makespan - busy, 0.0),
        hidden=0.0,
        pass_="",
        resource="",
        formula=formula(
            "max(T_p - t_p, 0)",
            T_p=(_replay_formula(plan, makespan), "s"),
            t_p=(busy, "s"),
            source="t_p: busy time; T_p: makespan of the pipeline without send/recv time",
        ),
        cause=BUBBLE,
    )


def _replay_formula(plan: PipelinePlan, makespan: Real) -> Formula:
    """Return the formula of a makespan that is computed by a replay of the order."""
    cut = plan.pipeline
    inputs = {
        "schedule": plan.schedule.name,
        "p": cut.stages,
        "m": cut.micro_batches,
        "v": cut.chunks,
    }
    return Formula(
        text="replay of the order of the schedule, p stages, m micro-batches, v chunks",
        inputs=inputs,
        value=makespan,
    )


def send_recv_lines(
    edges: Sequence[tuple[Plugin, Edge]],
    plan: PipelinePlan,
    device: MaximumChoice,
    makespans: Sequence[Real],
) -> list[LedgerLine]:
    """Return a line for each Edge: the exposed send/recv time of the pipeline in seconds.

    *makespans* are the makespans in seconds with the first 0, 1, ... edges.
    """
    messages = device.select(lambda d: plan.by_order(lambda o: float(sum(o.sent[d].values()))))
    lines: list[LedgerLine] = []
    for i, (plugin, edge) in enumerate(edges):
        exposed = maximum(makespans[i + 1] - makespans[i], 0.0)
        slowest = " of the slowest boundary" if edge.boundaries else ""
        lines.append(
            LedgerLine(
                name=edge.name,
                kind="send_recv",
                exposed=exposed,
                hidden=maximum(_message_seconds(edge, plan, device, messages) - exposed, 0.0),
                pass_="",
                resource=edge.resource,
                formula=formula(
                    f"max(T - T_0, 0), of a pipeline with messages of c{slowest} and without",
                    T=(_replay_formula(plan, makespans[i + 1]), "s"),
                    T_0=(_replay_formula(plan, makespans[i]), "s"),
                    context={
                        "c": (edge.seconds if edge.formula.value is None else edge.formula, "s")
                    },
                    source=edge.formula.source,
                ),
                times=messages,
                plugin=plugin,
                term=edge,
                cause=edge.cause or OTHER,
            )
        )
    return lines


def _message_seconds(edge: Edge, plan: PipelinePlan, device: MaximumChoice, messages: Real) -> Real:
    """Return the time in seconds of *messages* messages sent by the device."""
    each = edge.boundaries
    if not each:
        return messages * edge.seconds
    slowest = {  # of the boundaries between two devices
        (a, b): reduce(maximum, each[a:b])
        for _, order in plan.orders
        for a, b in order.program.routes
    }

    def waiting_seconds(d: int) -> Real:
        return total(_messages(plan, d, way) * seconds for way, seconds in slowest.items())

    return device.select(waiting_seconds)


def _messages(plan: PipelinePlan, d: int, way: tuple[int, int]) -> Real:
    return plan.by_order(lambda order: float(order.sent[d].get(way, 0)))


def once_lines(onces: Sequence[tuple[Plugin, Once]], run: PipelineRun) -> list[LedgerLine]:
    """Return the lines of terms once per step, and of the compute slowdown that they cause.

    Each group is listed on the device on which it takes longest.
    """
    grouped = {when: [pair for pair in onces if pair[1].when == when] for when in WHENS}
    added = add({when: [term for _, term in pairs] for when, pairs in grouped.items()}, run)
    lines: list[LedgerLine] = []
    for when, pairs in grouped.items():
        found = added[when]
        for i, (plugin, term) in enumerate(pairs):
            lines.append(
                LedgerLine(
                    name=term.name,
                    kind="once",
                    exposed=found.exposed[i],
                    hidden=found.hidden[i],
                    pass_=when,
                    resource=term.resource,
                    formula=term.formula,
                    times=found.times[i],
                    plugin=plugin,
                    term=term,
                    cause=term.cause or OTHER,
                )
            )
            if any_of(term.slowdown != 0):
                lines.append(_slowdown_once(term, found, i, plugin))
    return lines


def _slowdown_once(term: Once, found: GroupCost, i: int, plugin: Plugin) -> LedgerLine:
    return LedgerLine(
        name=f"slowdown by {term.name}",
        kind="slowdown",
        exposed=found.slowdown[i],
        hidden=found.made_up[i],
        pass_=term.when,
        resource=COMPUTE,
        formula=formula(
            "kappa t",
            kappa=term.slowdown,
            t=(found.under[i], "s"),
            source="t: time overlapped with compute, which each second of it slows by kappa s",
        ),
        plugin=plugin,
        cause=term.cause or OTHER,
    )
