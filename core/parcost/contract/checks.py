"""Rules as data, and the validation of their masks and messages.

A mask that is not boolean would accept every layout. A message that lacks an input would fail when
it is printed, far from its plugin.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from attrs import field

from parcost.contract.calls import CallError, call
from parcost.contract.fields import Declaration, Record, Rule, is_within, rule
from parcost.language.diagnostics import quote
from parcost.language.errors import FaultError
from parcost.numeric import all_of
from parcost.records import frozen, record

if TYPE_CHECKING:
    from parcost.numeric import Mask, Real


def _clause_error(_: str, value: Any) -> str:
    return "" if isinstance(value, str) else f"{quote(value)} where text is expected"


_CLAUSE: Declaration = {"rule": Rule(_clause_error, "value.__class__ is str")}
_SEVERITY = rule(
    lambda word: word.__class__ is str and word in ("error", "warning"),
    "which is not error or warning",
)
_FACTOR = rule(lambda n: not isinstance(n, bool) and is_within(n, 0.0), "which is not a number")


@record(kw_only=True, eq=False)
class Check(Record):
    """A rule that a study must meet: a mask, and the message of a failure.

    *subject* is the attribute to point at, such as ``layout.tp``, or "" for none. *message* and
    *help* are templates filled from *inputs* (``"{heads} heads are not divisible by tp = {tp}"``).
    A point with a failed ``error`` is invalid; a ``warning`` is only printed. *factor* ranks
    warnings: the time or size at this point, divided by the value without the problem. Reports
    print warnings with a loss first, then those with a gain, and warnings without a factor last.
    *verdict* is the verdict of a report if this rule fails, such as "tight in memory". *reads* are
    the attributes that the rule uses. If another error rejects one of them, or an attribute that
    its default depends on, the rule is not reported.
    """

    called: ClassVar[str] = "the rule `{0.id}`"

    id: str = field(metadata=_CLAUSE)
    holds: Mask
    subject: str = field(metadata=_CLAUSE)
    message: str = field(metadata=_CLAUSE)
    inputs: Mapping[str, Any] = field(factory=dict)
    help: str = field(default="", metadata=_CLAUSE)
    notes: Sequence[str] = ()
    severity: Literal["error", "warning"] = field(default="error", metadata=_SEVERITY)
    factor: Real = field(default=1.0, metadata=_FACTOR)
    verdict: str = field(default="", metadata=_CLAUSE)
    reads: Sequence[str] = ()

    def problem(self) -> str:
        if not self.id or not self.message:
            return f"gave a rule the id {quote(self.id)} and the message {quote(self.message)}"
        if all_of(self.holds):
            return ""
        try:
            call(_message, self, first_failure(self))
        except CallError as error:
            return f"gave the rule `{self.id}` words that cannot be formatted: {error.text}"
        return ""


@frozen
class CheckMessage:
    """The message of a rule at one point of a sweep."""

    message: str
    help: str | None
    notes: tuple[str, ...]


def check_message(check: Check, point: int) -> CheckMessage:
    """Return the message of *check* at one point of a sweep.

    Raises:
        FaultError: The message cannot be formatted for this point.
    """
    try:
        return call(_message, check, point)
    except CallError as error:
        message = f"the words of the rule `{check.id}` cannot be formatted: {error.text}"
        raise FaultError(message) from error


def first_failure(check: Check) -> int:
    """Return the first point at which *check* fails."""
    if isinstance(check.holds, bool):
        return 0
    import numpy as np

    return int(np.argmin(np.asarray(check.holds)))


def _message(check: Check, point: int) -> CheckMessage:
    inputs = {name: _value_at(value, point) for name, value in check.inputs.items()}
    return CheckMessage(
        message=check.message.format(**inputs),
        help=check.help.format(**inputs) if check.help else None,
        notes=tuple(note.format(**inputs) for note in check.notes),
    )


def _value_at(value: Any, point: int) -> Any:
    if isinstance(value, (str, bool, int)) or value is None:
        return value
    if isinstance(value, float):
        return int(value) if value.is_integer() and abs(value) < 1e18 else value
    if hasattr(value, "ndim"):
        flat = value.reshape(-1)
        return _value_at(float(flat[min(point, len(flat) - 1)]), 0)
    return value
