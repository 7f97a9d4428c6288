"""A comparison as a page and as JSON."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from math import isinf
from typing import TYPE_CHECKING, Any

from parcost.contract.page import Column, Heading, Item, Line, Row, Style, Table
from parcost.language.json_encoding import plain_data
from parcost.language.numbers import percent, quantity

if TYPE_CHECKING:
    from parcost_apps.diff.changes import AttributeChange, NumberChange, StudyChange
    from parcost_apps.diff.studies import Difference

_MOST = 8  # rows of a table, unless all are wanted
_POINTS = 20
_UNPAIRED = (
    "no study has the same name on both sides, so nothing was compared: give them the same "
    "names, or keep one study on each side"
)
_SMALL = 1e-3  # of the largest number of a table: smaller changes are counted only
_NOTHING = "-"
_MARK = re.compile(r' @(\w+)\(".*"\)$')  # behind a value


def difference_page(found: Difference, *, full: bool = False) -> Iterator[Item]:
    """Yield the differences, study by study; *full* lists all of them."""
    changed = [change for change in found.changes if change.is_change]
    same = len(found.same) + len({c.name for c in found.changes} - {c.name for c in changed})
    yield Heading(f"{found.before} -> {found.after}", 1)
    yield Line(_summary(found, changed, same))
    yield from _one_sided_lines(found)
    by_name: dict[str, list[StudyChange]] = {}
    for change in changed:
        by_name.setdefault(change.name, []).append(change)
    several = len(by_name) > 1
    if several:
        yield from _overview(changed)
    if not several or full:
        for name, changes in by_name.items():
            yield from _study(name, changes, full=full, titled=several)
    elif several:
        yield Line("--full lists attributes and terms of all studies, --study NAME of one", "faint")


def difference_data(found: Difference) -> Any:
    """Return a comparison as plain data."""
    return plain_data(
        {
            "before": found.before,
            "after": found.after,
            "same": list(found.same),
            "added": list(found.added),
            "removed": list(found.removed),
            "studies": [_study_data(change) for change in found.changes],
            "rejected": [
                {"side": side, "path": r.path, "reasons": [d.message for d in r.diagnostics]}
                for side, r in found.rejections
            ],
        }
    )


def _study_data(change: StudyChange) -> dict[str, Any]:
    return {
        "name": change.name,
        "at": {name: _label(value) for name, value in change.at.items()},
        "changed": change.is_change,
        "verdicts": list(change.verdicts),
        "reasons": list(change.reasons),
        "attributes": [
            {"name": a.name, "before": a.before, "after": a.after, "follows": a.follows}
            for a in change.attributes
        ],
        **{
            title: [
                {
                    "name": n.name,
                    "unit": n.unit,
                    "before": n.before,
                    "after": n.after,
                    "difference": n.difference,
                    "relative": None if isinf(n.relative) else n.relative,
                }
                for n in numbers
                if n.is_change
            ]
            for title, numbers in (
                ("figures", change.figures),
                ("causes", change.causes),
                ("terms", change.terms),
                ("memory", change.memory),
            )
        },
    }


def _summary(found: Difference, changed: Sequence[StudyChange], same: int) -> str:
    if not (found.changes or found.same):
        if found.rejections and not (found.added or found.removed):
            return "nothing was compared: no study could be evaluated"
        return _UNPAIRED
    names = len({change.name for change in changed})
    parts = [f"{names} {'study differs' if names == 1 else 'studies differ'}"]
    if same:
        parts.append(f"{same} {'is' if same == 1 else 'are'} the same")
    if found.added:
        parts.append(f"{len(found.added)} added")
    if found.removed:
        parts.append(f"{len(found.removed)} removed")
    if found.rejections:
        parts.append(f"{len(found.rejections)} not evaluated")
    return ", ".join(parts)


def _one_sided_lines(found: Difference) -> Iterator[Item]:
    for title, names in (
        (f"only in {found.after}", found.added),
        (f"only in {found.before}", found.removed),
    ):
        if names:
            more = f" and {len(names) - _MOST} more" if len(names) > _MOST else ""
            yield Line(f"{title}: {', '.join(names[:_MOST])}{more}")
    for side, rejection in found.rejections:
        reason = next((d.message for d in rejection.diagnostics), "not evaluated")
        place = side if rejection.path in side else f"{side}, {rejection.path}"
        yield Line(f"{place}: {reason}", "bad")


def _overview(changed: Sequence[StudyChange]) -> Iterator[Item]:
    """Yield a line for each study or point: its step time and memory."""
    rows = []
    for change in changed:
        point = ", ".join(f"{name} = {_label(value)}" for name, value in change.at.items())
        cells = [f"{change.name} {point}".strip()]
        for name in ("step_time", "memory"):
            number = change.figure(name)
            cells += [_value(number, "after"), _relative(number)] if number else [_NOTHING] * 2
        verdict = "" if change.verdicts[0] == change.verdicts[1] else " -> ".join(change.verdicts)
        rows.append(Row((*cells, verdict), _style(change)))
    columns = (
        Column("study", flexible=True),
        Column("step time", "right"),
        Column("change", "right"),
        Column("memory", "right"),
        Column("change", "right"),
        Column("", flexible=True),
    )
    yield Table(columns, rows)


def _study(
    name: str, changes: Sequence[StudyChange], *, full: bool, titled: bool
) -> Iterator[Item]:
    if titled:
        yield Heading(name, 2)
    first = changes[0]
    yield from _attributes(first.attributes, full=full)
    if first.at:
        yield from _overview(changes if full else changes[:_POINTS])
        more = len(changes) - _POINTS
        if more > 0 and not full:
            yield Line(f"{more} more points: --full", "faint")
        return
    if first.verdicts[0] != first.verdicts[1]:
        yield Line(f"{first.verdicts[0]} -> {first.verdicts[1]}", _style(first))
        yield from (Line(reason, indent=2) for reason in first.reasons)
    if not first.is_evaluated:
        return
    if not any(number.is_change for number in (*first.figures, *first.terms, *first.memory)):
        yield Line("No figure and no term changes.")
    yield from _table("Figures", first.figures, full=full, titles=True)
    yield from _table("Step time by cause", first.causes, full=full)
    yield from _table("Step time by term (exposed)", first.terms, full=full)
    yield from _table("Memory by term", first.memory, full=full)


def _cell(text: str | None, *, full: bool) -> str:
    """Return a value for a cell; its source or reason is omitted unless *full*.

    >>> _cell('1 @assumed("tp is 1")', full=False), _cell(None, full=True)
    ('1 (assumed)', '-')
    """
    if text is None or full:
        return text or _NOTHING
    return _MARK.sub(r" (\1)", text)


def _attributes(changes: Sequence[AttributeChange], *, full: bool) -> Iterator[Item]:
    given = [change for change in changes if full or not change.follows]
    if not changes:
        return
    yield Heading("Attributes", 3)
    rows = [
        Row(
            (
                change.name,
                _cell(change.before, full=full),
                _cell(change.after, full=full),
                change.place,
            )
        )
        for change in given
    ]
    columns = (
        Column(),
        Column("before", flexible=True),
        Column("after", flexible=True),
        Column(flexible=True),
    )
    if rows:
        yield Table(columns, rows)
    follow = len(changes) - len(given)
    if follow:
        names = ", ".join(change.name for change in changes if change.follows)
        yield Line(
            f"derived attributes that differ: {names}"
            if follow <= _MOST
            else f"{follow} derived attributes also differ"
        )


def _table(
    title: str, numbers: Sequence[NumberChange], *, full: bool, titles: bool = False
) -> Iterator[Item]:
    changed = [number for number in numbers if number.is_change]
    if not changed:
        return
    largest = max(abs(number.difference) for number in changed)
    if titles and not full and any(number.is_headline for number in changed):
        changed = [number for number in changed if number.is_headline]
    shown = (
        changed
        if full or titles
        else [number for number in changed[:_MOST] if abs(number.difference) >= _SMALL * largest]
    )
    yield Heading(title, 3)
    rows = [
        Row(
            (
                number.title or number.name if titles else number.name,
                _value(number, "before"),
                _value(number, "after"),
                _difference(number),
                _relative(number),
            )
        )
        for number in shown
    ]
    right = [Column(name, "right") for name in ("before", "after", "difference", "")]
    yield Table((Column(flexible=True), *right), rows)
    left = len(changed) - len(shown)
    if left:
        yield Line(f"{left} smaller {'change' if left == 1 else 'changes'}: --full", "faint")


def _value(number: NumberChange, side: str) -> str:
    value = number.before if side == "before" else number.after
    return _NOTHING if value is None else quantity(value, number.unit)


def _difference(number: NumberChange) -> str:
    sign = "+" if number.difference > 0 else "-"
    larger = max(abs(value) for value in (number.before, number.after) if value is not None)
    unit = quantity(larger, number.unit).rpartition(" ")[2]
    text = quantity(abs(number.difference), unit if unit.endswith("iB") else number.unit)
    if number.unit == "%":  # beside a relative change, `+2 %` would have two meanings
        text = text.replace("%", "points")
    return f"{sign}{text}"


def _relative(number: NumberChange | None) -> str:
    if number is None or number.before is None or number.after is None or isinf(number.relative):
        return _NOTHING
    return percent(number.relative, 2, signed=True) if number.is_change else "same"


def _style(change: StudyChange) -> Style:
    """Return the colour of a study: bad if it no longer runs, good if it now does."""
    before, after = change.valid
    return "plain" if before == after else "good" if after else "bad"


def _label(value: Any) -> Any:
    return getattr(value, "label", "") or value
