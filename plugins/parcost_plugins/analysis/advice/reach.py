"""The smallest changes that reach a target.

Each change is made separately in the spec and evaluated, with the expressions that depend on it.
For a number such as the micro-batches, the smallest sufficient value is searched.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from parcost import Outcome, Section, SpecError, Study, record
from parcost.numeric import all_of
from parcost_plugins.physics import flops_per_token
from parcost_plugins.physics.run_choices import HIDING
from parcost_plugins.vocabulary import Cluster, Layout, ScheduleChoice, Targets, Training
from parcost_plugins.vocabulary.offers import has

_MOST = 4096  # micro-batches that are tried


@record(kw_only=True, eq=False)
class Attempt:
    """A change of attributes, and the resulting step."""

    title: str
    outcome: Outcome
    study: Study


def section(study: Study, outcome: Outcome) -> Iterator[Section]:
    """Yield the single changes that reach the targets, the fastest step first."""
    targets = study.get(Targets)
    if targets is None or not _goals(targets):
        return
    notes = [f"to reach: {', '.join(_goals(targets))}"]
    if meets(targets, study, outcome):
        yield Section(
            title="Changes that reach the targets",
            columns=("change", "step", "MFU", "bubble"),
            rows=[("none is needed", *_figures(study, outcome))],
            notes=notes,
        )
        return
    tried = list(_attempts(study, targets))
    reached = [a for a in tried if meets(targets, a.study, a.outcome)]
    reached.sort(key=lambda a: float(a.outcome.step_seconds))
    closest = sorted(tried, key=lambda a: float(a.outcome.step_seconds))[:3]
    rows = [(a.title, *_figures(a.study, a.outcome)) for a in reached or closest]
    if not reached:
        notes.insert(0, "no single change reaches the targets; the fastest ones are listed")
    yield Section(
        title="Changes that reach the targets",
        columns=("change", "step", "MFU", "bubble"),
        rows=rows,
        notes=[*notes, "each change alone; dependent values change as well"],
    )


def meets(targets: Targets, study: Study, outcome: Outcome) -> bool:
    """Return whether a step is within every target."""
    step, mfu, bubble = _values(study, outcome)
    return (
        (targets.step_time is None or step <= float(targets.step_time))
        and (targets.mfu is None or mfu >= float(targets.mfu))
        and (targets.bubble is None or bubble <= float(targets.bubble) * (1 + 1e-12))
    )


def bubble(outcome: Outcome) -> Any:
    """Return the pipeline bubble as a share of the step."""
    idle = sum((x.exposed for x in outcome.ledger if x.kind == "bubble"), 0.0)
    return idle / outcome.step_seconds


def _values(study: Study, outcome: Outcome) -> tuple[float, float, float]:
    training, cluster = study[Training], study[Cluster]
    peak = getattr(cluster.device, training.precision.compute)
    work = flops_per_token(study) * training.global_batch * training.sequence
    step = outcome.step_seconds
    return float(step), float(work / (cluster.devices * step * peak)), float(bubble(outcome))


def _figures(study: Study, outcome: Outcome) -> tuple[Any, ...]:
    step, mfu, idle = _values(study, outcome)
    return (step, "s"), (mfu, "%"), (idle, "%")


def _goals(targets: Targets) -> list[str]:
    return [
        *([f"step <= {targets.step_time:.4g} s"] if targets.step_time is not None else []),
        *([f"MFU >= {targets.mfu:.3g}"] if targets.mfu is not None else []),
        *([f"bubble <= {targets.bubble:.3g}"] if targets.bubble is not None else []),
    ]


def _attempts(study: Study, targets: Targets) -> Iterator[Attempt]:
    for title, values in _changes(study):
        if made := try_change(study, title, values):
            yield made
    if found := fewest_micro_batches(study, targets):
        yield found


def try_change(study: Study, title: str, values: Mapping[str, Any]) -> Attempt | None:
    """Return the step with a change, None if the change is invalid."""
    try:
        changed = study.replace(values)
        if not all_of(changed.legal()):
            return None
        outcome = changed.evaluate()
    except SpecError:
        return None
    if changed.faults_beyond(study):
        return None
    return Attempt(title=title, outcome=outcome, study=changed)


def _changes(study: Study) -> Iterator[tuple[str, Mapping[str, Any]]]:
    layout, training = study[Layout], study[Training]
    devices = study[Cluster].devices
    for pp in range(layout.pp - 1, 0, -1):
        fewer = devices * pp / layout.pp
        yield (
            f"pp = {pp} on {fewer:g} devices",
            {"layout.pp": pp, "cluster.devices": fewer, "training.global_batch": _batch(training)},
        )
    for kind in study.plugins.offers("schedules"):
        if kind != study[ScheduleChoice].kind and has(study, "schedule.kind", kind):
            yield f"schedule.kind = {kind}", {"schedule.kind": kind}
    for attribute, hides in HIDING.items():
        name = f"overlap.{attribute}"
        if not hides(study) and has(study, name, "on"):
            yield f"{name} = on", {name: "on"}
    if training.recompute != "none":
        yield "training.recompute = none", {"training.recompute": "none"}
    if not layout.sequence_parallel:
        yield "layout.sequence_parallel = on", {"layout.sequence_parallel": "on"}
    if training.micro_batch % 2 == 0:
        half = training.micro_batch / 2
        yield f"training.micro_batch = {half:g}", {"training.micro_batch": half}
    yield "training.micro_batch x 2", {"training.micro_batch": training.micro_batch * 2}


def _batch(training: Training) -> str:
    return f"{training.global_batch:.0f} sequences"


def fewest_micro_batches(study: Study, targets: Targets) -> Attempt | None:
    """Return the smallest number of micro-batches per replica that reaches the targets.

    More micro-batches make the step longer, so a target for step time is ignored. The number is
    found by bisection, because the bubble decreases with it.
    """
    training, layout = study[Training], study[Layout]
    if targets.step_time is not None:
        return None
    per = float(training.micro_batch * layout.dp)

    def attempt(m: int) -> Attempt | None:
        batch = m * per
        title = f"{m} micro-batches: global_batch = {batch:g} sequences"
        return try_change(study, title, {"training.global_batch": f"{batch:.0f} sequences"})

    def reaches(found: Attempt | None) -> bool:
        return found is not None and meets(targets, found.study, found.outcome)

    low = high = int(training.micro_batches)
    found = attempt(high)
    while not reaches(found):
        low, high = high, 2 * high
        if high > _MOST:
            return None
        found = attempt(high)
    while high - low > 1:
        middle = (low + high) // 2
        between = attempt(middle)
        if reaches(between):
            high, found = middle, between
        else:
            low = middle
    return found
