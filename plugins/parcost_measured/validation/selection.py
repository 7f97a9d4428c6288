"""Which rows to take, and when to fail: two small languages of the command line."""

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
    """A text is none of the small language; the message says what would be."""


@frozen
class Condition:
    """What a field of a row has to be: a pattern, or beyond a number."""

    field: str
    relation: str
    values: tuple[str, ...]

    def holds(self, value: Any) -> bool:
        """Return whether the condition holds for a row whose field has that *value*."""
        if self.relation in _COMPARISONS:
            if isinstance(value, bool) or not isinstance(value, (int, float)):
                return False
            return _COMPARISONS[self.relation](value, float(self.values[0]))
        text = "" if value is None or value is MISSING else str(value)
        found = any(fnmatchcase(text.lower(), pattern.lower()) for pattern in self.values)
        return found == (self.relation == "=")


def condition(text: str) -> Condition:
    """Return the condition that *text* spells.

    >>> condition("source_key=nemo,torch*")
    Condition(field='source_key', relation='=', values=('nemo', 'torch*'))

    Raises:
        MalformedError: It spells none.
    """
    found = re.fullmatch(r"\s*([\w.]+)\s*(!=|>=|<=|=|>|<)\s*(.+?)\s*", text)
    if not found:
        raise MalformedError(f"`{text}` selects nothing; write `source_key=torchtitan`")
    name, relation, rest = found.groups()
    if relation in _COMPARISONS:
        try:
            float(rest)
        except ValueError:
            raise MalformedError(f"`{text}` compares with no number") from None
        return Condition(name, relation, (rest,))
    return Condition(name, relation, tuple(part.strip() for part in rest.split(",")))


MISSING = object()


def value_of(row: RunRow, path: str, further: Mapping[str, Any]) -> Any:
    """Return the field of *row* at *path*, such as `batch.global`, or one of *further* ones.

    :data:`MISSING` stands for a field that it does not have.
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
    """Return the fields that the schema has, by path."""
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
    """A figure of the summary, of all rows or of a group, and what it may not be."""

    text: str
    quantity: str
    metric: str
    group: str
    relation: str
    bound: float

    def is_broken(self, value: float) -> bool:
        """Return whether *value* is what the limit excludes."""
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
    """Return the limit that *text* spells.

    >>> limit("mape of torchtitan > 10 %").bound
    0.1

    Raises:
        MalformedError: It spells none.
    """
    found = _LIMIT.fullmatch(text)
    if not found or found[2] not in METRICS:
        names = ", ".join(METRICS)
        raise MalformedError(
            f"`{text}` is no limit; write `mape > 10 %`, `memory mape > 8 %` or "
            f"`mape of torchtitan > 10 %`, of {names}"
        )
    quantity, metric, group, relation, number, percent = found.groups()
    if not percent:
        raise MalformedError(f"`{text}`: `{metric}` is a share; write `{number} %`")
    bound = float(number) / 100
    return RangeLimit(text, quantity or "step", metric, group or "all", relation, bound)
