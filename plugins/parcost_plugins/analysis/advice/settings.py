"""Other settings of the job, each evaluated as a change of the spec, so that dependent values
change, too.

Only settings that the framework has are tried; a result must be valid and fit in memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from parcost import Outcome, PipelineShape, Study
from parcost.numeric import all_of
from parcost_plugins.analysis.advice.reach import Attempt, try_change
from parcost_plugins.physics import memory_limits
from parcost_plugins.physics.neighbours import all_divisors
from parcost_plugins.physics.partition import end_layers
from parcost_plugins.physics.routing import dispatcher_of
from parcost_plugins.physics.run_choices import reduces_each_micro_batch
from parcost_plugins.vocabulary import Layout, Recompute, Routing, ScheduleChoice, Training
from parcost_plugins.vocabulary.framework import DISPATCHERS
from parcost_plugins.vocabulary.offers import has, usual_schedules

_CHUNKS = 6  # numbers of chunks that are tried
_PASSES = 20_000  # of all micro-batches on all virtual stages, to keep a screen quick
_LESS = {"full": ("none", "selective"), "selective": ("none",)}


class Setting(NamedTuple):
    """A change as written in a spec; only the best of each *subject* is listed."""

    subject: str
    title: str
    values: Mapping[str, Any]


def best(study: Study, before: Outcome) -> list[Attempt]:
    """Return the fastest setting of each subject that is valid and fits in memory."""
    room = memory_limits(study).most
    found: dict[str, Attempt] = {}
    for subject, title, values in _settings(study):
        made = try_change(study, title, values)
        if made is None:
            continue
        fits = (made.outcome.memory_bytes <= room) | (
            made.outcome.memory_bytes <= before.memory_bytes
        )
        fastest = found.get(subject)
        if all_of(fits) and (
            fastest is None or made.outcome.step_seconds < fastest.outcome.step_seconds
        ):
            found[subject] = made
    return list(found.values())


def _settings(study: Study) -> Iterator[Setting]:
    for setting in (*_schedules(study), *_of_experts(study), *_of_training(study)):
        if all(has(study, path, value) for path, value in setting.values.items()):
            yield setting


def _schedules(study: Study) -> Iterator[Setting]:
    """Yield the schedules of the framework, with the numbers of chunks that each supports."""
    choice, layout = study[ScheduleChoice], study[Layout]
    micro_batches = study[Training].micro_batches
    if layout.pp == 1:
        return
    offered = study.plugins.offers("schedules")
    for kind in usual_schedules(study):
        schedule = offered[kind][1]
        for chunks in _chunks(study):
            shape = PipelineShape(stages=layout.pp, micro_batches=int(micro_batches), chunks=chunks)
            if not schedule.limits(shape) and (kind, chunks) != (choice.kind, choice.chunks):
                values = {"schedule.kind": kind, "schedule.chunks": chunks}
                title = f"schedule {{ kind = {kind}, chunks = {chunks} }}"
                if chunks == choice.chunks:
                    values, title = {"schedule.kind": kind}, f"schedule.kind = {kind}"
                yield Setting("schedule", title, values)


def _chunks(study: Study) -> list[int]:
    """Return the numbers of chunks that divide the layers of a device evenly, smallest first."""
    pp, training = study[Layout].pp, study[Training]
    each = (training.model.layers + sum(end_layers(study))) // pp
    most = _PASSES / (pp * training.micro_batches)
    fitting = [chunks for chunks in all_divisors(each) if chunks <= most]
    return fitting[:_CHUNKS] if each else []


def _of_experts(study: Study) -> Iterator[Setting]:
    if not study[Training].model.experts or all_of(study[Layout].ep == 1):
        return
    now = dispatcher_of(study)
    if now == "alltoall" and not study[Routing].deduplicate:
        yield _one("routing.deduplicate", "on")
    for dispatcher in DISPATCHERS:
        if dispatcher != now:
            yield _one("routing.dispatcher", dispatcher)


def _of_training(study: Study) -> Iterator[Setting]:
    training, recompute = study[Training], study[Recompute]
    if study[Layout].zero >= 2:
        other = "whole" if reduces_each_micro_batch(study) else "shard"
        yield _one("sharding.accumulate", other)
    for micro_batch in (training.micro_batch * 2, training.micro_batch / 2):
        if all_of(micro_batch % 1 == 0):
            yield _one("training.micro_batch", micro_batch)
    for less in _LESS.get(training.recompute, ()):
        yield _one("training.recompute", less)
    for part in ("norms", "activation", "up_projection", "mlp", "moe"):
        if getattr(recompute, part):
            yield _one(f"recompute.{part}", "off")


def _one(path: str, value: Any) -> Setting:
    spelled = value if isinstance(value, str) else f"{value:g}"
    return Setting(path, f"{path} = {spelled}", {path: value})
