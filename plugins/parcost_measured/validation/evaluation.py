"""Batch evaluation of studies: step time, memory and validity of every row.

The studies are files, so that workers of any kind can read them. Their folder is temporary unless
the user names one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attrs import evolve, field, frozen

from parcost_measured.validation.rows import Flaw, PlacedRow, UnmodelledError
from parcost_measured.validation.study import StudyText, write

if TYPE_CHECKING:
    from parcost.plugins.selection import PluginSelection
    from parcost_apps.batch.executors import Engine

#: Columns of the batch needed for scores, with their units.
_FIGURES = {
    "step_time": "step_time_seconds",
    "memory": "memory_bytes",
    "mfu": "mfu_fraction",
    "flops_per_device": "flops_per_device_flop_per_second",
}
#: Columns of the memory by what was read: a counter of the allocator, or a device, which is that of
#: the first stage, as users read the first node. Missing if the plugin is left out.
_COUNTERS = {
    "reserved": "reserved_memory_bytes",
    "allocated": "allocated_memory_bytes",
    "device": "used_memory_bytes",
}
#: Columns with the ends of intervals; missing if the plugin is left out.
_ENDS = {
    "step_time_low": "step_time_low_seconds",
    "step_time_high": "step_time_high_seconds",
    "memory_low": "memory_low_bytes",
    "memory_high": "memory_high_bytes",
}


@frozen(kw_only=True)
class Prediction:
    """The prediction for the study of a row.

    *fits* is true if it fits in memory; *model_flops* are the model FLOPs of a step per device;
    *peak* is the device's FLOP/s in the compute type. *counters* has the memory by the counters of
    an allocator, ``reserved`` and ``allocated``, in bytes. Intervals are the ranges in which the
    measured values are expected.
    """

    step_time: float
    memory: float
    fits: bool
    model_flops: float
    peak: float
    counters: Mapping[str, float] = field(factory=dict)
    step_interval: tuple[float, float] | None = None
    memory_interval: tuple[float, float] | None = None

    def add_slowdown(self, slowdown: tuple[float, float]) -> Prediction:
        """Return the prediction for a run with a *slowdown*, given as its lower and upper bound.

        The step time uses the middle of both bounds, and the interval uses both.
        """
        least, most = slowdown
        ends = self.step_interval
        return evolve(
            self,
            step_time=self.step_time * (1 + (least + most) / 2),
            step_interval=ends and (ends[0] * (1 + least), ends[1] * (1 + most)),
        )


@frozen(kw_only=True)
class RowResult:
    """A row, its study, and either a prediction or the reason for its failure.

    *faults* are errors of plugins; they make a prediction incomplete or impossible.
    """

    placed: PlacedRow
    written: StudyText | None = None
    prediction: Prediction | None = None
    reason: str = ""
    faults: Sequence[str] = ()

    def flaw(self, kind: str, reason: str) -> Flaw:
        """Return the reason why the row is not scored, with its place."""
        one = self.placed
        return Flaw(file=one.file, line=one.line, id=one.row.id, kind=kind, reason=reason)


def file_name(id: str) -> str:
    """Return a valid file name for the study of a row.

    >>> file_name("a/b c"), file_name("..")
    ('a_b_c.par', '_.par')
    """
    return (re.sub(r"[^A-Za-z0-9._-]+", "_", id).strip(".")[:200] or "_") + ".par"


def write_studies(
    placed: Sequence[PlacedRow], folder: Path
) -> Iterator[tuple[RowResult, Path | None]]:
    """Yield the case of each row, with the file of its study in *folder*."""
    taken: set[str] = set()
    for one in placed:
        try:
            written = write(one.row)
        except UnmodelledError as error:
            yield RowResult(placed=one, reason=str(error)), None
            continue
        name = file_name(one.row.id)
        while name.lower() in taken:
            name = f"{name.removesuffix('.par')}_.par"
        taken.add(name.lower())
        path = folder / name
        path.write_text(written.text, encoding="utf-8")
        yield RowResult(placed=one, written=written), path


def evaluate_cases(
    cases: Sequence[tuple[RowResult, Path | None]],
    selection: PluginSelection,
    engine: Engine | None,
    overrides: Mapping[str, str],
    progress: Callable[[int], None],
) -> Iterator[RowResult]:
    """Yield the cases with their predictions; *progress* receives the number of finished cases."""
    from parcost_apps.batch.files import Spec
    from parcost_apps.batch.fingerprints import Environment, Question
    from parcost_apps.batch.run import BatchRun
    from parcost_formats.rendering.rejection import FAULT
    from parcost_formats.rendering.view import View

    counters = [column.removesuffix("_bytes") for column in _COUNTERS.values()]
    view = View(kind="line", figures=(*_FIGURES, *counters, *_ENDS))
    run = BatchRun(
        Question(dict(overrides), None, "points", view), Environment(selection), engine=engine
    )
    specs = [Spec(str(path)) for _, path in cases if path is not None]
    entries = run.entries(specs)
    for number, (case, path) in enumerate(cases, 1):
        if path is None:
            yield case
        else:
            entry = next(entries)
            found = _prediction(entry.data())
            faults = entry.faults or (entry.reasons if entry.exit_code == FAULT else ())
            if isinstance(found, str):
                reason = found or "; ".join(entry.reasons) or "the study has no step"
                yield evolve(case, reason=reason, faults=faults)
            else:
                yield evolve(
                    case, prediction=found.add_slowdown(case.placed.row.slowdown), faults=faults
                )
        progress(number)
    for _ in entries:
        pass


def _prediction(points: Sequence[Mapping[str, Any]]) -> Prediction | str:
    """Return the prediction of the single point of a study, or the reason for its failure."""
    point = points[0] if points else {}
    values = {name: point.get(column) for name, column in _FIGURES.items()}
    if any(not isinstance(value, (int, float)) for value in values.values()):
        return str(point.get("reason") or "")
    step, mfu, speed = values["step_time"], values["mfu"], values["flops_per_device"]
    assert step is not None
    assert mfu is not None
    assert speed is not None
    return Prediction(
        step_time=step,
        memory=float(values["memory"] or 0.0),
        fits=bool(point.get("feasible", True)),
        model_flops=speed * step,
        peak=speed / mfu if mfu else 0.0,
        counters={
            name: float(value)
            for name, column in _COUNTERS.items()
            if isinstance(value := point.get(column), (int, float))
        },
        step_interval=_interval(point, "step_time"),
        memory_interval=_interval(point, "memory"),
    )


def _interval(point: Mapping[str, Any], name: str) -> tuple[float, float] | None:
    """Return the ends of the interval of a figure, None if it has none."""
    low, high = (point.get(_ENDS[f"{name}_{end}"]) for end in ("low", "high"))
    if isinstance(low, (int, float)) and isinstance(high, (int, float)):
        return float(low), float(high)
    return None
