"""Memory saved and time added by recomputing each part of a layer, in GiB per millisecond.

The base is the same job without any recomputation, whatever the spec sets. Each row is a separate
evaluation. Memory is the highest peak of a device; the change may move it to another device.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from parcost import Outcome, Section, Study
from parcost.numeric import is_array
from parcost_plugins.analysis.advice.reach import try_change
from parcost_plugins.vocabulary import Recompute, Training

_CORE = ("training.recompute", "selective")
#: What recomputes one part of a layer, or whole layers.
_PARTS = (
    _CORE,
    ("recompute.norms", "on"),
    ("recompute.activation", "on"),
    ("recompute.up_projection", "on"),
    ("recompute.mlp", "on"),
    ("recompute.moe", "on"),
    ("training.recompute", "full"),
)
_NOTHING: Mapping[str, Any] = {
    "training.recompute": "none",
    **{path: "off" for path, value in _PARTS if value == "on"},
}
_LEAST_BYTES = 0.5 * 2**20  # of a part that saves nothing


class _Saving(NamedTuple):
    path: str
    value: str
    bytes_: float
    flops: float
    seconds: float
    in_use: bool

    @property
    def rank(self) -> tuple[bool, float]:
        """Return the sort key: most bytes saved per second first, parts that save nothing last."""
        saves = self.bytes_ > 0.0
        worth = self.bytes_ / self.seconds if self.seconds > 0.0 else float("inf")
        return not saves, -worth if saves else self.seconds


def section(study: Study, outcome: Outcome) -> Iterator[Section]:
    """Yield the table of parts, unless the study is swept or has nothing to recompute."""
    if is_array(outcome.step_seconds, outcome.memory_bytes):
        return
    base = try_change(study, "no recomputation", _NOTHING)
    found = list(_savings(study, base.outcome)) if base is not None else []
    if base is None or not found:
        return
    yield Section(
        title="Memory saved by recomputation",
        columns=("with", "memory", "FLOPs", "step", "saved per ms", ""),
        rows=[_row(saving) for saving in sorted(found, key=lambda one: one.rank)],
        notes=[
            f"each row alone, compared with no recomputation: {_amounts(base.outcome)}",
            "memory: of the device with the highest peak; FLOPs: of the busiest device",
            *_without_effect(found),
        ],
    )


def _savings(study: Study, base: Outcome) -> Iterator[_Saving]:
    training, recompute = study[Training], study[Recompute]
    for path, value in _PARTS:
        attempt = try_change(study, path, {**_NOTHING, path: value})
        if attempt is None:
            continue
        after = attempt.outcome
        if is_array(after.step_seconds, after.memory_bytes):  # a faulty plugin's shape
            continue
        flops = float(after.flops - base.flops)
        saved = float(base.memory_bytes - after.memory_bytes)
        same = not flops and not saved and after.step_seconds == base.step_seconds
        if same and (path, value) != _CORE:
            continue  # the model has no such part
        block, _, attribute = path.partition(".")
        now = getattr(training if block == "training" else recompute, attribute)
        yield _Saving(
            path=path,
            value=value,
            bytes_=saved,
            flops=flops,
            seconds=float(after.step_seconds - base.step_seconds),
            in_use=now is True or now == value,
        )


def _row(saving: _Saving) -> Sequence[Any]:
    worth = saving.bytes_ / saving.seconds / 1e3 if saving.seconds > 0.0 else 0.0
    return (
        f"{saving.path} = {saving.value}",
        (-saving.bytes_, "B"),
        (saving.flops, "FLOP"),
        (saving.seconds, "s"),
        (worth, "B") if worth > 0.0 else "-",
        "in use" if saving.in_use else "",
    )


def _without_effect(found: Sequence[_Saving]) -> list[str]:
    small = [one for one in found if (one.path, one.value) == _CORE and one.bytes_ < _LEAST_BYTES]
    return (
        ["recomputing the attention core saves no memory: its kernel does not store scores"]
        if small
        else []
    )


def _amounts(outcome: Outcome) -> str:
    gib = float(outcome.memory_bytes) / 2**30
    return f"{gib:.2f} GiB and {float(outcome.step_seconds):.4g} s"
