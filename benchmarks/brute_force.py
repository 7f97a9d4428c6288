"""Whether a search agrees with its layouts evaluated one by one, on random spaces.

    python benchmarks/brute_force.py [--count 100] [--first 0] [--layouts 60] [--log FILE]

Each seed is a space of `benchmarks/agreement.py`, with schedules drawn from all schedules: experts,
context parallelism, mixed ZeRO stages, devices, windows of overlap, every objective. Some have a
limit. Random layouts, legal or not, and the listed layouts are evaluated alone. Seeds with an even
number have the ranking and the Pareto front, odd ones every score. Each is searched for the ranking
alone as well, which leaves out the most. These have to hold within 1e-12:

    a layout is legal in the search where it is alone
    a listed layout and an exact score have the seconds and bytes of the layout alone
    a bound is not above the layout alone, in seconds and bytes
    the ranking alone equals the ranking of the full search
    no layout beats the winner, or the last one listed unless its degrees are listed

A log has a line for each seed that is done, so that a run goes on where it was ended. Exit code 1
where seeds disagree.
"""

from __future__ import annotations

import json
import math
import random
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import agreement
from attrs import evolve, frozen

import parcost
from parcost import SpecError
from parcost.engine.scenario import Scenario
from parcost.search.best_first import SearchRequest, search
from parcost.search.layout_evaluation import LayoutEvaluation, evaluate_layout
from parcost.search.result import SearchResult, plain_value
from parcost.search.space import space
from parcost_apps.search.points import Points

DISAGREE = 1e-12
LIMITS = ("", "", "search { most_memory = 40 GiB }", "search { longest_step = 20 s }")


def drawn_space(seed: int) -> tuple[Scenario, dict[str, list[Any]], str]:
    """Return a study, the axes of a space of it, and an objective."""
    text, axes, objective = agreement.drawn(seed)
    rng = random.Random(f"brute force {seed}")
    (scenario,) = parcost.load_text(text + rng.choice(LIMITS))
    kinds = sorted(scenario.plugins.offers("schedules"))
    axes["schedule.kind"] = list(dict.fromkeys([*rng.sample(kinds, 3), "one_f_one_b"]))
    return scenario, axes, objective


@frozen(kw_only=True)
class SpaceReport:
    """How a search and single evaluations differ, and how many layouts are legal and fit."""

    said: Sequence[str]
    legal: int = 0
    fit: int = 0


def compare_space(seed: int, layouts: int) -> SpaceReport:
    """Compare the search of a space with so many of its *layouts* by themselves."""
    scenario, axes, objective = drawn_space(seed)
    try:
        whole = space(scenario, axes, list(axes))
    except SpecError as error:
        return SpaceReport(said=[], legal=0, fit=0) if _is_expected(error) else _report_error(error)
    axes = {axis.attribute: list(axis.values) for axis in whole.axes}
    alone = {
        _key(axes, at): _evaluation(scenario, at, objective)
        for at in _draw_layouts(seed, axes, layouts)
    }
    fits = {key: one for key, one in alone.items() if one is not None and one.layout is not None}
    request = SearchRequest(objective=objective, keep=5, budget_seconds=math.inf)
    lines: list[str] = []
    try:
        if seed % 2:
            found = search(whole, request, points=Points(whole, "jsonl", lines.append))
        else:
            found = search(whole, evolve(request, front=True))
        alone_ranked = search(whole, request)
    except SpecError as error:
        said = [f"{error.diagnostics[0].message}, but {key} is fine" for key in fits]
        return SpaceReport(said=said[:3]) if _is_expected(error) else _report_error(error)
    said = [*_check_listed(scenario, found, objective), *_check_missing(whole, found, fits)]
    said += _check_ranking(found, alone_ranked)
    if seed % 2:
        said += _check_scores(axes, lines, alone)
    return SpaceReport(said=said[:5], legal=found.legal, fit=found.legal - found.large)


def _draw_layouts(seed: int, axes: Mapping[str, list[Any]], most: int) -> Iterator[dict[str, Any]]:
    rng = random.Random(seed)
    size = math.prod(map(len, axes.values()))
    for number in rng.sample(range(size), min(most, size)):
        at = {}
        for name, values in axes.items():
            number, i = divmod(number, len(values))  # noqa: PLW2901
            at[name] = values[i]
        yield at


def _evaluation(scenario: Scenario, at: dict[str, Any], objective: str) -> LayoutEvaluation | None:
    """Return a layout evaluated alone, None if it cannot be bound."""
    try:
        return evaluate_layout(scenario, at, objective)
    except SpecError:
        return None


def _key(axes: Mapping[str, Any], at: Mapping[str, Any]) -> str:
    return json.dumps([_plain_value(at[name]) for name in axes])


def _plain_value(value: Any) -> Any:
    value = plain_value(value)
    return value.strip('"') if isinstance(value, str) else value


def _check_listed(scenario: Scenario, found: SearchResult, objective: str) -> Iterator[str]:
    """Yield which of the layouts that are listed are others alone."""
    if not found.proven:
        yield f"not proven: {found.gap}, {found.faults}"
    for layout in (*found.best, *found.front):
        one = evaluate_layout(scenario, layout.values, objective).layout
        if one is None:
            yield f"listed, and does not run alone: {layout.values}"
            continue
        for name in ("cost", "value", "seconds", "bytes_"):
            if not _agree(getattr(layout, name), getattr(one, name)):
                yield f"{name} {getattr(layout, name)} is {getattr(one, name)}: {layout.values}"


def _check_ranking(found: SearchResult, other: SearchResult) -> Iterator[str]:
    """Yield how a search for the ranking alone differs from one for more."""
    for name in ("legal", "large", "proven", "limits"):
        if getattr(found, name) != getattr(other, name):
            yield f"{name} is {getattr(found, name)}, and {getattr(other, name)} for the ranking"
    costs, others = ([layout.cost for layout in one.best] for one in (found, other))
    if len(costs) != len(others) or not all(map(_agree, costs, others)):
        yield f"ranked {costs}, and {others} for the ranking alone"


def _check_missing(
    whole: Any, found: SearchResult, fits: Mapping[str, LayoutEvaluation]
) -> Iterator[str]:
    """Yield the layouts that should be listed."""
    words = {axis.attribute for axis in whole.choices}
    degrees = {_degrees(layout.values, words) for layout in found.best}
    first = min(layout.cost for layout in found.best)
    worst = max(layout.cost for layout in found.best) if len(found.best) == 5 else math.inf
    for key, one in fits.items():
        assert one.layout is not None
        own = first if _degrees(one.layout.values, words) in degrees else worst
        if one.layout.cost < own * (1 - 1e-9) - 1e-300 or (own == math.inf):
            yield f"{one.layout.cost} beats {own}, and is not listed: {key}"


def _degrees(values: Mapping[str, Any], words: set[str]) -> tuple[Any, ...]:
    return tuple(
        sorted(
            (name, _plain_value(value))
            for name, value in values.items()
            if name not in words and not isinstance(_plain_value(value), str)
        )
    )


def _check_scores(
    axes: Mapping[str, Any], lines: Sequence[str], alone: Mapping[str, LayoutEvaluation | None]
) -> Iterator[str]:
    """Yield the scores that differ from single evaluations."""
    rows = {_key(axes, row): row for row in map(json.loads, "".join(lines).splitlines())}
    for key, one in alone.items():
        row, outcome = rows.get(key), one.result.outcome if one is not None else None
        if (row is None) != (outcome is None):
            yield f"legal alone: {outcome is not None}, in the search: {row is not None}: {key}"
        if row is None or outcome is None:
            continue
        seconds, bytes_ = float(outcome.step_seconds), float(outcome.memory_bytes)
        if row["step_time_lower_bound_seconds"] > seconds * (1 + DISAGREE):
            yield f"bound {row['step_time_lower_bound_seconds']} is above {seconds} s: {key}"
        if row["memory_lower_bound_bytes"] > bytes_ * (1 + DISAGREE):
            yield f"bound {row['memory_lower_bound_bytes']} is above {bytes_} B: {key}"
        if row["exact"] and not _agree(row["step_time_seconds"], seconds):
            yield f"exact {row['step_time_seconds']} is {seconds} s: {key}"
        if row["exact"] and not _agree(row["memory_bytes"], bytes_):
            yield f"exact {row['memory_bytes']} is {bytes_} B: {key}"


def _agree(one: float, other: float) -> bool:
    return math.isclose(one, other, rel_tol=DISAGREE)


def _is_expected(error: SpecError) -> bool:
    return error.diagnostics[0].id in {"empty-space", "nothing-fits", "nothing-within-limits"}


def _report_error(error: SpecError) -> SpaceReport:
    first = error.diagnostics[0]
    return SpaceReport(said=[f"{first.id}: {first.message}"])


def main() -> int:
    """Compare spaces, and return 1 where some differ."""
    parser = agreement.seed_options(__doc__)
    parser.add_argument("--layouts", type=int, default=60, help="of each space")
    given = parser.parse_args()

    def compare(seed: int) -> tuple[Sequence[str], int]:
        found = compare_space(seed, given.layouts)
        return list(found.said), found.legal

    return agreement.compare_seeds(given, compare)


if __name__ == "__main__":
    sys.exit(main())
