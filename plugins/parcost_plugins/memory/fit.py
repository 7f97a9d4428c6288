"""Whether the step fits into memory; if not, by how much, and what would make it fit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import inf
from typing import Any

from attrs import frozen

from parcost import Check, Outcome, Real, SpecError, Study, block_name, hookimpl
from parcost.numeric import all_of, minimum
from parcost_plugins.vocabulary import (
    Cluster,
    Layout,
    MemoryBudget,
    Recompute,
    ScheduleChoice,
    Training,
)
from parcost_plugins.vocabulary.offers import has, usual_schedules

_GIB = 2.0**30
_MOST = 3  # changes that are tried together
_MORE_RECOMPUTED = {"none": ("selective", "full"), "selective": ("full",)}
_MOMENTS = {
    "forward": "in forward",
    "backward": "in backward",
    "optimizer": "in the optimizer's update",
    "gather": "while parameters are gathered",
}


@hookimpl
def capacities(study: Study) -> list[Real]:
    """Return the usable share of a device's memory: what is only tight may still be chosen."""
    return [study[MemoryBudget].usable * study[Cluster].device.memory]


@hookimpl
def outcome_checks(study: Study, outcome: Outcome) -> list[Check]:
    """Require that the fullest device stays within what may be used; warn where it is near."""
    device, budget = study[Cluster].device, study[MemoryBudget]
    usable, room = budget.usable, budget.usable * device.memory
    holds = outcome.memory_bytes <= room
    tight = minimum(budget.tight, usable)
    moment = outcome.memory_moment
    when = _MOMENTS[moment] if isinstance(moment, str) else "at its fullest moment"
    return [
        Check(
            id="does-not-fit",
            holds=holds,
            subject="cluster.device",
            message="stage {stage} needs {needs:.1f} GiB {when}, and {room:.1f} GiB are usable: "
            "{over:.1f} GiB too much",
            inputs={
                "stage": outcome.memory_device,
                "needs": outcome.memory_bytes / _GIB,
                "when": when,
                "room": room / _GIB,
                "over": (outcome.memory_bytes - room) / _GIB,
                "usable": 100.0 * usable,
                "capacity": device.memory / _GIB,
                "device": block_name(device),
            },
            notes=("usable: {usable:g} % of the {capacity:g} GiB of `{device}`",),
            help="" if all_of(holds) or study.axes else _remedy(study, outcome, room),
        ),
        # Frameworks run this full, at the risk of running out; nothing is impossible about it.
        Check(
            id="memory-tight",
            holds=(outcome.memory_bytes <= tight * device.memory) | (outcome.memory_bytes > room),
            subject="cluster.device",
            message="stage {stage} needs {needs:.1f} GiB {when}, {share:.3g} % of the "
            "{capacity:g} GiB of `{device}`: it may run out of memory",
            inputs={
                "stage": outcome.memory_device,
                "needs": outcome.memory_bytes / _GIB,
                "when": when,
                "share": 100.0 * outcome.memory_bytes / device.memory,
                "capacity": device.memory / _GIB,
                "device": block_name(device),
                "tight": 100.0 * tight,
            },
            notes=("what allocator and libraries take varies: it is tight beyond {tight:g} %",),
            help="leave more room, or say from where on it is tight: `memory {{ tight = ... }}`",
            severity="warning",
            factor=inf,
        ),
    ]


@frozen(kw_only=True, eq=False)
class _Remedy:
    """A study with some attributes changed, and what it comes to."""

    changes: Mapping[str, Any]
    study: Study
    step_seconds: Real
    memory_bytes: Real

    @property
    def text(self) -> str:
        """The changes as they would be written."""
        first, *more = (f"`{path} = {_text(v)}`" for path, v in self.changes.items())
        return f"{first} with {' and '.join(more)}" if more else first


def _remedy(study: Study, outcome: Outcome, room: Real) -> str:
    """Return the fewest changes that fit, and of those the fastest, in words.

    Where one change is not enough, the one that saves the most is kept and others are
    tried on top of it.
    """
    best = _Remedy(
        changes={},
        study=study,
        step_seconds=outcome.step_seconds,
        memory_bytes=outcome.memory_bytes,
    )
    for count in range(_MOST):
        tried = [made for path, value in _changes(best.study) if (made := _try(best, path, value))]
        fitting = [attempt for attempt in tried if attempt.memory_bytes <= room]
        if fitting:
            fastest = min(fitting, key=lambda attempt: attempt.step_seconds)
            used = f"{fastest.memory_bytes / _GIB:.1f} GiB, {fastest.step_seconds:.4g} s a step"
            more = "no single change that was tried is enough; " if count else ""
            return f"{more}{fastest.text} fits: {used}"
        smallest = min(tried, key=lambda attempt: attempt.memory_bytes, default=best)
        if smallest.memory_bytes >= best.memory_bytes:
            break
        best = smallest
    if not best.changes:
        return "no single change that was tried makes it smaller: take more devices"
    used = f"{best.memory_bytes / _GIB:.1f} GiB"
    return f"of what was tried, {best.text} comes closest, at {used}: take more devices"


def _changes(study: Study) -> Iterator[tuple[str, Any]]:
    """Yield what people change first when memory runs out, as far as the framework has it."""
    for path, value in _candidates(study):
        if has(study, path, value):
            yield path, value


def _candidates(study: Study) -> Iterator[tuple[str, Any]]:
    layout, training = study[Layout], study[Training]
    for recompute in _MORE_RECOMPUTED.get(training.recompute, ()):
        yield "training.recompute", recompute
    if training.recompute != "full":
        for part in _parts(study):
            if not getattr(study[Recompute], part):
                yield f"recompute.{part}", "on"
    for zero in range(layout.zero + 1, 4):
        yield "layout.zero", zero
    if not layout.sequence_parallel:
        yield "layout.sequence_parallel", "on"
    if training.micro_batch % 2 == 0:
        yield "training.micro_batch", training.micro_batch / 2
    for degree in ("tp", "cp", "pp"):
        yield f"layout.{degree}", getattr(layout, degree) * 2
    if layout.pp > 1:
        for kind in usual_schedules(study):
            if kind != study[ScheduleChoice].kind:
                yield "schedule.kind", kind


def _parts(study: Study) -> Iterator[str]:
    """Yield the parts of a layer that the model has, and that a switch makes again."""
    model = study[Training].model
    yield from ("norms", "activation", "mlp")
    if model.experts:
        yield "moe"
    if model.is_latent:
        yield "up_projection"


def _try(base: _Remedy, path: str, value: Any) -> _Remedy | None:
    """Return what one more change comes to, or None where the result is not legal."""
    try:
        changed = base.study.replace({path: value})
        if not all_of(changed.legal()):
            return None
        outcome = changed.evaluate()
    except SpecError:
        return None
    if changed.faults_beyond(base.study):
        return None
    return _Remedy(
        changes={**base.changes, path: value},
        study=changed,
        step_seconds=outcome.step_seconds,
        memory_bytes=outcome.memory_bytes,
    )


def _text(value: Any) -> str:
    return value if isinstance(value, str) else f"{value:g}"
