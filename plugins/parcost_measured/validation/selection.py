"""Conditions on rows, and limits on figures: two command-line syntaxes."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from fnmatch import fnmatchcase
from typing import Any, get_type_hints

from attrs import fields, frozen, has

from parcost_measured.validation.rows import RunRow

_COMPARISONS: Mapping[str, Callable[[Any, Any], bool]] = {
    ">=": operator.ge,
    "<=": operator.le,
    ">": operator.gt,
    "<": operator.lt,
}


class MalformedError(ValueError):
    """A condition or a limit has a syntax error; the message has the expected form."""


@frozen
class Condition:
    """A condition on a field of a row: a pattern, or a bound."""

    field: str
    relation: str
    values: tuple[str, ...]

    def holds(self, value: Any) -> bool:
        """Return whether a field with this *value* meets the condition."""
        if self.relation in _COMPARISONS:
            if isinstance(value, bool) or not isinstance(value, (int, float)):
                return False
            return _COMPARISONS[self.relation](value, float(self.values[0]))
        text = "" if value is None or value is MISSING else str(value)
        found = any(fnmatchcase(text.lower(), pattern.lower()) for pattern in self.values)
        return found == (self.relation == "=")


def condition(text: str) -> Condition:
    """Parse a condition.

    >>> condition("source_key=nemo,torch*")
    Condition(field='source_key', relation='=', values=('nemo', 'torch*'))

    Raises:
        MalformedError: The text is not a condition.
    """
    found = re.fullmatch(r"\s*([\w.]+)\s*(!=|>=|<=|=|>|<)\s*(.+?)\s*", text)
    if not found:
        raise MalformedError(f"`{text}` is not a condition; write `source_key=torchtitan`")
    name, relation, rest = found.groups()
    if relation in _COMPARISONS:
        try:
            float(rest)
        except ValueError:
            raise MalformedError(f"the value in `{text}` is not a number") from None
        return Condition(name, relation, (rest,))
    return Condition(name, relation, tuple(part.strip() for part in rest.split(",")))


MISSING = object()


def value_of(row: RunRow, path: str, further: Mapping[str, Any]) -> Any:
    """Return the field of *row* at *path*, such as `batch.global`, or one of *further* fields.

    :data:`MISSING` stands for a field that the row lacks.
    """
    if path in further:
        return further[path]
    found: Any = row
    for step in path.split("."):
        if isinstance(found, Mapping):
            found = found.get(step, MISSING)
        elif has(type(found)):
            found = getattr(found, "global_" if step == "global" else step, MISSING)
        else:
            return MISSING
    return MISSING if has(type(found)) or callable(found) else found


def paths() -> list[str]:
    """Return the paths of all fields in the schema."""
    found: list[str] = []

    def add(kind: type, before: str) -> None:
        hints = get_type_hints(kind)
        for one in fields(kind):
            name, hint = before + one.name.rstrip("_"), hints[one.name]
            if isinstance(hint, type) and has(hint):
                add(hint, f"{name}.")
            else:
                found.append(name)

    add(RunRow, "")
    return found


@frozen
class RangeLimit:
    """A limit on a figure of the summary, over all rows or in a group."""

    text: str
    quantity: str
    metric: str
    group: str
    relation: str
    bound: float

    def is_broken(self, value: float) -> bool:
        """Return whether *value* violates the limit."""
        return _COMPARISONS[self.relation](value, self.bound)


METRICS = (
    "mape",
    "median",
    "mean",
    "p90",
    "rejected",
    "coverage",
    "half-width",
    "regret",
    "pairs",
)
_LIMIT = re.compile(
    r"\s*(?:(memory)\s+)?([\w-]+)(?:\s+of\s+(.+?))?\s*(>=|<=|>|<)\s*([-+]?\d+(?:\.\d+)?)\s*(%?)\s*"
)


def limit(text: str) -> RangeLimit:
    """Parse a limit.

    >>> limit("mape of torchtitan > 10 %").bound
    0.1

    Raises:
        MalformedError: The text is not a condition.
    """
    found = _LIMIT.fullmatch(text)
    if not found or found[2] not in METRICS:
        names = ", ".join(METRICS)
        raise MalformedError(
            f"`{text}` is not a limit; write `mape > 10 %`, `memory mape > 8 %` or "
            f"`mape of torchtitan > 10 %`, of {names}"
        )
    quantity, metric, group, relation, number, percent = found.groups()
    if not percent:
        raise MalformedError(
            f"`{text}`: the limit of `{metric}` is a percentage; write `{number} %`"
        )
    bound = float(number) / 100
    return RangeLimit(text, quantity or "step", metric, group or "all", relation, bound)
