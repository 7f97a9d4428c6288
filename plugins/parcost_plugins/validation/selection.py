"""Which rows to take, and when to fail: two small languages of the command line."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

from attrs import asdict, frozen

from parcost_plugins.validation.rows import Row

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

    def holds(self, facts: Mapping[str, Any]) -> bool:
        """Return whether the condition holds for a row of such *facts*."""
        value = facts.get(self.field)
        if self.relation in _COMPARISONS:
            if isinstance(value, bool) or not isinstance(value, (int, float)):
                return False
            return _COMPARISONS[self.relation](value, float(self.values[0]))
        text = "" if value is None else str(value)
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


def facts_of(row: Row, further: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of *row* by their path, `batch.global` among them, and *further* ones."""
    facts: dict[str, Any] = {}

    def add(path: str, value: Any) -> None:
        if isinstance(value, Mapping):
            for name, inner in value.items():
                add(f"{path}.{name}" if path else str(name).rstrip("_"), inner)
        else:
            facts[path.replace("global_", "global")] = value

    add("", asdict(row))
    return {**facts, **further}


@frozen
class Limit:
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


METRICS = ("mape", "median", "mean", "p90", "refused", "regret", "rho")
_LIMIT = re.compile(
    r"\s*(?:(memory)\s+)?(\w+)(?:\s+of\s+(.+?))?\s*(>=|<=|>|<)\s*([-+]?\d+(?:\.\d+)?)\s*(%?)\s*"
)


def limit(text: str) -> Limit:
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
    if metric != "rho" and not percent:
        raise MalformedError(f"`{text}`: `{metric}` is a share; write `{number} %`")
    bound = float(number) / (100 if percent else 1)
    return Limit(text, quantity or "step", metric, group or "all", relation, bound)


def selected(conditions: Sequence[Condition], facts: Mapping[str, Any]) -> bool:
    """Return whether all *conditions* hold."""
    return all(one.holds(facts) for one in conditions)
