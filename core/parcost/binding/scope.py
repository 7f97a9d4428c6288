"""Records of binding: sweeps, the scope of an expression, and values from outside."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from attrs import Factory

from parcost.binding.definitions import Definition, Definitions
from parcost.binding.modules import Loader, Module
from parcost.binding.values import BoundValue, Value
from parcost.contract.schema import BlockType, Field
from parcost.language import syntax as s
from parcost.language.diagnostics import Diagnostic, problem
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
    """A value from outside the spec, in base units; it replaces an expression."""

    value: Any
    span: Span


@record(eq=False)
class Scope:
    """The place of an expression: its block, its file, its field and its name."""

    definition: Definition | None
    module: Module
    field: Field | None
    name: str


@define(eq=False, kw_only=True)
class Binding(ABC):
    """The interface of a binder for names, expressions and conversions.

    *sweeps* are the sweeps of numbers and texts, independent of the points.
    """

    types: Mapping[str, BlockType]
    registries: Callable[[str], Sequence[str]]
    loader: Loader
    module: Module
    points: Mapping[int, Any] = Factory(dict)
    sweeps: dict[int, Sweep] = Factory(dict)
    diagnostics: list[Diagnostic] = Factory(list)
    axes: dict[int, SweepAxis] = Factory(dict)
    definitions: Definitions = Factory(
        lambda self: Definitions(self.types, self.loader.absences), takes_self=True
    )
    open: list[tuple[int, str, Span]] = Factory(list)
    study_lets: dict[str, s.Attribute] = Factory(dict)

    @abstractmethod
    def evaluate(self, node: Any, scope: Scope) -> Value:
        """Return the value of an expression."""

    @abstractmethod
    def attribute(self, definition: Definition, name: str) -> BoundValue:
        """Return the value of an attribute, computed once."""

    @abstractmethod
    def object(self, definition: Definition) -> Any:
        """Return the object of a block."""

    @abstractmethod
    def is_given(self, definition: Definition, name: str) -> bool:
        """Return whether the spec, or an override, sets an attribute."""

    def mark_structural(self, axes: Iterable[int]) -> None:
        """Record that words, references or stages depend on these axes."""
        for axis in axes:
            self.axes[axis].structural = True

    def report_circle(
        self, name: str, node: s.Attribute, others: list[tuple[int, str, Span]]
    ) -> None:
        """Report that the value of *name* depends on itself; *others* are the names of the
        cycle.
        """
        message = f"`{name}` depends on itself"
        also = [(at, "part of the cycle") for _, _, at in others]
        label = "needs its own value" if not others else "part of the cycle"
        self.diagnostics.append(problem("circular", message, node.name.span, label, also=also))


class BrokenError(Exception):
    """Error: the value depends on a value whose error is already reported."""
