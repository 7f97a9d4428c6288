"""How the time of a collective comes about: by its closed expression, or phase by phase.

An algorithm may have a closed expression, such as ``(P - 1) (alpha + n / P / B)``, which holds
where units are even and links follow alpha and B. Wherever it gives the time of the algorithm it
explains it. Elsewhere the phases of the algorithm do: so many rounds, and bytes, on each link.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any

from parcost.formulas import Formula, FormulaError, formula, letters_of, plain_of
from parcost.numeric import INFINITY, all_of, any_of, maximum

if TYPE_CHECKING:
    from parcost.numeric import Real
    from parcost.terms import Collective, Group, Link

_MOST_POINTS = 256  # of a sweep; larger arrays belong to searches, which print nothing
_ROUNDING = 1e-9


def price(
    operation: str,
    n: Real | Formula,
    group: Group,
    offered: Sequence[Collective],
    times: Sequence[Real],
    best: Real,
) -> Formula:
    """Return the formula of *best*, the least of the *times* of some algorithms."""
    names = " or ".join(algorithm.name for algorithm in offered)
    title = f"{operation} by {names}"
    if getattr(best, "size", 1) > _MOST_POINTS:
        return _by_name(title, n, group, offered[0].source, best)
    if len(offered) == 1:
        return explained(operation, n, group, offered[0], best)
    each = {
        algorithm.name: (explained(operation, n, group, algorithm, seconds), "s")
        for algorithm, seconds in zip(offered, times, strict=True)
    }
    return formula(f"min({', '.join(each)})", each, title=title, source=offered[0].source)


def explained(
    operation: str, n: Real | Formula, group: Group, algorithm: Collective, seconds: Real
) -> Formula:
    """Return the formula of the *seconds* of one algorithm."""
    title, source = f"{operation} by {algorithm.name}", algorithm.source
    for text, letters in chain(
        _closed(operation, n, group, algorithm), _phases(operation, n, group, algorithm)
    ):
        try:
            used = letters_of(text)
            found = formula(text, {k: letters[k] for k in used}, title=title, source=source)
        except (FormulaError, KeyError):  # it has a letter of its own, or no expression
            continue
        if _same(found.value, seconds):
            return found
    return _by_name(title, n, group, source, seconds)


def _by_name(title: str, n: Real | Formula, group: Group, source: str, seconds: Real) -> Formula:
    inputs = {"P": group.ranks, "n": (n, "B")}
    text = "by the arithmetic of the algorithm"
    return Formula(text=text, inputs=inputs, source=source, value=seconds, title=title)


def _same(found: Real, seconds: Real) -> bool:
    if found.__class__ is float and seconds.__class__ is float:
        return found == seconds or abs(found - seconds) <= _ROUNDING * seconds < INFINITY
    difference = maximum(found - seconds, seconds - found)
    near = (difference <= _ROUNDING * seconds) & (seconds < INFINITY)
    return all_of(near | (found == seconds))


def _closed(
    operation: str, n: Real | Formula, group: Group, algorithm: Collective
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the closed expression of an algorithm, with the letters that there are."""
    more: list[dict[str, Any]] = []
    text, sees = algorithm.formula(operation), getattr(algorithm, "sees", "links")
    if hasattr(algorithm, "formula_for") and (special := algorithm.formula_for(operation, group)):
        text, sees, *more = special
    links = getattr(group, sees) if isinstance(sees, str) else sees
    letters: dict[str, Any] = {"P": group.ranks, "n": (n, "B")}
    if isinstance(links, tuple):
        letters |= _levels(links, group)
    else:
        letters |= {"alpha": (links.latency, "s"), "B": (links.bandwidth, "B/s")}
    if not any_of(group.reduction > 0):
        yield text, letters | (more[0] if more else {})


def _levels(links: Sequence[Link], group: Group) -> dict[str, Any]:
    """Return the letters of each level that a group has members at."""
    g: dict[str, Real] = {}
    below: dict[str, Real] = {}
    alpha: dict[str, Real] = {}
    B: dict[str, Real] = {}
    product: Real = 1.0
    for link, members in zip(links, group.shape, strict=True):
        if any_of(members > 1):
            name = _unused(str(link.name), g)
            g[name], below[name] = members, product
            alpha[name], B[name] = link.latency, link.bandwidth
        product = product * members
    return {"g": g, "G": below, "alpha": (alpha, "s"), "B": (B, "B/s")}


def _phases(
    operation: str, n: Real | Formula, group: Group, algorithm: Any
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the sum over the phases of an algorithm: by alpha and B, and by measured times."""
    if not hasattr(algorithm, "phases"):
        return
    size = plain_of(n)
    rounds: dict[str, Real] = {}
    bytes_: dict[str, Real] = {}
    alpha: dict[str, Real] = {}
    B: dict[str, Real] = {}
    times: dict[str, Formula] = {}
    added: Real = 0.0
    for link, r, w, reduced in algorithm.phases(operation, size, group):
        if not (any_of(r > 0) or any_of(w > 0)):
            continue
        name = _unused(str(link.name), rounds)
        rounds[name], bytes_[name] = r, w
        alpha[name], B[name] = link.latency, link.bandwidth
        times[name] = Formula(
            text="time of messages over one link",
            inputs={"rounds": r, "bytes": (w, "B")},
            source="measured" if getattr(link, "measured", False) else "",
            value=link.seconds(r, w),
        )
        added = added + reduced
    letters = {
        "r": rounds,
        "w": (bytes_, "B"),
        "alpha": (alpha, "s"),
        "B": (B, "B/s"),
        "t": (times, "s"),
        "gamma": (group.reduction, "s/B"),
        "a": (added, "B"),
    }
    adds = " + gamma a" if any_of(group.reduction > 0) else ""
    remark = ", r rounds with w bytes in all on each link"
    reduces = " and a bytes that a rank adds" if adds else ""
    yield f"sum(r alpha + w / B){adds}{remark}{reduces}", letters
    yield f"sum(t){adds}, t of each link", letters


def _unused(name: str, known: Mapping[str, Any]) -> str:
    """Return *name* with as many primes as tell it from those that are known."""
    while name in known:
        name += "'"
    return name
