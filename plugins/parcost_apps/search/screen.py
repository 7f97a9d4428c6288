"""The default page of a search: the verdict, the best layouts, and why the others are slower.

It fits 40 lines of 80 columns. The full page of :mod:`parcost_apps.search.report` has the rest.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import count, product
from math import inf
from string import ascii_lowercase
from textwrap import shorten
from typing import TYPE_CHECKING, Any

from parcost.contract.page import Column, Heading, Item, Line, Paper, Row, Table
from parcost.language import numbers
from parcost.language.numbers import percent
from parcost.report.verdict import verdict
from parcost.search.result import plain_value
from parcost_apps.search.report import (
    RankedLayout,
    axis_notes,
    derived_values,
    eval_words,
    faults,
    layout_counts,
    memory_verdict,
    no_effect,
    objective_values,
    order_note,
    pareto_front,
    setting_text,
    step_times,
    usable_bytes,
)
from parcost_formats.rendering.columns import column
from parcost_formats.rendering.job import job_table
from parcost_formats.rendering.text import draw

if TYPE_CHECKING:
    from parcost.search.result import SearchResult
    from parcost.search.space import Space
    from parcost_apps.search.sensitivity import Neighbour

_ROWS = 8  # of the best layouts, unless the user asks for a number
_LEAST_ROWS = 3  # as far as the page has more lines
_LINES = 40
_REASONS = 3  # layouts whose longer terms are listed
_TERMS = 2
_WIDTH = 76
_TIGHT = "tight in memory"
_GIB = 2.0**30


def search_screen(
    space: Space,
    found: SearchResult,
    best: Sequence[RankedLayout],
    near: Sequence[Neighbour] = (),
    *,
    rows: int | None = None,
    front: bool = False,
) -> Iterator[Item]:
    """Yield the default page of a search, with *rows* of the best layouts, and the *front*.

    Without *rows* it has as many as fit the page.
    """
    shown = best[: rows or _ROWS]
    while not rows and len(shown) > _LEAST_ROWS:
        if draw([*_items(space, found, best, shown, near)], Paper()).count("\n") <= _LINES:
            break
        shown = shown[:-1]
    yield from _items(space, found, best, shown, near, front=front)


def _items(
    space: Space,
    found: SearchResult,
    best: Sequence[RankedLayout],
    shown: Sequence[RankedLayout],
    near: Sequence[Neighbour],
    *,
    front: bool = False,
) -> Iterator[Item]:
    yield Heading(space.scenario.name, 1, aside=space.scenario.path)
    yield Line(_summary(found, best[0]), "strong")
    yield from layout_counts(found, brief=True)
    yield from job_table(*(entry.result for entry in shown))
    yield Heading("Best layouts (the fastest of each combination of degrees and micro-batch)", 3)
    yield from _layouts(space, found, shown)
    yield from _order(found, shown)
    yield Heading("Reproduce #1", 3)
    yield Line(" ".join(eval_words(space, best[0], brief=True)), verbatim=True)
    yield from no_effect(space, near)
    if reasons := list(_reasons(shown)):
        yield Heading("Why the others are slower", 3)
        yield from reasons
    if front:
        yield from pareto_front(space, found)
    yield Line("")
    for fault in faults(found, best):
        if fault not in found.faults:
            yield Line(fault, "bad")
    yield Line(_count_exclusions(found, len(best) - len(shown)), "faint")


def _summary(found: SearchResult, first: RankedLayout) -> str:
    """Return the verdict on the best layout in one sentence."""
    own, layout = found.objective, first.layout
    parts = [] if layout.value == layout.seconds else [(own.title, layout.value, own.unit)]
    parts += [("step time", layout.seconds, "s")]
    parts += [
        (o.short, value, o.unit)
        for o, value in objective_values(first).values()
        if o.name != own.name
    ]
    texts = [f"{title} {numbers.quantity(value, unit)}" for title, value, unit in parts]
    simpler = layout.value != found.lowest and layout.rank_by_time != 1
    near = (
        f"; the simplest within {100.0 * found.tolerance:.3g} % of the fastest" if simpler else ""
    )
    return f"Best layout: {', '.join(texts)}, {verdict(first.result)}{near}."


def _layouts(space: Space, found: SearchResult, shown: Sequence[RankedLayout]) -> Iterator[Item]:
    """Yield the table of the layouts, and the settings that have no column."""
    values = [_values(space, entry) for entry in shown]
    cuts = [path for path in _cuts(space) if any(each[path] for each in values)]
    degrees = [
        path for path, value in values[0].items() if path in space.short and _is_degree(value)
    ]
    varying = _paths_that_vary(degrees, values) or degrees
    words = [path for path in values[0] if path not in (*degrees, *_cuts(space))]
    mixed = _paths_that_vary(words, values)
    settings = [_settings(space, each, mixed) for each in values]
    letters = dict(zip(dict.fromkeys(settings), _labels(), strict=False))
    title, texts = _degree_columns(space, varying, values)
    columns = [
        (Column("#", "right"), [str(place) for place, _ in enumerate(shown, start=1)]),
        (Column(title, "right"), texts),
    ]
    for path in cuts:
        column = Column(space.short[path], flexible=True)
        columns.append((column, [str(each[path]) for each in values]))
    columns += _figure_columns(found, shown)
    if len(letters) > 1:
        columns.append((Column("with"), [letters[text] for text in settings]))
    rows = [
        Row(row, "strong" if place == 0 else "plain")
        for place, row in enumerate(zip(*(cells for _, cells in columns), strict=True))
    ]
    yield Table([column for column, _ in columns], rows)
    yield from axis_notes(space, shown)
    fixed = [path for path in (*degrees, *words) if path not in (*varying, *mixed)]
    if fixed:
        yield Line(f"same in all: {_settings(space, values[0], fixed)}", "faint")
    if len(letters) > 1:
        yield from (Line(f"{letter}: {text}", "faint") for text, letter in letters.items())


def _labels() -> Iterator[str]:
    """Yield a, b, ..., z, aa, ab, ... without end."""
    for length in count(1):
        yield from map("".join, product(ascii_lowercase, repeat=length))


def _is_degree(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _paths_that_vary(paths: Sequence[str], values: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the *paths* whose values differ between layouts."""
    return [path for path in paths if len({str(each[path]) for each in values}) > 1]


def _cuts(space: Space) -> list[str]:
    """Return the attributes with text values derived from the axes, such as the layer split."""
    return [axis.attribute for axis in space.follows if axis.short and axis.value is not None]


def _values(space: Space, entry: RankedLayout) -> dict[str, Any]:
    return {**entry.layout.values, **derived_values(space, entry)}


def _settings(space: Space, values: Mapping[str, Any], paths: Sequence[str]) -> str:
    texts = {path: space.text(path, values[path]) for path in paths}
    return ", ".join(
        f"{space.short[path]} {text}" if path in space.short else setting_text(path, text)
        for path, text in texts.items()
    )


def _degree_columns(
    space: Space, paths: Sequence[str], values: Sequence[Mapping[str, Any]]
) -> tuple[str, list[str]]:
    """Return the title and the cells of all degrees as one column, aligned by single spaces."""
    columns = [
        [space.short[path], *(str(plain_value(each[path])) for each in values)] for path in paths
    ]
    padded = [[text.rjust(max(map(len, column))) for text in column] for column in columns]
    title, *texts = (" ".join(row) for row in zip(*padded, strict=True))
    return title, texts


def _figure_columns(
    found: SearchResult, shown: Sequence[RankedLayout]
) -> Iterator[tuple[Column, list[str]]]:
    """Yield the columns of step time, interval, objectives and memory."""
    yield Column("step", "right"), column([x.layout.seconds for x in shown], "s")
    ends = [entry.result.interval("step_time") for entry in shown]
    if all(ends):
        coverage = numbers.quantity(ends[0].coverage, "%") if ends[0] else ""
        yield (
            Column(f"{coverage}, s", "right"),
            [f"{end.low:.3g}-{end.high:.3g}" if end is not None else "" for end in ends],
        )
    for figure in step_times(shown):
        values = [float(entry.result.figure(figure.name)) for entry in shown]
        yield Column(figure.title.partition(" ")[0], "right"), column(values, "s")
    own = found.objective
    others = [o for o, _ in objective_values(shown[0]).values()]
    if own.name != "step_time" and own.name not in {o.name for o in others}:
        yield (
            Column(own.short or own.title, "right"),
            [numbers.quantity(entry.layout.value, own.unit) for entry in shown],
        )
    for o in others:
        values = [objective_values(entry)[o.name][1] for entry in shown]
        scale = 100.0 if o.unit == "%" else 1.0
        title = f"{o.short} {o.unit}".rstrip()
        yield Column(title, "right"), [f"{scale * value:.3g}" for value in values]
    usable, *others_usable = {usable_bytes(entry) for entry in shown}
    known = not others_usable and usable < inf
    yield (
        Column(f"of {usable / _GIB:.3g} GiB" if known else "GiB", "right"),
        [f"{entry.layout.bytes_ / _GIB:.3g} {memory_verdict(entry)}" for entry in shown],
    )


def _order(found: SearchResult, shown: Sequence[RankedLayout]) -> Iterator[Line]:
    """Yield the notes below the table: the sort order and the accuracy of the predictions."""
    yield from order_note(found, shown)
    if any(verdict(entry.result) == _TIGHT for entry in shown):
        yield Line(
            "tight: may run out of memory; --headroom '5 %' leaves such layouts out.", "faint"
        )
    interval = shown[0].result.interval("step_time")
    share = (
        f"{numbers.quantity(interval.coverage, '%')}, s: interval of the step time in seconds. "
        if interval
        else ""
    )
    yield Line(f"{share}The best of many predictions is usually too fast.", "faint")


def _reasons(shown: Sequence[RankedLayout]) -> Iterator[Line]:
    """Yield a line for some layouts, with the terms that take longer than in the first layout."""
    first = shown[0].layout.seconds
    slower = [(n, x) for n, x in enumerate(shown, start=1) if x.layout.seconds > first]
    for place, entry in slower[:_REASONS]:
        longer = [
            f"{name} +{numbers.quantity(seconds, 's', 3)}"
            for name, seconds in entry.lost_by[:_TERMS]
            if seconds > 0
        ]
        change = percent(entry.layout.seconds / first - 1.0, signed=True)
        text = f"#{place} {change}: {', '.join(longer) or 'as fast'}"
        yield Line(shorten(text, _WIDTH, placeholder=" ..."))


def _count_exclusions(found: SearchResult, more: int) -> str:
    """Return a line with the number of excluded layouts, and the options that print the rest of the
    report.
    """
    rules = found.size - found.legal if not found.sampled else sum(found.rejected.values())
    limits = sum(found.limits.values())
    parts = [f"{rules:,} by rules", f"{found.large:,} by memory"]
    parts += [f"{limits:,} by limits"] if limits else []
    listed = f"{more} more layouts, " if more else ""
    return f"Excluded: {', '.join(parts)}. --full: {listed}rules, levers, Pareto front."
