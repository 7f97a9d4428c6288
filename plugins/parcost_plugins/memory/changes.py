"""Changes that make a step fit in memory, the cheapest first.

If a step does not fit or is tight, every change that the framework supports is made in the spec.
The changed spec is evaluated like any study. A change is listed if the step then fits, or is tight
and did not fit before. The order is by step time; changes that need more devices come last. For
each attribute only the cheapest value is listed. If no single change is enough, pairs of the most
effective changes are tried. A single change that needs host memory or more devices does not prevent
this.

For example, on 64 devices `recompute.norms = on` may save 5 GiB for 20 ms, and `layout.cp = 2` 25
GiB for 100 ms. Both are rows, sorted by time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from typing import Any

from attrs import evolve

from parcost import Outcome, Section, SpecError, Study, hookimpl, percent, record
from parcost.numeric import all_of, is_array
from parcost_plugins.memory.offload import host_bytes
from parcost_plugins.physics import layers, memory_limits
from parcost_plugins.vocabulary import (
    Cluster,
    Layout,
    MemoryBudget,
    Offload,
    Recompute,
    ScheduleChoice,
    Training,
)
from parcost_plugins.vocabulary.framework import LOSSES
from parcost_plugins.vocabulary.offers import has, usual_schedules

_MORE_RECOMPUTED = {"none": ("selective", "full"), "selective": ("full",)}
_SHARES = (0.25, 0.5, 1.0)  # of what is offloaded
_CHUNKS = 8
_PAIRED = 6  # changes that are tried in pairs
_ROWS = 10
_LEAD = 3
_LAST = "cluster.devices"
_COLUMNS = ("change", "memory", "saved", "step", "vs now", "host", "")


@record(kw_only=True, eq=False)
class Fix:
    """A study with some attributes changed, and its step seconds and memory bytes."""

    values: Mapping[str, Any]
    study: Study
    step_seconds: float
    memory_bytes: float
    host_bytes: float
    slowdown: float = 1.0  # step time over that of the study as it is

    @property
    def text(self) -> str:
        """The changes as text of a spec."""
        return ", ".join(f"{path} = {_value_text(value)}" for path, value in self.values.items())

    @property
    def needs_devices(self) -> bool:
        """Whether the change needs more devices."""
        return _LAST in self.values

    @property
    def fits(self) -> bool:
        """Whether the step fits with memory to spare."""
        return self.memory_bytes <= float(memory_limits(self.study).fitting)

    @property
    def runs(self) -> bool:
        """Whether the step fits or is tight."""
        return self.memory_bytes <= float(memory_limits(self.study).most)

    @property
    def rank(self) -> tuple[float, bool, float, float, float]:
        """Return the sort key: fewer devices first, then changes that fit, then step time.

        If step times agree to a thousandth, less host memory is first.
        """
        order = float(self.values.get(_LAST, 0)), not self.fits
        return *order, round(self.slowdown, 3), self.host_bytes, self.slowdown


@hookimpl
def sections(study: Study, outcome: Outcome) -> Iterator[Section]:
    """Yield changes that make the step fit in memory, if it does not fit or is tight."""
    if is_array(outcome.step_seconds, outcome.memory_bytes):
        return
    if outcome.memory_bytes <= memory_limits(study).fitting:
        return
    base = _fix(study, {}, outcome)
    found, tried = fixes(base)
    if not found:
        yield _closest(base, tried)
        return
    pairs = len(found[0].values) > 1 and all(len(fix.values) > 1 for fix in found)
    notes = ["no single change is enough; pairs of the changes that save most"]
    yield Section(
        title="Changes that fit in memory",
        columns=_COLUMNS,
        rows=[_row(base, fix) for fix in found],
        notes=[
            *(notes if pairs else []),
            "each change alone; `host`: host memory per device",
        ],
        lead=_LEAD,
        command=found[0].study.command,
    )


def fixes(base: Fix) -> tuple[Sequence[Fix], Sequence[Fix]]:
    """Return the changes that fit, cheapest first, and all changes that were tried."""
    tried = [made for values in _changes(base.study) if (made := _try(base, values))]
    saving = [fix for fix in tried if fix.memory_bytes < base.memory_bytes]
    found = _cheapest(base, saving)
    if all(fix.needs_devices or fix.host_bytes > base.host_bytes for fix in found):
        enough = {tuple(fix.values) for fix in found}
        single = [fix for fix in _least_by_attribute(saving) if tuple(fix.values) not in enough]
        most = sorted(single, key=lambda fix: fix.memory_bytes)[:_PAIRED]
        both = [
            made
            for one, other in combinations(most, 2)
            if not set(one.values) & set(other.values)
            and (made := _try(base, {**one.values, **other.values}))
        ]
        tried, found = [*tried, *both], _cheapest(base, [*found, *both])
    more = [fix for fix in found if fix.needs_devices]
    return [*[fix for fix in found if not fix.needs_devices][:_ROWS], *more], tried


def _cheapest(base: Fix, tried: Sequence[Fix]) -> list[Fix]:
    """Return the cheapest change of each attribute, in order."""
    helping = [fix for fix in tried if fix.fits or (fix.runs and not base.runs)]
    found: dict[tuple[str, ...], Fix] = {}
    for fix in sorted(helping, key=lambda fix: fix.rank):
        found.setdefault(tuple(fix.values), fix)
    return list(found.values())


def _least_by_attribute(tried: Sequence[Fix]) -> list[Fix]:
    """Return the change of each attribute that needs the least memory."""
    found: dict[tuple[str, ...], Fix] = {}
    for fix in sorted(tried, key=lambda fix: fix.memory_bytes):
        found.setdefault(tuple(fix.values), fix)
    return list(found.values())


def _row(base: Fix, fix: Fix) -> tuple[Any, ...]:
    change = fix.slowdown - 1.0
    return (
        fix.text,
        (fix.memory_bytes, "GiB"),
        (base.memory_bytes - fix.memory_bytes, "GiB"),
        (fix.step_seconds, "s"),
        percent(change, signed=True),
        (fix.host_bytes, "GiB"),
        "" if fix.fits else "tight" if fix.runs else "does not fit",
    )


def _closest(base: Fix, tried: Sequence[Fix]) -> Section:
    """Return a section with the change closest to fitting, if none fits."""
    title = "No change fits in memory"
    least = min(tried, key=lambda fix: fix.memory_bytes, default=base)
    if least.memory_bytes >= base.memory_bytes:
        return Section(title=title, columns=("change",), rows=[("take more devices",)], lead=1)
    notes = ["use more devices, or devices with more memory"]
    columns = ("closest change", *_COLUMNS[1:])
    return Section(title=title, columns=columns, rows=[_row(base, least)], notes=notes, lead=1)


def _changes(study: Study) -> Iterator[Mapping[str, Any]]:
    """Yield the changes that the framework supports."""
    for values in _candidates(study):
        if all(has(study, path, value) for path, value in values.items()):
            yield values


def _candidates(study: Study) -> Iterator[Mapping[str, Any]]:
    """Yield the usual changes if memory is too small, from the cheapest to the most expensive."""
    budget, training, layout = study[MemoryBudget], study[Training], study[Layout]
    if budget.fragmentation is None and not budget.expandable_segments:
        yield {"memory.expandable_segments": "on"}
    yield from _losses(training)
    yield from _recomputation(study)
    yield from _offloads(study)
    if training.micro_batch > 1:
        yield {"training.micro_batch": 1}
        if training.micro_batch % 2 == 0:
            yield {"training.micro_batch": int(training.micro_batch) // 2}
    for zero in range(layout.zero + 1, 4):
        yield {"layout.zero": zero}
    if not layout.sequence_parallel:
        yield {"layout.sequence_parallel": "on"}
    degrees = ("tp", "cp", "pp", "ep") if training.model.experts else ("tp", "cp", "pp")
    for degree in degrees:
        for factor in (2, 4):
            yield {f"layout.{degree}": int(getattr(layout, degree)) * factor}
    if layout.pp > 1:
        for kind in usual_schedules(study):
            if kind != study[ScheduleChoice].kind:
                yield {"schedule.kind": kind}
    for factor in (2, 4):
        yield {_LAST: int(study[Cluster].devices) * factor}


def _losses(training: Training) -> Iterator[Mapping[str, Any]]:
    if training.loss_chunks == 1:
        yield {"training.loss_chunks": _CHUNKS}
    now = training.loss or training.framework.loss
    for loss in LOSSES[LOSSES.index(now) + 1 :]:
        yield {"training.loss": loss}


def _recomputation(study: Study) -> Iterator[Mapping[str, Any]]:
    training, recompute = study[Training], study[Recompute]
    model = training.model
    if training.recompute != "full":
        parts = ["norms", "activation"]
        parts += ["up_projection"] if model.is_latent else []
        parts += ["mlp"] if not model.experts or model.dense_first else []
        parts += ["moe"] if model.experts else []
        for part in parts:
            if not getattr(recompute, part):
                yield {f"recompute.{part}": "on"}
        most = max(layers(study))
        for share in (4, 2):
            if most >= 2 * share:
                some = {"recompute.layers": most // share}
                yield {"training.recompute": "full", **some}
    elif recompute.layers:
        yield {"recompute.layers": 0}
    for more in _MORE_RECOMPUTED.get(training.recompute, ()):
        yield {"training.recompute": more}


def _offloads(study: Study) -> Iterator[Mapping[str, Any]]:
    offload = study[Offload]
    for share in _SHARES:
        if share > offload.activations:
            yield {"offload.activations": share}
    for share in _SHARES[1:]:
        if share > offload.optimizer:
            where = (
                {} if offload.host_memory_bandwidth is not None else {"offload.update": "device"}
            )
            yield {"offload.optimizer": share, **where}


def _try(base: Fix, values: Mapping[str, Any]) -> Fix | None:
    """Return the study with a change; None if it is invalid.

    Degrees derived from others change with them. The global batch is kept, so that both steps do
    the same work.
    """
    for more in ({}, _follow_degrees(base.study, values)):
        if more is None:
            return None
        made = {**values, **more}
        try:
            changed = base.study.replace(made)
            if not _is_same_batch(base.study, changed):
                made["training.global_batch"] = f"{_batch(base.study):g} sequences"
                changed = base.study.replace(made)
            if not (_is_same_batch(base.study, changed) and all_of(changed.legal())):
                continue
            outcome = changed.evaluate()
        except SpecError:
            continue
        if changed.faults_beyond(base.study):
            continue
        fix = _fix(changed, made, outcome)
        return evolve(fix, slowdown=fix.step_seconds / base.step_seconds)
    return None


def _batch(study: Study) -> float:
    """Return the global batch in sequences."""
    return float(study[Training].global_batch)


def _is_same_batch(study: Study, other: Study) -> bool:
    return _batch(study) == _batch(other)


def _follow_degrees(study: Study, values: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the data-parallel degree that follows from changed degrees; None if it is
    unchanged.
    """
    layout = study[Layout]
    ranks: float = values.get(_LAST, study[Cluster].devices)
    for degree in ("tp", "cp", "pp"):
        ranks = ranks / values.get(f"layout.{degree}", getattr(layout, degree))
    return None if ranks == layout.dp or ranks % 1 else {"layout.dp": int(ranks)}


def _fix(study: Study, values: Mapping[str, Any], outcome: Outcome) -> Fix:
    return Fix(
        values=values,
        study=study,
        step_seconds=float(outcome.step_seconds),
        memory_bytes=float(outcome.memory_bytes),
        host_bytes=float(host_bytes(study, outcome)),
    )


def _value_text(value: Any) -> str:
    return value if isinstance(value, str) else f"{value:g}"
