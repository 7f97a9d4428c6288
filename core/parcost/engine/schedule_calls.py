"""What a schedule says of itself: asked, and looked at before anybody counts on it.

Whatever is wrong with it is an error that names the schedule and the method, and the plugin
once it leaves the reducer or a search.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from parcost.contract.terms import Schedule, Times
from parcost.engine.compiled_order import OrderError
from parcost.language.errors import FaultError, error_text, reraise_interrupt
from parcost.numeric import Mask, Real, array_kind, is_array

if TYPE_CHECKING:
    from parcost.contract.study import Study

#: What methods are asked with: times, hop, stages, micro-batches, chunks.
Asked = tuple[Times, Any, int, Real, int]


@contextmanager
def blamed(study: Study, schedule: str) -> Iterator[None]:
    """Name the plugin of a schedule in what is wrong with that."""
    try:
        yield
    except OrderError as error:
        plugin = study.plugins.named("schedules")[schedule][0]
        raise FaultError(f"plugin {plugin} failed in `schedules`: {error}") from error


def said(schedule: Schedule, method: str, *asked: Any) -> Any:
    """Return what a method of *schedule* returns.

    Raises:
        OrderError: It raises.
    """
    try:
        return getattr(schedule, method)(*asked)
    except BaseException as error:
        reraise_interrupt(error)
        raise _wrong(schedule, method, f"raised {error_text(error)}") from error


def lower_bound(schedule: Schedule, asked: Asked) -> Real:
    """Return seconds that the makespan is not below."""
    found: Real = said(schedule, "lower_bound", *asked)
    _require(schedule, "lower_bound", [found], asked)
    return found


def closed_form(schedule: Schedule, asked: Asked) -> tuple[Real, Mask]:
    """Return the makespan, and where that is exact."""
    seconds, mask = _two(schedule, "closed_form", asked, "seconds and where they hold")
    _require(schedule, "closed_form", [seconds, mask], asked)
    return seconds, mask


def spans(schedule: Schedule, asked: Asked) -> tuple[Sequence[Real], Sequence[Real]]:
    """Return when virtual stages start and end."""
    rows = _two(schedule, "spans", asked, "starts and ends")
    stages = asked[2] * asked[4]
    for row in rows:
        if not hasattr(row, "__len__") or len(row) != stages:
            message = f"returns no start and end for each of {stages} virtual stages"
            raise _wrong(schedule, "spans", message)
        _require(schedule, "spans", row, asked)
    return rows


def _two(schedule: Schedule, method: str, asked: Asked, wanted: str) -> tuple[Any, Any]:
    found = said(schedule, method, *asked)
    if not isinstance(found, (list, tuple)) or len(found) != 2:
        message = f"returns {type(found).__name__} where {wanted} are asked for"
        raise _wrong(schedule, method, message)
    first, second = found
    return first, second


def _require(schedule: Schedule, method: str, values: Sequence[Any], asked: Asked) -> None:
    """Require numbers, or arrays that have no other shape than what was asked with."""
    for value in values:
        if value.__class__ is float or isinstance(value, (float, int)):
            continue
        if array_kind(value) not in ("f", "i", "u", "b"):
            message = f"returns {type(value).__name__} where numbers are asked for"
            raise _wrong(schedule, method, message)
        shape = _shape(asked)
        if not _spreads(value.shape, shape):
            message = f"returns an array of shape {value.shape} for times of shape {shape}"
            raise _wrong(schedule, method, message)


def _shape(asked: Asked) -> tuple[int, ...]:
    """Return the shape of all that a schedule is asked with together."""
    times, hop, _, micro_batches, _ = asked
    hops = hop if isinstance(hop, tuple) else (hop,)
    values = [*times.F, *times.B, *times.W, *times.FB.values(), *hops, micro_batches]
    if not is_array(*values):
        return ()
    import numpy as np

    return np.broadcast_shapes(*{np.shape(value) for value in values})


def _spreads(shape: tuple[int, ...], over: tuple[int, ...]) -> bool:
    """Say whether an array of *shape* is one of shape *over*, less what does not vary.

    >>> _spreads((1, 3), (2, 3)), _spreads((3,), (2, 3)), _spreads((2,), (2, 3))
    (True, True, False)
    """
    behind = over[len(over) - len(shape) :]
    return len(shape) <= len(over) and all(a in (1, b) for a, b in zip(shape, behind, strict=True))


def _wrong(schedule: Schedule, method: str, message: str) -> OrderError:
    return OrderError(f"`{method}` of schedule `{schedule.name}` {message}")
