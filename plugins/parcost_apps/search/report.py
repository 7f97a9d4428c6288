"""The full page of a search: best layouts, reasons why others are slower, rejections, and Pareto
front.

The best layouts are evaluated again as ordinary studies, so that their time is known by term. The
differences of these ledgers show why a layout is slower than the best.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from math import inf
from typing import TYPE_CHECKING, Any

from parcost import PASS_NAMES
from parcost.contract.page import Column, Heading, Item, Line, Row, Style, Table
from parcost.engine.shapes import memory_limits_of
from parcost.language import numbers
from parcost.language.numbers import percent
from parcost.records import frozen
from parcost.report.verdict import verdict
from parcost.search.attributes import find
from parcost.search.layout_evaluation import settings
from parcost.search.result import SearchedLayout, SearchResult, plain_value, varying_axes
from parcost.search.space import derived_value
from parcost_apps.search.sensitivity import Neighbour
from parcost_formats.rendering.full_report import reproduction, section_page
from parcost_formats.rendering.json_header import header

if TYPE_CHECKING:
    from parcost.contract.figures import Figure
    from parcost.contract.searches import Axis, Objective
    from parcost.contract.study import Study
    from parcost.engine.scenario import Scenario
    from parcost.report.result import Result
    from parcost.search.space import Space

_TERMS = 3  # that are longer, where a runner-up lost, and one that is shorter
_FRONT = 12  # lines
_LEAST_REASON = 1e-6  # of the best step, by which a term is longer elsewhere


@frozen(kw_only=True, eq=False)
class RankedLayout:
    """A layout and its evaluation; *lost_by* are the seconds lost to the best layout, by term."""

    layout: SearchedLayout
    result: Result
    lost_by: Sequence[tuple[str, float]]


def memory_verdict(entry: RankedLayout) -> str:
    """Return whether a layout fits: "fits" or "tight"."""
    return verdict(entry.result).removesuffix(" in memory")


def rank_layouts(found: SearchResult) -> list[RankedLayout]:
    """Return the best layouts with their evaluations."""
    results = [layout.result for layout in found.best if layout.result is not None]
    first = _seconds(results[0])
    return [
        RankedLayout(
            layout=layout, result=result, lost_by=time_differences(first, _seconds(result))
        )
        for layout, result in zip(found.best, results, strict=True)
    ]


def _seconds(result: Result) -> Mapping[str, float]:
    """Return the exposed seconds of a step by term; equal terms of different stages are added."""
    found: dict[str, float] = {}
    for line in result.outcome.ledger if result.outcome is not None else ():
        name = line.name.partition(", stage")[0]
        where = f" ({PASS_NAMES[line.pass_]})" if line.pass_ in PASS_NAMES else ""
        found[name + where] = found.get(name + where, 0.0) + float(line.exposed)
    return found


def time_differences(
    best: Mapping[str, float], other: Mapping[str, float]
) -> list[tuple[str, float]]:
    """Return the seconds by which terms exceed those of the best layout, the largest first.

    Differences within rounding are omitted.
    """
    more = {name: other.get(name, 0.0) - best.get(name, 0.0) for name in {*best, *other}}
    least = _LEAST_REASON * sum(best.values())
    differing = [(name, seconds) for name, seconds in more.items() if abs(seconds) > least]
    return sorted(differing, key=lambda item: (-item[1], item[0]))


def search_page(
    space: Space, found: SearchResult, best: Sequence[RankedLayout], near: Sequence[Neighbour] = ()
) -> Iterator[Item]:
    """Yield the page of a search."""
    scenario = space.scenario
    yield Heading(scenario.name, 1, aside=scenario.path)
    yield from layout_counts(found)
    yield Heading("Best layouts")
    yield _best(space, found, best)
    if len(varying_axes(found)) < len(found.best[0].values):
        yield Line("Values not listed are as in #1.", "faint")
    yield from axis_notes(space, best)
    yield from order_note(found, best)
    yield from reproduction(eval_command(space, best[0]))
    yield from no_effect(space, near)
    if len(best) > 1:
        yield Heading("Why the others are slower")
        yield _why(found, best)
    if near:
        yield Heading("Levers of the best layout")
        yield _neighbour_table(space, near)
    yield from _excluded_layouts(found)
    for axis in space.unsearched:
        if axis.others:
            yield Line(_other_values(axis), "faint")
        if axis.lacking:
            yield Line(_unavailable_values(axis), "faint")
    yield from pareto_front(space, found)
    for _, section in best[0].result.brief_sections:
        if section.lead and section.rows:  # what the screen of a report has as well
            yield from section_page(section)
    for fault in faults(found, best):
        if fault not in found.faults:
            yield Line(fault, "bad")


def faults(found: SearchResult, best: Sequence[RankedLayout]) -> list[str]:
    """Return the failures of plugins so far, each once, including failures in the evaluation of
    listed layouts.
    """
    late = [fault.line for fault in best[0].result.faults]
    return list(dict.fromkeys([*found.faults, *late]))


def indifferent_attributes(near: Sequence[Neighbour]) -> dict[str, list[Any]]:
    """Return the other values of attributes that do not change the cost."""
    found: dict[str, list[Any]] = {}
    for other in near:
        if other.same:
            found.setdefault(other.path, []).append(plain_value(other.value))
    return found


def no_effect(space: Space, near: Sequence[Neighbour]) -> Iterator[Line]:
    """Yield a sentence with the changes of the best layout that do not change its cost."""
    texts = [
        setting_text(path, " or ".join(space.text(path, value) for value in values))
        for path, values in indifferent_attributes(near).items()
    ]
    if texts:
        yield Line(f"No effect on #1: {'; '.join(texts)}.", "faint")


def layout_counts(found: SearchResult, *, brief: bool = False) -> Iterator[Line]:
    """Yield the number of evaluated layouts, and whether the ranking is proven.

    A *brief* page omits counts that the end of the page repeats.
    """
    rate = f"{found.legal / max(found.seconds, 1e-9):,.0f} layouts/s"
    ended = "interrupted" if found.interrupted else "out of time"
    if found.sampled:
        yield Line(
            f"{found.sampled:,} of {found.size:,} layouts were drawn at random; {found.legal:,} "
            f"are legal, {found.legal - found.large:,} fit ({found.seconds:.1f} s, {rate})."
        )
        if found.cut_short:
            yield Line(f"{ended} before all requested layouts were drawn".capitalize(), "warning")
        yield from (Line(fault, "bad") for fault in found.faults)
        yield Line("There is no proof for layouts that were not drawn.", "warning")
        return
    counts = f"{found.legal:,} of {found.size:,} layouts are legal"
    if not brief:
        counts += f", {found.legal - found.large:,} fit; {found.replayed:,} were replayed exactly"
    yield Line(f"{counts} ({found.seconds:.1f} s, {rate}).")
    yield from (Line(fault, "bad") for fault in found.faults)
    proof, style = _proof(found, ended)
    yield Line(proof, style)


def _proof(found: SearchResult, ended: str) -> tuple[str, Style]:
    """Return a sentence on whether the ranking is proven and how to continue, and its style."""
    more = f"Not proven; continue with --budget {_longer_budget(found)}"
    if found.gap is None:
        return (
            f"{more} ({ended}: {found.looked:,} of {found.structures:,} groups of layouts done)",
            "warning",
        )
    if found.gap > 0:
        gap = f"{100 * max(found.gap, 1e-4):.2f}"
        return (
            f"{more} ({ended}; another layout may be up to {gap} % better)",
            "warning",
        )
    if found.faults:
        return "A plugin failed, so there is no proof.", "bad"
    if not found.proven:
        continued = f"continue with --budget {_longer_budget(found)}"
        return f"Proven for the fastest layout, not for the others; {continued}", "warning"
    best = "highest" if found.objective.largest else "lowest"
    value = numbers.quantity(found.lowest, found.objective.unit)
    return f"Proven: the {best} {found.objective.title} of all layouts is {value}.", "good"


def _longer_budget(found: SearchResult) -> int:
    """Return a time limit in seconds: five times the limit of the search, in whole minutes."""
    return 5 * 60 * max(1, round(found.seconds / 60.0))


def eval_command(space: Space, entry: RankedLayout) -> str:
    """Return the command that evaluates a single layout."""
    return " ".join(eval_words(space, entry))


def eval_words(space: Space, entry: RankedLayout, *, brief: bool = False) -> list[str]:
    """Return the command that evaluates a layout; an option and its value are one word.

    A *brief* command omits values that the spec already has.
    """
    scenario = space.scenario
    layout = settings(scenario, entry.layout.values)
    if brief:
        layout = _new_settings(scenario, layout)
    texts = {p: space.text(p, value) for p, value in layout.items()}
    return scenario.replace(texts).command_words()


def _new_settings(scenario: Scenario, layout: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of *layout* except those that the spec already has."""
    swept = {name for name, _ in scenario.axes}
    wanted = scenario.replace(layout).first
    kept = {p: v for p, v in layout.items() if p in swept or not _agree(scenario.first, wanted, p)}
    bound = scenario.replace(kept).first
    return {p: v for p, v in layout.items() if p in kept or not _agree(bound, wanted, p)}


def _agree(study: Study, other: Study, path: str) -> bool:
    """Return whether two studies have the same value of an attribute."""
    (block, name), (there, _) = find(study, path), find(other, path)
    return bool(plain_value(getattr(block, name)) == plain_value(getattr(there, name)))


def _short(path: str) -> str:
    """Return the attribute name of a path; for `kind`, the name of the block."""
    block, _, attribute = path.rpartition(".")
    return block if attribute == "kind" else attribute


def _axis_name(path: str, value: str) -> str:
    """Return the name of an axis next to a value; a switch keeps the name of its block."""
    return path if value in ("on", "off") else _short(path)


def setting_text(path: str, value: str) -> str:
    """Return the name of an axis and its value, as text.

    >>> setting_text("layout.tp", "8"), setting_text("schedule.kind", "gpipe")
    ('tp 8', 'schedule gpipe')
    >>> setting_text("a.b", "on")
    'a.b on'
    """
    return f"{_axis_name(path, value)} {value}"


def _best(space: Space, found: SearchResult, best: Sequence[RankedLayout]) -> Table:
    shown, own = list(found.best[0].values), found.objective
    others = [o for o, _ in objective_values(best[0]).values() if o.name != own.name]
    titles = [] if _is_step(found) else [own.short or own.title]
    titles += [o.short for o in others]
    columns = [Column(title, "right") for title in ("", *titles, "step", "memory", "headroom", "")]
    rows = []
    for place, entry in enumerate(best, start=1):
        layout, values = entry.layout, objective_values(entry)
        derived = derived_values(space, entry)
        cells = [] if _is_step(found) else [numbers.quantity(layout.value, own.unit)]
        cells += [numbers.quantity(values[o.name][1], o.unit) for o in others]
        cells += [
            numbers.quantity(layout.seconds, "s"),
            numbers.quantity(layout.bytes_, "GiB"),
            numbers.quantity(headroom(entry), "GiB"),
            memory_verdict(entry),
            ", ".join(
                (
                    _settings_text(space, layout, shown if place == 1 else varying_axes(found)),
                    *(
                        f"{space.short[k]} {v}" if k in space.short else setting_text(k, str(v))
                        for k, v in derived.items()
                        if str(v)
                    ),
                )
            ),
        ]
        rows.append(Row((str(place), *cells), "strong" if place == 1 else "plain"))
    return Table([*columns, Column("layout", flexible=True)], rows)


def axis_notes(space: Space, shown: Sequence[RankedLayout]) -> Iterator[Line]:
    """Yield the notes of axes whose values differ between layouts, or are texts.

    An attribute derived from the axes also gets a note if it differs from its value in the spec.
    """
    layouts = [{**one.layout.values, **derived_values(space, one)} for one in shown]
    stated = _derived_values(space, space.scenario.first)
    texts = {axis.attribute for axis in space.follows if axis.value is not None}
    for path, note in space.notes.items():
        values = {str(each.get(path, "")) for each in layouts}
        if path in stated and path not in texts:
            values.add(str(stated[path]))
        if len(values) > 1 or (path in texts and values != {""}):
            yield Line(f"{space.short.get(path, _short(path))}: {note}", "faint")


def order_note(found: SearchResult, shown: Sequence[RankedLayout]) -> Iterator[Line]:
    """Yield the order of the layouts, unless the fastest comes first."""
    costs = [entry.layout.cost for entry in shown]
    if costs != sorted(costs) or shown[0].layout.value != found.lowest:
        places = [layout.rank_by_time for layout in found.best]
        place = places.index(1) + 1 if 1 in places else 0
        fastest = f"#{place} is the fastest" if place else "the fastest layout is not listed"
        yield Line(
            f"Simpler layouts come first within {100.0 * found.tolerance:.3g} % of the step time; "
            f"{fastest}{': --full' if place > len(shown) else ''}.",
            "faint",
        )


def derived_values(space: Space, entry: RankedLayout) -> dict[str, Any]:
    """Return the attributes derived from the axes, with their values for one layout."""
    return _derived_values(space, entry.result.study)


def _derived_values(space: Space, study: Study) -> dict[str, Any]:
    return {a.attribute: plain_value(derived_value(a, study)) for a in space.follows}


def _is_step(found: SearchResult) -> bool:
    """Return whether the objective is the step time, which every table has."""
    return all(layout.value == layout.seconds for layout in found.best)


def objective_values(entry: RankedLayout) -> dict[str, tuple[Objective, float]]:
    """Return the objectives that are columns of every result, with their values for one layout."""
    seconds, study = entry.layout.seconds, entry.result.study
    return {
        o.name: (o, float(o.value(o.cost(seconds))))
        for _, o in study.contributions("objectives")
        if o.short and not o.needs
    }


def usable_bytes(entry: RankedLayout) -> float:
    """Return the usable memory of a device in bytes."""
    study = entry.result.study
    return min(map(float, memory_limits_of(study, study.faults, "usable_memory")), default=inf)


def headroom(entry: RankedLayout) -> float:
    """Return the free memory in bytes on the device with the most memory in use."""
    return usable_bytes(entry) - entry.layout.bytes_


def step_times(shown: Sequence[RankedLayout]) -> Sequence[Figure]:
    """Return the figures in seconds of the first layout that have an interval, except the step
    time.

    A plugin provides such a figure if it corrects the prediction.
    """
    result = shown[0].result
    return [
        figure
        for _, figure in result.figures
        if figure.unit == "s"
        and figure.column is not None
        and figure.name != "step_time"
        and result.interval(figure.name) is not None
    ]


def _interval(entry: RankedLayout) -> list[float] | None:
    """Return the ends of the interval of the step time in seconds, or None if none is known."""
    interval = entry.result.interval("step_time")
    return None if interval is None else [float(interval.low), float(interval.high)]


def _settings_text(space: Space, layout: SearchedLayout, names: Sequence[str]) -> str:
    texts = {name: space.text(name, layout.values[name]) for name in names}
    return ", ".join(setting_text(name, text) for name, text in texts.items() if text)


def _neighbour_table(space: Space, near: Sequence[Neighbour]) -> Table:
    rows = [
        Row(
            (_axis_name(other.path, text), text, other.says),
            "plain" if other.runs else "faint",
        )
        for other in near
        if other.seconds is not None
        for text in [space.text(other.path, other.value)]
    ]
    return Table((Column("axis"), Column("value"), Column("step", flexible=True)), rows)


def _why(found: SearchResult, best: Sequence[RankedLayout]) -> Table:
    first, own = best[0].layout, found.objective
    rows = []
    for place, entry in enumerate(best[1:], start=2):
        layout, by = entry.layout, []
        if not _is_step(found) and layout.value != first.value:
            value, other = (numbers.quantity(x.value, own.unit) for x in (layout, first))
            by.append(f"{own.short or own.title} {value}, not {other}")
        more = [(name, s) for name, s in entry.lost_by if s > 0][:_TERMS]
        less = [(name, s) for name, s in entry.lost_by if s < 0][-1:]
        by += [
            f"{name} {'+' if s > 0 else ''}{numbers.quantity(s, 's')}" for name, s in more + less
        ]
        slower = percent(layout.seconds / first.seconds - 1.0, 2, signed=True)
        rows.append(Row((str(place), slower, "; ".join(by) or "as fast")))
    return Table((Column("", "right"), Column("step", "right"), Column("by", flexible=True)), rows)


def _excluded_layouts(found: SearchResult) -> Iterator[Item]:
    rejected = [(rule, n) for rule, n in Counter(found.rejected).most_common() if n]
    bounded = [("does-not-fit", found.large), *found.limits.items()]
    rows = [Row((rule, f"{n:,}")) for rule, n in rejected]
    rows += [Row((says, f"at least {n:,}")) for says, n in bounded if n]
    if rows:
        yield Heading("Excluded layouts")
        yield Table((Column("rule"), Column("layouts", "right")), rows)
        yield Line("A layout that violates several rules is counted under each of them.", "faint")


def _other_values(axis: Axis) -> str:
    """Return the values of *axis* that were not searched, the reason, and the option for them."""
    name = _short(axis.attribute)
    others = [
        f"{value} ({remark})" if remark else f"{value}" for value, remark in axis.others.items()
    ]
    every = ",".join(f"{value}" for value in (*axis.values, *axis.others))
    why = f"; {axis.why}" if axis.why else ""
    return f"Not searched: {name} {', '.join(others)}{why}. Include: --over {name}={every}"


def _unavailable_values(axis: Axis) -> str:
    """Return the values of *axis* that are not available, and why."""
    values = ", ".join(f"{value}" for value in axis.lacking)
    return f"Not searched: {_short(axis.attribute)} {values}; {axis.lacks}"


def pareto_front(space: Space, found: SearchResult) -> Iterator[Item]:
    """Yield the Pareto front of step time and memory, where it has more than one layout."""
    if len(found.front) < 2:
        return
    yield Heading("Pareto front of step time and memory")
    step = max(1, len(found.front) // _FRONT)
    rows = [
        Row(
            (
                numbers.quantity(layout.seconds, "s"),
                numbers.quantity(layout.bytes_, "GiB"),
                _settings_text(space, layout, list(layout.values)),
            )
        )
        for layout in found.front[::step]
    ]
    yield Table(
        (Column("step", "right"), Column("memory", "right"), Column("layout", flexible=True)), rows
    )


def data(
    space: Space, found: SearchResult, best: Sequence[RankedLayout], near: Sequence[Neighbour] = ()
) -> dict[str, Any]:
    """Return the search as plain data."""
    scenario = space.scenario

    return {
        **header(),
        "name": scenario.name,
        "path": scenario.path,
        "objective": found.objective.name,
        "points": found.size,
        "sampled": found.sampled,
        "legal": found.legal,
        "too_large": found.large,
        "refused": dict(found.rejected),
        "limits": dict(found.limits),
        "not_searched": {
            axis.attribute: [*axis.others, *axis.lacking] for axis in space.unsearched
        },
        "replayed": found.replayed,
        "proven": found.proven,
        "tolerance": found.tolerance,
        "faults": list(found.faults),
        "gap_fraction": found.gap,
        "interrupted": found.interrupted,
        "seconds": found.seconds,
        "best": [_entry_data(space, entry) for entry in best],
        "makes_no_difference": indifferent_attributes(near),
        "neighbours": [
            {
                "attribute": other.path,
                "value": plain_value(other.value),
                "step_seconds": other.seconds,
                "runs": other.runs,
                "says": other.says,
            }
            for other in near
        ],
        "front": [_layout_data(layout) for layout in found.front],
    }


def _layout_data(layout: SearchedLayout) -> dict[str, Any]:
    return {
        "values": {path: plain_value(value) for path, value in layout.values.items()},
        "objective": layout.value,
        "step_seconds": layout.seconds,
        "memory_bytes": layout.bytes_,
    }


def _entry_data(space: Space, entry: RankedLayout) -> dict[str, Any]:
    return {
        **_layout_data(entry.layout),
        "follows": derived_values(space, entry),
        **{name: value for name, (_, value) in objective_values(entry).items()},
        "rank_by_time": entry.layout.rank_by_time,
        "verdict": verdict(entry.result),
        "step_time_interval_seconds": _interval(entry),
        **{
            f"{figure.name}_seconds": float(entry.result.figure(figure.name))
            for figure in step_times([entry])
        },
        "headroom_bytes": headroom(entry),
        "differs_by_seconds": dict(entry.lost_by),
        "command": eval_command(space, entry),
    }
