"""Differences between two reports: attributes, figures, terms of the step and of memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import inf, isclose
from typing import Any

from parcost.language.diagnostics import Severity
from parcost.numeric import is_array
from parcost.records import record
from parcost.report.report import Report
from parcost.report.result import Result, is_good
from parcost.report.verdict import verdict
from parcost_formats.rendering.resolved_spec import AttributeText, attributes

_SAME = 1e-12  # numbers that differ by less, relatively, are equal


@record(kw_only=True)
class NumberChange:
    """A number before and after, both in *unit*; None where a side has no such number.

    *is_headline*: reports of several studies show the figure.
    """

    name: str
    before: float | None
    after: float | None
    unit: str = ""
    title: str = ""
    is_headline: bool = False

    @property
    def difference(self) -> float:
        """The number after minus the number before."""
        return (self.after or 0.0) - (self.before or 0.0)

    @property
    def relative(self) -> float:
        """The difference divided by the number before; infinite if that is 0."""
        if not self.before:
            return inf if self.difference > 0 else -inf if self.difference < 0 else 0.0
        return self.difference / abs(self.before)

    @property
    def is_change(self) -> bool:
        """Whether the numbers differ by more than rounding."""
        if self.before is None or self.after is None:
            return self.before is not self.after
        return not isclose(self.before, self.after, rel_tol=_SAME, abs_tol=0.0)


@record(kw_only=True)
class AttributeChange:
    """An attribute before and after, as `parcost show` prints it; None where it is absent.

    *follows* is true if neither side writes it, so that it follows from other attributes.
    """

    name: str
    before: str | None
    after: str | None
    place: str = ""
    follows: bool = False


@record(kw_only=True)
class StudyChange:
    """A study in both versions. *at* are the values of a sweep's axes at this point.

    *verdicts* and *valid* (whether the study runs) are before and after. *reasons* are the reasons
    why it does not run after the change. *terms* are exposed seconds of the step, and *causes*
    their sums. *memory* has the bytes of the device with the highest peak.
    """

    name: str
    at: Mapping[str, Any]
    verdicts: tuple[str, str]
    valid: tuple[bool, bool] = (True, True)
    reasons: Sequence[str] = ()
    attributes: Sequence[AttributeChange] = ()
    figures: Sequence[NumberChange] = ()
    causes: Sequence[NumberChange] = ()
    terms: Sequence[NumberChange] = ()
    memory: Sequence[NumberChange] = ()

    @property
    def is_change(self) -> bool:
        """Whether any attribute, figure, term or verdict differs."""
        numbers = (*self.figures, *self.terms, *self.memory)
        moved = any(number.is_change for number in numbers)
        return moved or bool(self.attributes) or self.verdicts[0] != self.verdicts[1]

    @property
    def is_evaluated(self) -> bool:
        """Whether both versions have figures; a version that a rule rejects has none."""
        sides = ("before", "after")
        return all(any(getattr(f, side) is not None for f in self.figures) for side in sides)

    def figure(self, name: str) -> NumberChange | None:
        """Return the figure called *name*, if either version has it."""
        return next((figure for figure in self.figures if figure.name == name), None)


def compare(name: str, before: Report, after: Report) -> Iterator[StudyChange]:
    """Yield the differences between two reports, one for each point that both have.

    Points of a sweep are compared by their figures. A study without a sweep also has its terms
    compared.
    """
    if before.axes or after.axes:
        yield from _points(name, before, after)
        return
    first, second = before.result, after.result
    yield StudyChange(
        name=name,
        at={},
        verdicts=(verdict(first), verdict(second)),
        valid=(bool(first.feasible), bool(second.feasible)),
        reasons=_reasons(second),
        attributes=list(_attributes(first, second)),
        figures=list(_figures(first, second)),
        causes=_numbers(_causes(first), _causes(second), "s"),
        terms=_numbers(_terms(first), _terms(second), "s"),
        memory=_numbers(_memory(first), _memory(second), "B"),
    )


def _points(name: str, before: Report, after: Report) -> Iterator[StudyChange]:
    changed = list(_attributes(before.results[0], after.results[0]))
    axes = list(dict.fromkeys(axis for report in (before, after) for axis, _ in report.axes))
    known = {_row_key(row, axes): row for row in before.rows()}
    units = {f.name: f.unit for r in (*before.results, *after.results) for _, f in r.figures}
    rows = after.rows()
    if not known.keys() & {_row_key(row, axes) for row in rows}:
        verdicts = (f"{len(known):,} points", f"{len(rows):,} others")
        yield StudyChange(name=name, at={}, verdicts=verdicts, attributes=changed)
        return
    for row in rows:
        other = known.get(_row_key(row, axes))
        if other is None:
            continue
        names = [n for n in row if n in units or (n in other and n in units)]
        yield StudyChange(
            name=name,
            at={axis: row[axis] for axis in axes if axis in row},
            verdicts=(_row_verdict(other), _row_verdict(row)),
            valid=(bool(other["feasible"]), bool(row["feasible"])),
            attributes=changed,
            figures=[
                NumberChange(
                    name=n, before=_plain(other.get(n)), after=_plain(row[n]), unit=units[n]
                )
                for n in names
            ],
        )
        changed = []


def _row_key(row: Mapping[str, Any], axes: Sequence[str]) -> tuple[str, ...]:
    return tuple(str(getattr(row.get(axis), "label", row.get(axis))) for axis in axes)


def _plain(value: Any) -> float | None:
    return None if value is None else float(value)


def _row_verdict(row: Mapping[str, Any]) -> str:
    return str(row["verdict"] if row["feasible"] else row.get("reason") or row["verdict"])


def _reasons(result: Result) -> list[str]:
    errors = [d.message for d in result.diagnostics if d.severity is Severity.ERROR]
    return [] if is_good(result) else errors


def _attributes(before: Result, after: Result) -> Iterator[AttributeChange]:
    """Yield the attributes that differ; those that a file sets come first."""
    first = attributes(before.study, after.study)
    second = attributes(after.study, before.study)
    found = []
    for name in dict.fromkeys((*first, *second)):
        one, other = first.get(name), second.get(name)
        if (one and one.text) == (other and other.text):
            continue
        shown = other or one or AttributeText()
        found.append(
            AttributeChange(
                name=name,
                before=one.text if one else None,
                after=other.text if other else None,
                place=shown.place,
                follows=not any(side is not None and side.is_given for side in (one, other)),
            )
        )
    yield from sorted(found, key=lambda change: change.follows)


def _figures(before: Result, after: Result) -> Iterator[NumberChange]:
    first = {f.name: f for _, f in before.figures if not is_array(f.value)}
    second = {f.name: f for _, f in after.figures if not is_array(f.value)}
    for name in dict.fromkeys((*first, *second)):
        shown = second.get(name) or first[name]
        yield NumberChange(
            name=name,
            before=float(first[name].value) if name in first else None,
            after=float(second[name].value) if name in second else None,
            unit=shown.unit,
            title=shown.title,
            is_headline=shown.brief is not None,
        )


def _numbers(
    before: Mapping[str, float], after: Mapping[str, float], unit: str
) -> list[NumberChange]:
    """Return the numbers of both sides by name, the largest change first."""
    changes = [
        NumberChange(name=name, before=before.get(name), after=after.get(name), unit=unit)
        for name in dict.fromkeys((*before, *after))
    ]
    return sorted(changes, key=lambda change: -abs(change.difference))


def _causes(result: Result) -> Mapping[str, float]:
    outcome = result.outcome
    if outcome is None:
        return {}
    return {cause: float(seconds) for cause, seconds in outcome.seconds_by_cause.items()}


def _terms(result: Result) -> Mapping[str, float]:
    outcome = result.outcome
    sums: dict[str, float] = {}
    for line in outcome.ledger if outcome is not None else ():
        sums[line.name] = sums.get(line.name, 0.0) + float(line.exposed)
    return sums


def _memory(result: Result) -> Mapping[str, float]:
    outcome = result.outcome
    sums: dict[str, float] = {}
    for line in outcome.memory_lines if outcome is not None else ():
        sums[line.name] = sums.get(line.name, 0.0) + float(line.bytes_)
    return sums
