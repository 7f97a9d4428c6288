"""Diagnostics of a search without a result: reasons and remedies."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from parcost.language.diagnostics import Diagnostic, Severity, did_you_mean
from parcost.language.errors import SpecError
from parcost.language.numbers import quantity
from parcost.search.space import space as space_of

if TYPE_CHECKING:
    from parcost.contract.searches import Axis, Objective
    from parcost.contract.study import Study
    from parcost.search.space import Space

_MOST_TRIED = 16  # values of an axis, when a way out is looked for
_MOST_HINTS = 3
OUTCOME = "an outcome that"  # a rule about outcomes accepts


def objective_of(study: Study, name: str) -> Objective:
    """Return the objective called *name*, or the only one whose name starts with ``name_``.

    Raises:
        SpecError: No objective has the name, or the study lacks an input of it.
    """
    every: dict[str, Objective] = {o.name: o for _, o in study.contributions("objectives")}
    longer = [full for full in every if full.startswith(f"{name}_")]
    name = longer[0] if name not in every and len(longer) == 1 else name
    if name in every and not every[name].needs:
        return every[name]
    message, hint = f"no objective is called `{name}`", did_you_mean(name, every)
    if name in every:
        hint = ""
        message = (
            f"the objective `{name}` is not available in this study: it needs {every[name].needs}"
        )
    offered = ", ".join(o.name for o in every.values() if not o.needs)
    help = "; ".join(filter(None, (hint, f"objectives of this study are {offered}")))
    raise SpecError([Diagnostic("unknown-objective", message, help=help, place=study.path)])


def empty(space: Space, rejected: Mapping[str, int]) -> Sequence[Diagnostic]:
    """Return the diagnostics of a search without a legal layout, common errors first."""
    worst = Counter(rejected).most_common(3)
    total = [rule for rule, n in worst if n >= space.size]
    if total:
        rules = " and ".join(f"`{rule}`" for rule in total)
        said = f"{rules} reject{'s' if len(total) == 1 else ''} all of them"
    else:
        said = "rules reject " + ", ".join(f"`{rule}` {n:,}" for rule, n in worst)
    message = f"none of {space.size:,} layouts is legal: {said}"
    own = [d for d in _common_errors(space) if d.id in total]
    help = "; ".join(_axis_hints(space))
    if not own:
        help = help or "no other value of a single axis helps: change several"
    notes = () if own else tuple(_example(space, total or [rule for rule, _ in worst]))
    place = space.scenario.path
    return [*own, Diagnostic("empty-space", message, (), notes, help or None, place=place)]


def _common_errors(space: Space) -> Sequence[Diagnostic]:
    """Return the errors that occur both at the first and at the last values of all choices."""
    first, last = (
        _errors(space, {axis.attribute: axis.values[i] for axis in space.axes}) for i in (0, -1)
    )
    alike = {(d.id, d.message) for d in last}
    return [d for d in first if (d.id, d.message) in alike]


def _errors(space: Space, values: Mapping[str, Any]) -> Sequence[Diagnostic]:
    """Return the errors of the layout with these *values*."""
    try:
        result = space.scenario.replace(values).evaluate().result
    except SpecError as error:
        return error.diagnostics
    return [d for d in result.diagnostics if d.severity is Severity.ERROR]


def no_valid_layout(
    space: Space, legal: int, large: int, limits: Mapping[str, int], needed: float
) -> Diagnostic:
    """Return the diagnostic if layouts are legal, but none fits and is within the limits."""
    place = space.scenario.path
    broken = {says: n for says, n in limits.items() if n}
    if not broken:
        message = (
            f"none of {legal:,} legal layouts fits in memory: {large:,} need more memory than a "
            "device has"
        )
        least = f"the smallest needs {quantity(needed, 'GiB')}; " if needed < 1e18 else ""
        help = f"{least}use more devices, or allow more sharding or recomputation"
        return Diagnostic("nothing-fits", message, place=place, help=help)
    fitting = legal - large
    if len(broken) == 1:
        says = next(iter(broken))
        message = f"none of {fitting:,} layouts that fit in memory has {says}"
        if says.startswith(OUTCOME):
            help = "`parcost eval` of one of them shows the reason"
        else:
            help = "relax that limit"
        goals = [goal for _, goal in space.scenario.first.contributions("search_goals")]
        if sum(len(goal.limits) for goal in goals) > 1:
            help += "; each layout is counted once, under the first limit that it exceeds"
    else:
        said = ", ".join(f"`{says}` excludes {n:,}" for says, n in broken.items())
        message = f"none of {fitting:,} layouts that fit in memory is within the limits: {said}"
        help = (
            "relax one of them; each layout is counted once, under the first limit that it exceeds"
        )
    return Diagnostic("nothing-within-limits", message, place=place, help=help)


def time_limit_error(space: Space, legal: int) -> Diagnostic:
    """Return the diagnostic if the time limit is reached before any layout was found."""
    message = f"none of {legal:,} legal layouts was evaluated before the time limit"
    help = "increase `--budget`, or give axes fewer values"
    return Diagnostic("out-of-time", message, place=space.scenario.path, help=help)


def disagreement(space: Space, values: Mapping[str, Any]) -> Diagnostic:
    """Return the diagnostic if a layout is valid in the search but fails in an evaluation."""
    at = ", ".join(f"{k.rpartition('.')[2]} {space.text(k, v)}" for k, v in values.items())
    message = f"the evaluation of the layout {at} differs from its score in the search"
    help = (
        "a plugin returns other values for many layouts at once than for one layout; leave plugins "
        "out "
    )
    help += "with `--without` to find it"
    return Diagnostic("search-disagrees", message, place=space.scenario.path, help=help)


def plugin_failures(space: Space, faults: Sequence[str]) -> list[Diagnostic]:
    """Return a diagnostic for each plugin that failed."""
    place = space.scenario.path
    return [Diagnostic("plugin-failed", fault, place=place) for fault in dict.fromkeys(faults)]


def _example(space: Space, rules: Sequence[str]) -> Iterator[str]:
    """Yield the message of one of *rules* at the first layout, or else of another error."""
    first = {axis.attribute: axis.values[0] for axis in space.axes}
    at = ", ".join(f"{k.rpartition('.')[2]} {space.text(k, v)}" for k, v in first.items())
    errors = sorted(_errors(space, first), key=lambda d: d.id not in rules)
    yield from (f"at {at}: {d.message}" for d in errors[:1])


def _axis_hints(space: Space) -> Iterator[str]:
    """Yield hints: axes for which another value makes a layout legal."""
    scenario = space.scenario
    here = {axis.attribute: list(axis.values) for axis in space.axes}
    study = scenario.first
    axes = study.plugins.ask("axes", study.faults, study=study)
    offered: dict[str, Axis] = {axis.attribute: axis for _, axis in axes}
    hints = 0
    for path, axis in offered.items():
        others = [v for v in axis.values if v not in here.get(path, ())][:_MOST_TRIED]
        if not others or hints == _MOST_HINTS:
            continue
        good = [v for v in others if _legal(space, path, v)]
        if good:
            hints += 1
            yield f"`{path}` = {' or '.join(map(str, good[:4]))} is legal"


def _legal(space: Space, path: str, value: object) -> bool:
    """Return whether a layout is legal with another *value* of one axis."""
    given = {axis.attribute: list(axis.values) for axis in space.axes} | {path: [value]}
    try:
        other = space_of(space.scenario, given, list(given))
        return any(structure.points for structure in other.structures())
    except SpecError:
        return False
