"""Forms: the attributes of a study as inputs of a web page that a server updates."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from parcost.records import frozen

#: How an attribute is chosen: one of some values, on or off, a whole number, or any expression.
InputKind = Literal["choice", "switch", "number", "text"]


@frozen(kw_only=True)
class InputChoice:
    """A value that the user may choose; *entry* is its path in the catalogue, if it has one."""

    text: str
    entry: str = ""


@frozen(kw_only=True)
class FormInput:
    """An attribute that a form sets, by its *path*.

    *text* is its value in the syntax of specs, and *place* the origin of that value. If no value is
    set, *implied* is the value in use. *accepts* describes the valid values. *is_own* is true if
    the file of the study sets it. A page lists these inputs first, and hides the others in a fold.
    """

    path: str
    name: str
    kind: InputKind
    doc: str
    accepts: str
    text: str = ""
    implied: str = ""
    place: str = ""
    choices: Sequence[InputChoice] = ()
    minimum: float | None = None
    maximum: float | None = None
    is_own: bool = False


@frozen(kw_only=True)
class InputGroup:
    """The inputs of one block; *is_open* groups are unfolded at first."""

    title: str
    doc: str
    inputs: Sequence[FormInput]
    is_open: bool = False


@frozen(kw_only=True)
class SearchAxis:
    """An axis that a search may choose, with its values in the syntax of specs."""

    path: str
    values: Sequence[str]


@frozen(kw_only=True)
class SearchChoices:
    """The options of a search: its axes, its objectives (name and title), and its time limit."""

    axes: Sequence[SearchAxis] = ()
    objectives: Sequence[tuple[str, str]] = ()
    longest_seconds: float


@frozen(kw_only=True)
class Form:
    """The inputs of a study, in titled groups, and the options of a search."""

    parts: Sequence[tuple[str, Sequence[InputGroup]]]
    search: SearchChoices | None = None


@frozen(kw_only=True)
class WebPage:
    """A page of HTML, and its content security policy, which allows only its own scripts."""

    text: str
    policy: str
