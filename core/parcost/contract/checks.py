"""Validation of a rule: its answer, and messages that can be formatted.

An answer that is neither yes nor no would pass every layout. A message that lacks an input would
fail when it is printed, far from its plugin.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from string import Formatter
from typing import TYPE_CHECKING, Any, Literal

from attrs import field, frozen

from parcost.contract.calls import CallError, call
from parcost.language.diagnostics import quote
from parcost.language.errors import FaultError
from parcost.numeric import all_of, array_kind
from parcost.records import record

if TYPE_CHECKING:
    from parcost.numeric import Mask, Real

_SEVERITIES = ("error", "warning")
_KEPT = 1024  # messages
_PLAIN = frozenset((str, bool, int, float))
_NUMBERS = frozenset("fiub")  # letters by which NumPy knows them


@record(kw_only=True, eq=False)
class Check:
    """A rule that a study must meet: a mask, and the message of a failure.

    *subject* is the attribute to point at, such as ``layout.tp``, or "" for none. *message* and
    *help* are templates filled from *inputs* (``"{heads} heads are not divisible by tp = {tp}"``).
    A failed ``error`` makes the point infeasible; a ``warning`` is only printed. *factor* ranks
    warnings: the time or size of what the warning is about, over what it should be. Reports
    print losses first, then gains, and last what changes no number.
    """

    id: str
    holds: Mask
    subject: str
    message: str
    inputs: Mapping[str, Any] = field(factory=dict)
    help: str = ""
    notes: Sequence[str] = ()
    severity: Literal["error", "warning"] = "error"
    factor: Real = 1.0


@frozen
class CheckMessage:
    """What a rule says of one point."""

    message: str
    help: str | None
    notes: tuple[str, ...]


def check_problem(check: Check) -> str:
    """Return the error in *check*, or an empty text. A failing check needs a message."""
    holds = check.holds
    words: tuple[Any, ...] = (check.id, check.subject, check.message, check.help)
    for word in words:
        if not isinstance(word, str):
            return f"gave the rule `{check.id}` {quote(word)} where text is expected"
    if not check.id or not check.message:
        return f"gave a rule the id {quote(check.id)} and the message {quote(check.message)}"
    if holds.__class__ is not bool and array_kind(holds) != "b":
        return f"gave the rule `{check.id}` holds = {quote(holds)}, which is neither true nor false"
    if check.severity not in _SEVERITIES:
        known = " or ".join(_SEVERITIES)
        return (
            f"gave the rule `{check.id}` severity = {quote(check.severity)}, which is not {known}"
        )
    if not (_is_number(check.factor) and all_of(check.factor >= 0)):
        return f"gave the rule `{check.id}` factor = {quote(check.factor)}, which is no number"
    if all_of(holds):
        return ""
    try:
        if not call(_is_formattable, check):
            call(_message, check, first_failure(check))
    except CallError as error:
        return f"gave the rule `{check.id}` words that cannot be said: {error.text}"
    return ""


def _is_formattable(check: Check) -> bool:
    """Return whether the words of *check* only name inputs that are plain: they can be said."""
    inputs: Any = check.inputs
    spoken: tuple[Any, ...] = (check.message, check.help, *check.notes)
    if not isinstance(inputs, Mapping):
        return False
    for words in spoken:
        names = _input_names(words) if isinstance(words, str) else None
        if names is None or not all(_is_plain(inputs.get(name)) for name in names):
            return False
    return True


def _is_number(value: Any) -> bool:
    if value.__class__ in (int, float):
        return True
    return array_kind(value) in _NUMBERS and value.size > 0


def _is_plain(value: Any) -> bool:
    if value.__class__ in _PLAIN:
        return True
    return array_kind(value) in _NUMBERS and value.size > 0


@lru_cache(_KEPT)
def _input_names(words: str) -> tuple[str, ...] | None:
    """Return the inputs that *words* name, None if they ask for more than their spelling."""
    try:
        fields = [(name, spec, how) for _, name, spec, how in Formatter().parse(words)]
    except ValueError:
        return None
    named = [(name, spec, how) for name, spec, how in fields if name is not None]
    if any(spec or how or not name.isidentifier() for name, spec, how in named):
        return None
    return tuple(name for name, _, _ in named)


def check_message(check: Check, point: int) -> CheckMessage:
    """Return what *check* says of one point of a sweep.

    Raises:
        FaultError: Its words cannot be said of this point.
    """
    try:
        return call(_message, check, point)
    except CallError as error:
        message = f"the words of the rule `{check.id}` cannot be said: {error.text}"
        raise FaultError(message) from error


def first_failure(check: Check) -> int:
    """Return the first point at which *check* fails."""
    if isinstance(check.holds, bool):
        return 0
    import numpy as np

    return int(np.argmin(np.asarray(check.holds)))


def _message(check: Check, point: int) -> CheckMessage:
    inputs = {name: _at(value, point) for name, value in check.inputs.items()}
    return CheckMessage(
        message=check.message.format(**inputs),
        help=check.help.format(**inputs) if check.help else None,
        notes=tuple(note.format(**inputs) for note in check.notes),
    )


def _at(value: Any, point: int) -> Any:
    if isinstance(value, (str, bool, int)) or value is None:
        return value
    if isinstance(value, float):
        return int(value) if value.is_integer() and abs(value) < 1e18 else value
    if hasattr(value, "ndim"):
        flat = value.reshape(-1)
        return _at(float(flat[min(point, len(flat) - 1)]), 0)
    return value
