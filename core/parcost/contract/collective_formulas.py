"""Explanations of the time of a collective: a closed form, or its phases.

An algorithm may have a closed form, such as ``(P - 1) (alpha + n / P / B)``. It is valid if units
have equal sizes and links follow the alpha-beta model. If its value equals the time of the
algorithm, reports print it. Otherwise they print the phases: rounds and bytes on each link.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any

from attrs import evolve

from parcost.contract.calls import CallError, call
from parcost.contract.formulas import Formula, FormulaError, formula, plain_of, symbols_of
from parcost.contract.groups import Communication
from parcost.contract.validation import can_be_shown
from parcost.language.diagnostics import type_name
from parcost.numeric import INFINITY, all_of, any_of, maximum

if TYPE_CHECKING:
    from parcost.contract.groups import Group, Link
    from parcost.contract.study import Collective
    from parcost.numeric import Real

    #: An operation, its bytes and its group.
    Asked = tuple[str, Real | Formula, Group]

_MOST_POINTS = 256  # of a sweep; larger arrays belong to searches, which print nothing
_ROUNDING = 1e-9
_BY_NAME = "by the arithmetic of the algorithm"


def fastest_formula(
    operation: str,
    n: Real | Formula,
    group: Group,
    offered: Sequence[Collective],
    times: Sequence[Real],
    best: Real,
) -> Formula:
    """Return the formula of *best*, the minimum in seconds of the *times* of several algorithms.

    Its text is rendered on the first read.
    """
    if best.__class__ is not float and getattr(best, "size", 1) > _MOST_POINTS:
        return _by_name((operation, n, group), offered, best)
    if len(offered) == 1:
        return explain(operation, n, group, offered[0], best)
    each = [
        explain(operation, n, group, algorithm, seconds)
        for algorithm, seconds in zip(offered, times, strict=True)
    ]
    parts = {one.name: (found, "s") for one, found in zip(offered, each, strict=True)}
    explain_minimum = partial(formula, f"min({', '.join(parts)})", parts)
    return _by_name((operation, n, group), offered, best, explain_minimum)


def explain(
    operation: str, n: Real | Formula, group: Group, algorithm: Collective, seconds: Real
) -> Formula:
    """Return *seconds*, the time of one algorithm, as a formula."""
    asked = operation, n, group
    explain = partial(_explanation, asked, algorithm, seconds)
    return _by_name(asked, (algorithm,), seconds, explain)


def _explanation(asked: Asked, algorithm: Collective, seconds: Real) -> Formula:
    """Return an expression with the value *seconds*, or the name of the algorithm if it has
    none.
    """
    text = _BY_NAME

    def expression() -> Formula | None:
        for closed_text, symbols in chain(
            _closed_form(asked, algorithm), _phases(asked, algorithm)
        ):
            with suppress(FormulaError, KeyError):  # it is no expression, or lacks a symbol
                found = formula(
                    closed_text, {name: symbols[name] for name in symbols_of(closed_text)}
                )
                if _same(found.value, seconds) and can_be_shown(found):
                    return found
        return None

    try:
        if (found := call(expression)) is not None:
            return found
    except CallError as error:
        text = f"{_BY_NAME}, which cannot be explained: it raised {type_name(error.cause)}"
    return evolve(_by_name(asked, (algorithm,), seconds), text=text)


def _by_name(
    asked: Asked,
    offered: Sequence[Collective],
    seconds: Real,
    explain: Callable[[], Formula] | None = None,
) -> Formula:
    operation, n, group = asked
    names = " or ".join(algorithm.name for algorithm in offered)
    inputs = {"P": group.ranks, "n": (n, "B")}
    title = f"{operation} by {names}"
    return Formula(
        _BY_NAME,
        inputs,
        offered[0].source,
        seconds,
        title,
        False,
        explain,
        communication=Communication(operation, plain_of(n), group),
    )


def _same(found: Real, seconds: Real) -> bool:
    if found.__class__ is float and seconds.__class__ is float:
        return found == seconds or abs(found - seconds) <= _ROUNDING * seconds < INFINITY
    difference = maximum(found - seconds, seconds - found)
    near = (difference <= _ROUNDING * seconds) & (seconds < INFINITY)
    return all_of(near | (found == seconds))


def _closed_form(asked: Asked, algorithm: Collective) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the closed form of an algorithm, if it has one and reduction takes no time."""
    operation, n, group = asked
    found = algorithm.closed_form(operation, group)
    if found is None or any_of(group.reduction > 0):
        return
    symbols: dict[str, Any] = {"P": group.ranks, "n": (n, "B")}
    if not isinstance(found.link, tuple):
        symbols |= {
            "alpha": (found.link.explain_latency(), "s"),
            "B": (found.link.explain_bandwidth(), "B/s"),
        }
    elif found.link:
        symbols |= _levels(found.link, group)
    yield found.text, symbols | dict(found.symbols)


def _levels(links: Sequence[Link], group: Group) -> dict[str, Any]:
    """Return the symbols g, G, alpha and B of each level with several members of a group."""
    g: dict[str, Real] = {}
    below: dict[str, Real] = {}
    alpha: dict[str, Real | Formula] = {}
    B: dict[str, Real | Formula] = {}
    product: Real = 1.0
    for link, members in zip(links, group.shape, strict=True):
        if any_of(members > 1):
            name = _unique_name(str(link.name), g)
            g[name], below[name] = members, product
            alpha[name], B[name] = link.explain_latency(), link.explain_bandwidth()
        product = product * members
    return {"g": g, "G": below, "alpha": (alpha, "s"), "B": (B, "B/s")}


def _phases(asked: Asked, algorithm: Collective) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the time of an algorithm as a sum over its phases: with alpha and B, then with measured
    times.
    """
    operation, n, group = asked
    phases = algorithm.phases(operation, plain_of(n), group)
    if phases is None:
        return
    rounds: dict[str, Real] = {}
    bytes_: dict[str, Real] = {}
    alpha: dict[str, Real | Formula] = {}
    B: dict[str, Real | Formula] = {}
    times: dict[str, Formula] = {}
    added: Real = 0.0
    for link, r, w, reduced in phases:
        if not (any_of(r > 0) or any_of(w > 0)):
            continue
        name = _unique_name(str(link.name), rounds)
        rounds[name], bytes_[name] = r, w
        alpha[name], B[name] = link.explain_latency(), link.explain_bandwidth()
        times[name] = Formula(
            text="time of messages over one link",
            inputs={"rounds": r, "bytes": (w, "B")},
            source="measured" if link.measured else "",
            value=link.seconds(r, w),
        )
        added = added + reduced
    symbols = {
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
    reduces = " and a bytes that a rank reduces" if adds else ""
    yield f"sum(r alpha + w / B){adds}{remark}{reduces}", symbols
    yield f"sum(t){adds}, t of each link", symbols


def _unique_name(name: str, known: Mapping[str, Any]) -> str:
    """Return *name*, with primes appended until it differs from the *known* names."""
    while name in known:
        name += "'"
    return name
