"""Records of binding: sweeps, the scope of an expression, and values from outside."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from parcost.binding.definitions import Definition, Definitions
from parcost.binding.modules import Loader, Module
from parcost.binding.values import BoundValue, Value
from parcost.contract.schema import Field
from parcost.language import syntax as s
from parcost.language.diagnostics import Diagnostic
from parcost.language.text import Span
from parcost.records import define, record


@define(eq=False)
class SweepAxis:
    """A sweep: its name, its values with their unit, and whether it is structural."""

    key: int
    name: str
    values: list[Any]
    span: Span
    unit: str = ""
    structural: bool = False


@record(eq=False)
class Sweep:
    """The items of a swept list, their labels on the axis, and their unit.

    *axes* are the sweeps inside the items. *structural* is true if some item is not a number.
    """

    items: tuple[Value, ...]
    shown: list[Any]
    unit: str
    axes: frozenset[int]
    structural: bool


@record(eq=False)
class SetValue:
    """A value set from outside the language, in base units; it takes the place of an expression."""

    value: Any
    span: Span


@record(eq=False)
class Scope:
    """The place of an expression: its block, its file, its field and its name."""

    definition: Definition | None
    module: Module
    field: Field | None
    name: str


class Binding(Protocol):
    """The interface of the binder that names, expressions and conversions use."""

    loader: Loader
    module: Module
    definitions: Definitions
    registries: Callable[[str], Sequence[str]]
    diagnostics: list[Diagnostic]
    axes: dict[int, SweepAxis]
    points: Mapping[int, Any]
    sweeps: dict[int, Sweep]
    open: list[tuple[int, str, Span]]
    study_lets: dict[str, s.Attribute]

    def evaluate(self, node: Any, scope: Scope) -> Value:
        """Return the value of an expression."""
        ...

    def attribute(self, definition: Definition, name: str) -> BoundValue:
        """Return the value of an attribute."""
        ...

    def object(self, definition: Definition) -> Any:
        """Return the object of a block."""
        ...

    def is_given(self, definition: Definition, name: str) -> bool:
        """Return whether the spec, or an override, sets an attribute."""
        ...

    def report_circle(
        self, name: str, node: s.Attribute, others: list[tuple[int, str, Span]]
    ) -> None:
        """Report that the value of *name* depends on itself; *others* are the names in between."""
        ...


class BrokenError(Exception):
    """The value depends on a value whose error is already reported."""
