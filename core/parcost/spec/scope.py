"""What binding keeps about an expression: where it stands, and what came of it."""

from __future__ import annotations

from typing import Any

from attrs import define

from parcost.contract.schema import Field
from parcost.language.text import Span
from parcost.records import record
from parcost.spec.definitions import Definition
from parcost.spec.modules import Module, Origin
from parcost.spec.values import Value


@define(eq=False)
class Axis:
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
class Given:
    """A value from outside the language, already in base units; stands for an expression."""

    value: Any
    span: Span


@record(eq=False)
class Bound:
    """An attribute's value: as the language has it, and as the block's object holds it."""

    value: Value
    held: Any
    origin: Origin


@record(eq=False)
class Scope:
    """Where an expression stands."""

    definition: Definition | None
    module: Module
    field: Field | None
    name: str


class BrokenError(Exception):
    """The value depends on something that has been reported."""
