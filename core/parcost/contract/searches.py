"""Search spaces and goals: axes, objectives and limits."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import inf
from typing import TYPE_CHECKING, Any, ClassVar

from attrs import field

from parcost.contract.fields import AMOUNT, NAME, Record, bounds, is_within, items
from parcost.numeric import array_rank
from parcost.records import record

if TYPE_CHECKING:
    from parcost.contract.study import Study
    from parcost.numeric import Mask, Real


def _is_choice(value: Any) -> bool:
    return isinstance(value, str) or (not array_rank(value) and is_within(value))


def _is_limit(value: Any) -> bool:
    return isinstance(value, Limit) and isinstance(value.says, str)


#: Names of the columns that the rows of every search have in charts; the first one is also the
#: objective of a search that names none.
STEP_TIME, MEMORY = "step_time", "memory"
_CHOICES = items(_is_choice, "", "neither a number nor a word")
_LIMITS = items(_is_limit, "the limit ", "which is not a limit, or has no text")
_KEEP = bounds(1, inf, "which is not a number of layouts")


@record(kw_only=True, eq=False)
class Axis(Record):
    """An attribute that a search may choose, by its path, and its candidate values.

    *values* are numbers in base units, or words of the language. A search skips values at points
    where rules reject them. *others* are further values, each with a remark. A search uses them
    only if the user names them, and prints them with the reason *why*. An axis that *follows* from
    the others has no values; it is computed and printed with them. *lacking* are unavailable
    values, and *lacks* is the reason: a search prints both. *short* is the title of its column in
    tables, and *note* explains its values below them. *value* returns the value of an axis that
    follows, from the study of a layout; without it the attribute is read.
    """

    called: ClassVar[str] = "the axis `{0.attribute}`"

    attribute: str = field(metadata=NAME)
    values: Sequence[Any] = field(default=(), metadata=_CHOICES)
    others: Mapping[Any, str] = field(factory=dict)
    why: str = ""
    lacking: Sequence[Any] = ()
    lacks: str = ""
    follows: bool = False
    short: str = ""
    note: str = ""
    value: Callable[[Study], Any] | None = None


@record(kw_only=True, eq=False)
class Objective(Record):
    """A quantity that a search minimizes: ``cost(step_seconds)``, elementwise.

    *cost* must not decrease with the step time. *value* converts it to the printed number in
    *unit*; *largest* is true if that number is maximized, like an MFU. An objective with a *short*
    title is a column of every result. *needs* is a requirement that the study does not meet: then
    the objective cannot be chosen, and the error prints it.
    """

    called: ClassVar[str] = "the objective `{0.name}`"

    name: str
    title: str
    unit: str
    cost: Callable[[Real], Real]
    value: Callable[[Real], Real]
    largest: bool = False
    short: str = ""
    needs: str = ""


@record(kw_only=True, eq=False)
class Limit:
    """A condition that a layout must meet: ``holds(step_seconds, memory_bytes)``.

    It must be monotonic: a longer step or more memory must never make it true. A search skips
    layouts whose lower bound violates it. *says* is the limit as text: ``memory <= 70 GiB``.
    """

    name: str
    says: str
    holds: Callable[[Real, Real], Mask]


@record(kw_only=True, eq=False)
class Goal(Record):
    """The goal of a search of the study, unless the command line sets another.

    *axes* are names of axes; empty means all. None means not set. *subject* is the block that sets
    the goal, for diagnostics; its attributes have the same names. *complexity* returns numbers that
    sort simpler layouts first, from the study of a layout. Layouts whose cost differs by less than
    *tolerance*, a fraction, are listed in that order.
    """

    called: ClassVar[str] = "a goal"

    objective: str | None = None
    axes: Sequence[str] = ()
    limits: Sequence[Limit] = field(default=(), metadata=_LIMITS)
    keep: int | None = field(default=None, metadata=_KEEP)
    budget_seconds: float | None = field(default=None, metadata=AMOUNT)
    subject: str = ""
    complexity: Callable[[Study], Sequence[float]] | None = None
    tolerance: float | None = None
