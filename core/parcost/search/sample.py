"""Random layouts, for spaces that are too large for a complete search.

Each layout is evaluated separately. Nothing is proven about other layouts.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from parcost.language.diagnostics import Diagnostic, Severity
from parcost.language.errors import SpecError
from parcost.search.best_first import SearchRequest
from parcost.search.complexity import sort_by_complexity
from parcost.search.failures import objective_of, plugin_failures
from parcost.search.layout_evaluation import evaluate_layout
from parcost.search.result import Best, SearchResult, pareto

if TYPE_CHECKING:
    from parcost.search.space import Space


def sample(
    space: Space,
    request: SearchRequest,
    count: int,
    *,
    seed: int = 0,
    on_progress: Callable[[str], None] = lambda _: None,
) -> SearchResult:
    """Return the best of *count* random legal layouts; the same *seed* draws the same layouts.

    Raises:
        SpecError: There is no such objective, or no layout of those is legal, fits and is
            within the limits.
    """
    start, rng = time.monotonic(), random.Random(seed)  # noqa: S311  nothing is secret
    best, layouts = Best(request.found), []
    rejected: Counter[str] = Counter()
    limits: Counter[str] = Counter()
    faults: dict[str, None] = {}  # in order, each once
    legal = large = drawn = 0
    objective = objective_of(space.scenario.first, request.objective)
    interrupted = False
    try:
        while legal < count and time.monotonic() - start < request.budget_seconds:
            drawn += 1
            values = {axis.attribute: rng.choice(axis.values) for axis in space.axes}
            on_progress(f"{drawn:,} layouts drawn, {legal:,} of {count:,} that are legal")
            with np.errstate(all="ignore"):
                one = evaluate_layout(space.scenario, values, request.objective)
            faults |= dict.fromkeys(fault.line for fault in one.result.faults)
            if one.result.outcome is None:
                found = [d.id for d in one.result.diagnostics if d.severity is Severity.ERROR]
                rejected.update(set(found))
                continue
            legal += 1
            large += one.large
            limits.update([one.broken.says] if one.broken is not None else [])
            if one.layout is not None:
                degrees = tuple(float(v) for v in values.values() if isinstance(v, (int, float)))
                best.offer(degrees, one.layout)
                layouts.append(one.layout)
    except KeyboardInterrupt:
        interrupted = True
    ranked = [layout for _, layout in best.ranking()]
    if not ranked:
        if interrupted:
            raise KeyboardInterrupt
        why = _no_layout(space, drawn, legal, large, rejected, late=legal < count)
        raise SpecError([why, *plugin_failures(space, list(faults))])
    front = pareto(layouts)
    found_layouts = SearchResult(
        objective=objective,
        scenario=space.scenario,
        axes=[axis.attribute for axis in space.axes],
        best=ranked,
        make_front=lambda: front,
        size=space.size,
        legal=legal,
        large=large,
        rejected=dict(rejected),
        limits=dict(limits),
        replayed=legal,
        faults=list(faults),
        interrupted=interrupted,
        seconds=time.monotonic() - start,
        sampled=drawn,
        cut_short=legal < count,
    )
    return sort_by_complexity(
        found_layouts, request.tolerance, keep=request.keep, compared=request.compared
    )


def _no_layout(
    space: Space, drawn: int, legal: int, large: int, rejected: Counter[str], *, late: bool
) -> Diagnostic:
    worst = ", ".join(f"`{rule}` {n:,}" for rule, n in rejected.most_common(3))
    when = " before time ran out" if late else ""
    message = f"{legal:,} of {drawn:,} random layouts{when} are legal, and none fits the limits"
    notes = [f"{large:,} do not fit"] if large else []
    notes += [f"rules reject {worst}"] if worst else []
    more = "increase `--budget`" if late else "increase `--sample`"
    help = f"{more}, or give axes fewer values"
    return Diagnostic("empty-space", message, (), tuple(notes), help, place=space.scenario.path)
