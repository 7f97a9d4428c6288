"""What binding keeps about an expression: where it stands, and what came of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from attrs import define

from parcost.binding.definitions import Definition, Definitions
from parcost.binding.modules import Loader, Module
from parcost.binding.values import BoundValue, Value
from parcost.contract.schema import Field
from parcost.language import syntax as s
from parcost.language.diagnostics import Diagnostic
from parcost.language.text import Span
from parcost.records import record


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
    """The items of a list that is swept, what an axis shows of them, and its unit.

    *axes* are those of sweeps inside, and *structural* says that some item is no quantity.
    """

    items: tuple[Value, ...]
    shown: list[Any]
    unit: str
    axes: frozenset[int]
    structural: bool


@record(eq=False)
class SetValue:
    """A value from outside the language, already in base units; stands for an expression."""

    value: Any
    span: Span


@record(eq=False)
class Scope:
    """Where an expression stands."""

    definition: Definition | None
    module: Module
    field: Field | None
    name: str


class Binding(Protocol):
    """What names, expressions and conversions need of the binder that they work for."""

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
        """Return whether the spec, or a setting from outside, sets an attribute."""
        ...

    def report_circle(
        self, name: str, node: s.Attribute, others: list[tuple[int, str, Span]]
    ) -> None:
        """Report that the value of *name* depends on itself."""
        ...


class BrokenError(Exception):
    """The value depends on something that has been reported."""
