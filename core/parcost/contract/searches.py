"""What a search may choose, look for and must keep: axes, objectives, limits and goals."""

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


_CHOICES = items(_is_choice, "", "no number and no word")
_LIMITS = items(_is_limit, "the limit ", "which is none or has no text")
_KEEP = bounds(1, inf, "which is no number of layouts")


@record(kw_only=True, eq=False)
class Axis(Record):
    """An attribute that a search may choose, by its path, and the values that may be legal.

    *values* are numbers in base units, or words of the language. Values that rules reject at some
    point of the space are left out there. *others* are values with a remark each. A search uses
    them only if the user names them, and prints them and *why*. An axis that *follows* from the
    others is not chosen, needs no values, and is printed beside them. *lacking* are values that are
    not available there, for the reason *lacks*: a search prints both. *short* is the title of its
    column in tables, and *note* explains its values below them. *value* returns the value of an
    axis that follows, from the study of a layout; without it the attribute is read.
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
    """What a search makes as small as it can: ``cost(step_seconds)``, an array like it.

    *cost* never falls where the step takes longer. *value* turns it into the number that
    people know, in *unit*; *largest* says that this is to be large, as an MFU is. An
    objective with a *short* title stands beside every layout, whatever is looked for. One that
    *needs* something that the study lacks cannot be looked for: the error has it.
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
    """What a layout must meet to be found: ``holds(step_seconds, memory_bytes)``.

    A longer step, or more memory, never makes it hold: a layout that breaks it by a bound
    from below breaks it. *says* is the limit in words: ``memory <= 70 GiB``.
    """

    name: str
    says: str
    holds: Callable[[Real, Real], Mask]


@record(kw_only=True, eq=False)
class Goal(Record):
    """What a search of the study is for, where the command line does not say otherwise.

    *axes* are names of axes, all that there are where it is empty. None is not said. *subject*
    is the block that says so, to point at, with attributes called like these. *complexity* returns
    numbers of a layout's study that sort simpler layouts first. Layouts whose cost differs by less
    than *tolerance*, a share, are listed in that order.
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
