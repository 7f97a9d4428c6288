"""The kept layouts and counts of a search, and the result: each listed layout is evaluated."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from math import inf, isclose
from typing import TYPE_CHECKING, Any

import numpy as np
from attrs import frozen

from parcost.language.diagnostics import Diagnostic
from parcost.language.errors import SpecError
from parcost.search.failures import (
    OUTCOME,
    disagreement,
    empty,
    no_valid_layout,
    plugin_failures,
    time_limit_error,
)
from parcost.search.front import Candidate, faster
from parcost.search.layout_evaluation import LayoutEvaluation, evaluate_layout
from parcost.search.result import ALIKE, Best, SearchedLayout, SearchResult, pareto

if TYPE_CHECKING:
    from parcost.contract.searches import Objective
    from parcost.search.space import Space


@frozen(kw_only=True, eq=False)
class Tally:
    """The layouts that a search kept, and counts of the others.

    *best* are the best layouts, *front* the candidates. *least_bytes* is the smallest memory of a
    layout if none fits. *left* is the lowest cost of a layout without a replay. *looked* is the
    number of visited structures. *faults* are the plugins that failed. *unfit* counts layouts whose
    lower bound of memory fits, but whose evaluated memory does not. *broken* counts the same for
    limits. *verdicts* counts layouts that a rule about outcomes rejected.
    """

    best: Best
    front: Sequence[Candidate] = ()
    rejected: Mapping[str, int] = {}
    limits: Mapping[str, int] = {}
    legal: int = 0
    large: int = 0
    replayed: int = 0
    least_bytes: float = inf
    left: float = inf
    looked: int = 0
    faults: Sequence[str] = ()
    unfit: int = 0
    broken: Mapping[str, int] = {}
    verdicts: Mapping[str, int] = {}
    interrupted: bool = False


class RejectedLayoutError(Exception):
    """A rule about outcomes rejects a layout that would be listed."""


def result_of(
    space: Space,
    objective: Objective,
    tally: Tally,
    start: float,
    *,
    careful: bool = False,
) -> SearchResult:
    """Return the result of a *tally* of *space*.

    The search began at *start*, by the monotonic clock. Every listed layout is evaluated alone, so
    its numbers equal those of an evaluation. *careful*: the layouts that excluded others were
    evaluated alone, too.

    Raises:
        RejectedLayoutError: A rule about outcomes rejects a listed layout that has excluded
            others; the search must be repeated with *careful*.
        SpecError: No layout is legal, fits and is within the limits.
        KeyboardInterrupt: The search was interrupted before it found any.
    """
    ranked = [layout for _, layout in tally.best.ranking()]
    faults = [*tally.faults]
    verdicts = Counter(tally.verdicts)
    evaluated = [_evaluate(space, layout.values, objective) for layout in ranked]
    faults += [fault.line for one in evaluated for fault in one.result.faults]
    _require_agreement(space, ranked, evaluated, faults)
    if any(one.rule_errors for one in evaluated) and not (careful or tally.interrupted):
        raise RejectedLayoutError
    verdicts.update(rule for one in evaluated for rule in one.rule_errors)
    exact = [one.layout for one in evaluated if one.layout is not None]
    if not exact:
        if tally.interrupted:
            raise KeyboardInterrupt
        raise SpecError([*_reasons(space, tally, verdicts), *plugin_failures(space, faults)])
    listed = [layout.values for layout in ranked]
    further = [c.values for c in faster(tally.front) if c.values not in listed]
    front = [_evaluate(space, values, objective) for values in further]
    pareto_front = pareto([*exact, *(one.layout for one in front if one.layout is not None)])
    whole = tally.looked == space.count()
    return SearchResult(
        objective=objective,
        scenario=space.scenario,
        axes=[axis.attribute for axis in space.axes],
        best=exact,
        make_front=lambda: pareto_front,
        size=space.size,
        legal=tally.legal,
        large=tally.large,
        rejected=dict(Counter(tally.rejected) + verdicts),
        limits=dict(+Counter(tally.limits)),
        replayed=tally.replayed,
        gap=_gap(exact[0].cost, tally.left) if whole else None,
        proven=whole and not faults and (tally.left == inf or tally.left > tally.best.worst),
        faults=list(dict.fromkeys(faults)),
        looked=tally.looked,
        structures=space.count(),
        interrupted=tally.interrupted,
        seconds=time.monotonic() - start,
    )


def _require_agreement(
    space: Space,
    ranked: Sequence[SearchedLayout],
    evaluated: Sequence[LayoutEvaluation],
    faults: Sequence[str],
) -> None:
    """Raise if the search and an evaluation give a layout different numbers."""
    for layout, one in zip(ranked, evaluated, strict=True):
        if not _agree(layout, one):
            failed = plugin_failures(space, faults)
            raise SpecError(failed or [disagreement(space, layout.values)])


def _reasons(space: Space, tally: Tally, verdicts: Counter[str]) -> Sequence[Diagnostic]:
    """Return the diagnostics if no layout is listed: out of time, none is legal, or none is
    accepted.
    """
    if tally.looked < space.count() or tally.left < inf:
        return [time_limit_error(space, tally.legal)]
    if not tally.legal:
        return empty(space, +Counter(tally.rejected))
    limits = Counter(tally.limits) + Counter(tally.broken)
    limits.update({f"{OUTCOME} `{rule}` accepts": n for rule, n in verdicts.items()})
    large = tally.large + tally.unfit
    return [no_valid_layout(space, tally.legal, large, limits, tally.least_bytes)]


def _gap(cost: float, left: float) -> float:
    """Return the optimality gap: the difference between *left* and the best *cost*, as a
    fraction.
    """
    return max(0.0, (cost - left) / abs(cost)) if cost else 0.0


def _agree(layout: SearchedLayout, one: LayoutEvaluation) -> bool:
    """Return whether the evaluation of a layout has the same cost as in the search.

    If a rule rejects it, its step time and memory are compared.
    """
    if one.layout is not None:
        return isclose(one.layout.cost, layout.cost, rel_tol=ALIKE)
    outcome = one.result.outcome
    if outcome is None or not one.rule_errors:
        return bool(one.rule_errors)
    found = (float(outcome.step_seconds), float(outcome.memory_bytes))
    known = (layout.seconds, layout.bytes_)
    return all(isclose(a, b, rel_tol=ALIKE) for a, b in zip(found, known, strict=True))


def _evaluate(space: Space, values: Mapping[str, Any], objective: Objective) -> LayoutEvaluation:
    """Return the evaluation of a layout as a single study."""
    with np.errstate(all="ignore"):
        return evaluate_layout(space.scenario, values, objective.name)
