"""What a search may choose, look for and must keep: axes, objectives, limits and goals."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from attrs import field

from parcost.records import record

if TYPE_CHECKING:
    from parcost.numeric import Mask, Real


@record(kw_only=True, eq=False)
class Axis:
    """An attribute that a search may choose, by its path, and the values that may be legal.

    *values* are numbers in base units, or words of the language. Values that rules refuse at some
    point of the space are left out there. *others* are values with a remark each. A search uses
    them only if the user names them, and prints them and *why*. An axis that *follows* from the
    others is not chosen, needs no values, and is printed beside them. *lacking* are values that are
    not available there, for the reason *lacks*: a search prints both.
    """

    attribute: str
    values: Sequence[Any] = ()
    others: Mapping[Any, str] = field(factory=dict)
    why: str = ""
    lacking: Sequence[Any] = ()
    lacks: str = ""
    follows: bool = False


@record(kw_only=True, eq=False)
class Objective:
    """What a search makes as small as it can: ``cost(step_seconds)``, an array like it.

    *cost* never falls where the step takes longer. *value* turns it into the number that
    people know, in *unit*; *largest* says that this is to be large, as an MFU is. An
    objective with a *short* title stands beside every layout, whatever is looked for.
    """

    name: str
    title: str
    unit: str
    cost: Callable[[Real], Real]
    value: Callable[[Real], Real]
    largest: bool = False
    short: str = ""


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
class Goal:
    """What a search of the study is for, where the command line does not say otherwise.

    *axes* are names of axes, all that there are where it is empty. None is not said. *subject*
    is the block that says so, to point at, with attributes called like these.
    """

    objective: str | None = None
    axes: Sequence[str] = ()
    limits: Sequence[Limit] = ()
    keep: int | None = None
    budget_seconds: float | None = None
    subject: str = ""
