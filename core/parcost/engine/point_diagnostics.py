"""Diagnostics of a sweep, each with its points.

Points are evaluated in parts, and each part has its own diagnostics. Diagnostics that only differ
in their numbers are merged into one. It has the number of points and the first of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from attrs import evolve, field

from parcost.language.diagnostics import Diagnostic
from parcost.language.numbers import quantity
from parcost.records import frozen
from parcost.report.result import Result, point_count, runnable


@frozen
class PointDiagnostic(Diagnostic):
    """A diagnostic of a part of a sweep.

    It concerns *count* points; *first* is one of them. Two parts whose messages only differ in
    their numbers have the same *template*.
    """

    template: str = field(default="", eq=False)
    count: int = field(default=1, eq=False)
    first: Mapping[str, Any] = field(factory=dict, eq=False)
    runs: bool = field(default=False, eq=False)  # only points that run are counted

    @property
    def key(self) -> tuple[Any, ...]:
        """A key that is equal for all parts of one diagnostic."""
        spans = ((label.span.source.name, label.span.start) for label in self.labels)
        return (self.id, self.severity, self.template, self.place, *spans)


class PointNames:
    """Names the points of a sweep, for diagnostics; *units* are the units of the axes."""

    def __init__(self, axes: Sequence[tuple[str, Sequence[Any]]], units: Mapping[str, str]) -> None:
        last = [name.rpartition(".")[2] for name, _ in axes]
        self._heads = {
            name: short if last.count(short) == 1 else name
            for (name, _), short in zip(axes, last, strict=True)
        }
        self._units = units

    def describe(self, found: Sequence[PointDiagnostic], points: int) -> Diagnostic:
        """Return one diagnostic that merges *found*, each of which applies to some of *points*
        points.
        """
        one = found[0]
        count = sum(part.count for part in found)
        first = ", ".join(
            f"{head} = {self._value(name, one.first[name])}"
            for name, head in self._heads.items()
            if name in one.first
        )
        words = "points that run" if one.runs else "points"
        where = f" (at {count:,} of {points:,} {words}, such as {first})"
        if count == 1 and points > 1:
            where = f" (at {first})"
        elif count >= points:
            where = ""
        return Diagnostic(
            one.id, one.message + where, one.labels, one.notes, one.help, one.severity, one.place
        )

    def _value(self, name: str, value: Any) -> str:
        unit = self._units.get(name, "")
        if unit or isinstance(value, (int, float)):
            return quantity(value, unit)
        return str(getattr(value, "label", "") or value)


def merge_diagnostics(
    results: Sequence[Result], axes: Sequence[tuple[str, Sequence[Any]]], units: Mapping[str, str]
) -> list[Result]:
    """Return *results* with the points of each warning and failed claim in its message."""
    total = sum(point_count(result) + len(result.infeasible) for result in results)
    running = sum(int(runnable(result).sum()) for result in results)
    found = [d for r in results for d in r.diagnostics if isinstance(d, PointDiagnostic)]
    replace = merge(found, PointNames(axes, units), total, running)
    merged = []
    for result in results:
        claims = [
            evolve(claim, diagnostic=claim.diagnostic and replace(claim.diagnostic))
            for claim in result.expectations
        ]
        diagnostics = [replace(d) for d in result.diagnostics]
        merged.append(evolve(result, diagnostics=diagnostics, expectations=claims))
    return merged


def merge(
    found: Sequence[PointDiagnostic], names: PointNames, total: int, running: int
) -> Callable[[Diagnostic], Diagnostic]:
    """Return a function from each of *found* to the merged diagnostic."""
    alike: dict[tuple[Any, ...], list[PointDiagnostic]] = {}
    for part in found:
        alike.setdefault(part.key, []).append(part)
    merged = {
        key: names.describe(parts, running if parts[0].runs else total)
        for key, parts in alike.items()
    }

    def replace(diagnostic: Diagnostic) -> Diagnostic:
        if isinstance(diagnostic, PointDiagnostic):
            return merged.get(diagnostic.key, diagnostic)
        return diagnostic

    return replace
