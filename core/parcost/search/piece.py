"""What the search of a part of a space comes to, and how parts become one result.

A piece is plain data, so that it may come from another process. Ties are broken by the
values of layouts, never by who was first: however a space is cut into parts, the whole is
the same to the bit.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from math import inf, isclose
from typing import TYPE_CHECKING, Any

import numpy as np
from attrs import frozen

from parcost.diagnostics import Diagnostic, SpecError
from parcost.render.words import incomplete
from parcost.search.alone import Alone, alone
from parcost.search.failing import (
    OUTCOME,
    disagreement,
    empty,
    nothing_found,
    out_of_time,
    plugins_failed,
)
from parcost.search.found import ALIKE, Best, Found, Layout, pareto
from parcost.search.front import Candidate, faster

if TYPE_CHECKING:
    from parcost.search.space import Space
    from parcost.terms import Objective


@frozen(kw_only=True, eq=False)
class Piece:
    """What became of the layouts of some structures.

    *best* are the best layouts with their degrees, *front* the candidates. *least_bytes* is
    what the smallest layout needs where none fits, and *left* the lowest cost of a layout
    that was not replayed. So many structures were *looked* at, of those there are. *faults*
    tell which plugins failed. *unfit* and *broken* count what is found out of layouts that are
    not *large*, and break no limit, by their bounds: all such layouts, where there is no best.
    *verdicts* count those that a rule about outcomes refused.
    """

    best: Sequence[tuple[Any, Layout]] = ()
    front: Sequence[Candidate] = ()
    refused: Mapping[str, int] = {}
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
    part: int = 0
    interrupted: bool = False


class RefusedError(Exception):
    """A rule about outcomes refuses a layout that would be listed."""


def joined(
    space: Space,
    objective: Objective,
    keep: int,
    pieces: Sequence[Piece],
    start: float,
    *,
    careful: bool = False,
) -> Found:
    """Return what *pieces* of *space* come to together, with the *keep* best layouts.

    The search began at *start*, by the monotonic clock. Whatever is listed is evaluated by
    itself: what it says is what any evaluation says. *careful*: so was all that ruled others
    out.

    Raises:
        RefusedError: A rule about outcomes refuses some of these, and others were ruled out by
            them: they are to be searched for carefully.
        SpecError: No layout is legal, fits and is within the limits.
        KeyboardInterrupt: The search was interrupted before it found any.
    """
    pieces = sorted(pieces, key=lambda piece: piece.part)
    refused = sum((Counter(piece.refused) for piece in pieces), Counter[str]())
    limits = sum((Counter(piece.limits) for piece in pieces), Counter[str]())
    legal, large = sum(p.legal for p in pieces), sum(p.large for p in pieces)
    interrupted = any(piece.interrupted for piece in pieces)
    best = Best(keep)
    for piece in pieces:
        for degrees, layout in piece.best:
            best.offer(degrees, layout)
    ranked = [layout for _, layout in best.ranked()]
    looked = sum(piece.looked for piece in pieces)
    faults = [fault for piece in pieces for fault in piece.faults]
    verdicts = sum((Counter(piece.verdicts) for piece in pieces), Counter[str]())
    evaluated = [_evaluated(space, layout.values, objective) for layout in ranked]
    faults += [fault for one in evaluated for fault in incomplete(one.result)]
    for layout, one in zip(ranked, evaluated, strict=True):
        if not _agree(layout, one):
            failed = plugins_failed(space, faults)
            raise SpecError(failed or [disagreement(space, layout.values)])
    if any(one.refused for one in evaluated) and not (careful or interrupted):
        raise RefusedError
    verdicts.update(rule for one in evaluated for rule in one.refused)
    exact = [one.layout for one in evaluated if one.layout is not None]
    if not exact:
        if interrupted:
            raise KeyboardInterrupt
        why: Sequence[Diagnostic]
        if looked < space.count():
            why = [out_of_time(space, legal)]
        elif not legal:
            why = empty(space, refused)
        else:
            large += sum(piece.unfit for piece in pieces)
            limits += sum((Counter(piece.broken) for piece in pieces), Counter[str]())
            limits.update({f"{OUTCOME} `{rule}` accepts": n for rule, n in verdicts.items()})
            needed = min(piece.least_bytes for piece in pieces)
            why = [nothing_found(space, legal, large, limits, needed)]
        raise SpecError([*why, *plugins_failed(space, faults)])
    left = min(piece.left for piece in pieces)
    fastest = faster(entry for piece in pieces for entry in piece.front)
    front = [_evaluated(space, candidate.values, objective) for candidate in fastest]
    whole = looked == space.count()
    return Found(
        objective=objective,
        best=exact,
        front=pareto([*exact, *(one.layout for one in front if one.layout is not None)]),
        size=space.size,
        legal=legal,
        large=large,
        refused=dict(refused + verdicts),
        limits=dict(limits),
        replayed=sum(piece.replayed for piece in pieces),
        gap=_gap(exact[0].cost, left) if whole else None,
        proven=whole and not faults and (left == inf or left > best.worst),
        faults=list(dict.fromkeys(faults)),
        looked=looked,
        structures=space.count(),
        interrupted=interrupted,
        seconds=time.monotonic() - start,
    )


def _gap(cost: float, left: float) -> float:
    """Return how much lower than the best *cost* the lowest that is *left* is, as a share."""
    return max(0.0, (cost - left) / abs(cost)) if cost else 0.0


def _agree(layout: Layout, one: Alone) -> bool:
    """Say whether a layout is by itself what it was among others, whatever rules say of that."""
    if one.layout is not None:
        return isclose(one.layout.cost, layout.cost, rel_tol=ALIKE)
    outcome = one.result.outcome
    if outcome is None or not one.refused:
        return bool(one.refused)
    found = (float(outcome.step_seconds), float(outcome.memory_bytes))
    known = (layout.seconds, layout.bytes_)
    return all(isclose(a, b, rel_tol=ALIKE) for a, b in zip(found, known, strict=True))


def _evaluated(space: Space, values: Mapping[str, Any], objective: Objective) -> Alone:
    """Return a layout as evaluated by itself."""
    with np.errstate(all="ignore"):
        return alone(space.scenario, values, objective.name)
