"""Whether the step fits into memory; if not, by how much, and what would make it fit."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from attrs import frozen

from parcost import Check, Outcome, Real, SpecError, Study, hookimpl
from parcost.numeric import all_of, is_array
from parcost_plugins.vocabulary import Cluster, Layout, MemoryBudget, Training

_GIB = 2.0**30
_MOMENTS = {
    "forward": "in forward",
    "backward": "in backward",
    "optimizer": "in the optimizer's update",
    "gather": "while parameters are gathered",
}


@hookimpl
def verdicts(study: Study, outcome: Outcome) -> list[Check]:
    """Require that the fullest device stays within the usable share of its memory."""
    device: Any = study[Cluster].device
    usable = study[MemoryBudget].usable
    room = usable * device.memory
    holds = outcome.memory_bytes <= room
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
                "device": device.label,
            },
            notes=("{usable:g} % of the {capacity:g} GiB of a {device}",),
            help="" if all_of(holds) or is_array(holds) else _way_out(study, room),
        )
    ]


@frozen(kw_only=True, eq=False)
class _Change:
    """One attribute changed, and what comes of it."""

    text: str
    step_seconds: Real
    memory_bytes: Real


def _way_out(study: Study, room: Real) -> str:
    """Return the single change that fits and costs the least time, in words."""
    tried = [made for path, value in _changes(study) if (made := _try(study, path, value))]
    fitting = [change for change in tried if change.memory_bytes <= room]
    if fitting:
        best = min(fitting, key=lambda change: change.step_seconds)
        used = f"{best.memory_bytes / _GIB:.1f} GiB, {best.step_seconds:.4g} s a step"
        return f"`{best.text}` fits: {used}"
    if tried:
        best = min(tried, key=lambda change: change.memory_bytes)
        used = f"{best.memory_bytes / _GIB:.1f} GiB"
        return f"no single change is enough; `{best.text}` comes closest, with {used}"
    return "no other layout of this model on this cluster is legal by a single change"


def _changes(study: Study) -> Iterator[tuple[str, Any]]:
    """Yield what people change first when memory runs out."""
    layout, training = study[Layout], study[Training]
    stronger = {"none": ("selective", "full"), "selective": ("full",)}
    for recompute in stronger.get(training.recompute, ()):
        yield "training.recompute", recompute
    for zero in range(layout.zero + 1, 4):
        yield "layout.zero", zero
    if not layout.sequence_parallel:
        yield "layout.sequence_parallel", "on"
    if training.micro_batch % 2 == 0:
        yield "training.micro_batch", training.micro_batch / 2
    yield "layout.tp", layout.tp * 2
    yield "layout.pp", layout.pp * 2


def _try(study: Study, path: str, value: Any) -> _Change | None:
    """Return what a change comes to, or None where the result is not legal."""
    from parcost.judge import rules
    from parcost.reduce import evaluate

    try:
        changed = study.replace({path: value})
        if not all_of(rules(changed).holds):
            return None
        outcome = evaluate(changed)
    except SpecError:
        return None
    if len(changed.faults) > len(study.faults):
        return None
    shown = value if isinstance(value, str) else f"{value:g}"
    return _Change(
        text=f"{path} = {shown}",
        step_seconds=outcome.step_seconds,
        memory_bytes=outcome.memory_bytes,
    )
