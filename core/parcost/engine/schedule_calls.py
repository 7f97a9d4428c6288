"""Calls of the optional methods of a schedule, with validation of their results.

An invalid result is an error that names the schedule and the method. The reducer and the search add
the plugin to it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from parcost.contract.calls import CallError, call
from parcost.contract.pipelines import Case, Pipeline, PipelineShape, Times
from parcost.contract.study import Schedule
from parcost.engine.compiled_order import OrderError
from parcost.engine.shapes import broadcasts
from parcost.language.errors import FaultError
from parcost.numeric import Mask, Real, array_kind, is_array

if TYPE_CHECKING:
    from parcost.contract.study import Study

A = TypeVar("A")
T = TypeVar("T")


@contextmanager
def name_schedule_plugin(study: Study, schedule: str) -> Iterator[None]:
    """Add the name of the plugin to errors that its schedule raises."""
    try:
        yield
    except OrderError as error:
        plugin = study.plugins.offers("schedules")[schedule][0]
        raise FaultError(f"plugin {plugin} failed in `schedules`: {error}") from error


def case_of(
    pipeline: Pipeline,
    times: Times,
    hop: Real | tuple[Real, ...],
    micro_batches: Real | None = None,
    alike: Sequence[int] = (),
) -> Case:
    """Return the input of a schedule for a pipeline, with other *micro_batches* if given.

    Neighbouring virtual stages that have the same number in *alike* are a run.
    """
    return Case.from_times(
        times,
        stages=pipeline.stages,
        chunks=pipeline.chunks,
        micro_batches=pipeline.micro_batches if micro_batches is None else micro_batches,
        hop=hop,
        alike=alike,
    )


def limits(schedule: Schedule, shape: PipelineShape) -> str | None:
    """Return the reason why a schedule does not support *shape*, or None.

    Raises:
        OrderError: The schedule raises.
    """
    return _call(schedule, "limits", schedule.limits, shape)


def period(schedule: Schedule, stages: int, chunks: int) -> int | None:
    """Return the period of the order of a schedule in micro-batches, or None if it is not periodic.

    Raises:
        OrderError: The schedule raises, or returns an invalid value.
    """
    found = _call(schedule, "period", partial(schedule.period, stages), chunks)
    if found is not None and (type(found) is not int or found < 1):
        raise _wrong(
            schedule, "period", f"returns {found!r} where a number of at least 1 is expected"
        )
    return found


def lower_bound(schedule: Schedule, case: Case) -> Real | None:
    """Return a lower bound of the makespan in seconds, or None."""
    found = _call(schedule, "lower_bound", schedule.lower_bound, case)
    if found is not None:
        _require(schedule, "lower_bound", [found], case)
    return found


def closed_form(schedule: Schedule, case: Case) -> tuple[Real, Mask]:
    """Return the makespan in seconds, and the mask where it is exact."""
    found = _call(schedule, "closed_form", schedule.closed_form, case)
    if found is None:
        return 0.0, False
    seconds, mask = _two(
        schedule, "closed_form", found, "seconds and the mask where they are valid"
    )
    _require(schedule, "closed_form", [seconds, mask], case)
    return seconds, mask


def spans(schedule: Schedule, case: Case) -> tuple[Sequence[Real], Sequence[Real]] | None:
    """Return the start and end times of the first stage of each run (seconds), or None."""
    found = _call(schedule, "spans", schedule.spans, case)
    if found is None:
        return None
    rows = _two(schedule, "spans", found, "starts and ends")
    runs = len(case.counts)
    for row in rows:
        if not isinstance(row, (list, tuple)) or len(row) != runs:
            message = f"returns no start and end for each of {runs} runs of stages"
            raise _wrong(schedule, "spans", message)
        _require(schedule, "spans", row, case)
    return rows


def _call(schedule: Schedule, name: str, method: Callable[[A], T], argument: A) -> T:
    """Return the result of a method of *schedule*, called with *argument*.

    Raises:
        OrderError: The method raises.
    """
    try:
        return call(method, argument)
    except CallError as error:
        raise _wrong(schedule, name, str(error)) from error


def _two(schedule: Schedule, method: str, found: Any, wanted: str) -> tuple[Any, Any]:
    if not isinstance(found, (list, tuple)) or len(found) != 2:
        message = f"returns {type(found).__name__} where {wanted} are expected"
        raise _wrong(schedule, method, message)
    first, second = found
    return first, second


def _require(schedule: Schedule, method: str, values: Sequence[Any], case: Case) -> None:
    """Require that *values* are numbers, or arrays that broadcast to the shape of *case*."""
    for value in values:
        if value.__class__ is float or isinstance(value, (float, int)):
            continue
        if array_kind(value) not in ("f", "i", "u", "b"):
            message = f"returns {type(value).__name__} where numbers are expected"
            raise _wrong(schedule, method, message)
        shape = _shape(case)
        if not broadcasts(value.shape, shape):
            message = f"returns an array of shape {value.shape} for times of shape {shape}"
            raise _wrong(schedule, method, message)


def _shape(case: Case) -> tuple[int, ...]:
    """Return the broadcast shape of all numbers of *case*."""
    cut = (case.stages, case.chunks, case.micro_batches, *case.counts)
    values = [*case.F, *case.B, *case.W, case.saved, case.hop, *case.hops_before, *cut]
    if not is_array(*values):
        return ()
    import numpy as np

    return np.broadcast_shapes(*{np.shape(value) for value in values})


def _wrong(schedule: Schedule, method: str, message: str) -> OrderError:
    return OrderError(f"`{method}` of schedule `{schedule.name}` {message}")
