"""Which device is fullest, when, and of what.

Four moments are compared on every device: the most of a forward pass, the most of a
backward pass, the optimizer, and the gathering of parameters. Micro-batches are alive
in the first two, as many as the schedule's order says; with several virtual stages on
a device, every combination of them that the order reaches is tried.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from attrs import frozen

from parcost.evaluation.order import Order
from parcost.evaluation.replay import Plan
from parcost.evaluation.select import largest, total
from parcost.evaluation.work import count, kinds
from parcost.numeric import Real, any_of, is_array, where
from parcost.outcome import MemoryLine
from parcost.terms import MOMENTS, Memory, Moment

if TYPE_CHECKING:
    from parcost.plugins import Plugin

_LIVING: tuple[Moment, ...] = ("forward", "backward")  # the first of MOMENTS


@frozen(kw_only=True, eq=False)
class Fullest:
    """The fullest device at its fullest moment; *lines* are what is there."""

    bytes_: Real
    lines: Sequence[MemoryLine]
    device: Real
    moment: Moment | Sequence[Moment]
    devices: Sequence[Real]  # the fullest moment of each


def fullest(terms: Sequence[tuple[Plugin, Memory]], plan: Plan) -> Fullest:
    """Return what the fullest device of *plan* holds; *terms* are sorted by name."""
    held = _Held([term for _, term in terms], plan)
    sums = [held.moments(d) for d in range(len(plan.held))]
    points = [(d, moment) for d in range(len(plan.held)) for moment in MOMENTS]
    _, at = largest([bytes_ for moments in sums for bytes_ in moments])
    amounts = at.row(lambda i: [held.bytes_of(term, *points[i]) for _, term in terms])
    lines = [
        MemoryLine(name=term.name, bytes_=amount, formula=term.formula, plugin=plugin, term=term)
        for (plugin, term), amount in zip(terms, amounts, strict=True)
        if any_of(amount != 0)
    ]
    n = len(MOMENTS)
    return Fullest(
        bytes_=total(line.bytes_ for line in lines),
        lines=lines,
        device=at.index // n,
        moment=_named(at.index % n),
        devices=[largest(moments)[0] for moments in sums],
    )


class _Held:
    """What devices hold, by moment."""

    def __init__(self, terms: Sequence[Memory], plan: Plan) -> None:
        self.plan = plan
        self.steady = [term for term in terms if not term.per_micro_batch]
        self.living = [term for term in terms if term.per_micro_batch]
        self.shares = total(term.of_activations for term in terms)
        self.kinds = kinds(terms, len(plan.device))
        self._resident: dict[tuple[int, ...], Sequence[Real]] = {}
        self._weights: dict[tuple[Moment, int], Real] = {}
        self._alive: dict[tuple[Moment, int], Sequence[Real]] = {}

    def moments(self, d: int) -> Sequence[Real]:
        """Return the bytes that device *d* holds at each moment."""
        held = self.plan.held[d]
        alike = tuple(self.kinds[x] for x in held)
        if alike not in self._resident:
            self._resident[alike] = self._steady(held)
        found = list(self._resident[alike])
        for i, moment in enumerate(_LIVING):
            found[i] = found[i] + self.activations(d, moment) * (1.0 + self.shares)
        return found

    def activations(self, d: int, moment: Moment) -> Real:
        """Return the bytes of the micro-batches alive on device *d*."""
        if moment not in _LIVING:
            return 0.0
        alive = zip(self.plan.held[d], self.alive(d, moment), strict=True)
        return total(n * self._weight(x, moment) for x, n in alive)

    def bytes_of(self, term: Memory, d: int, moment: Moment) -> Real:
        """Return the bytes of *term* that device *d* holds."""
        own = term.bytes_ * self.times(term, d, moment)
        share = term.of_activations
        if not is_array(share) and not share:
            return own
        return own + share * self.activations(d, moment)

    def _steady(self, held: Sequence[int]) -> Sequence[Real]:
        """Return the bytes at each moment that do not depend on micro-batches alive."""
        found: dict[Moment, Real] = dict.fromkeys(MOMENTS, 0.0)
        for term in self.steady:
            amount = term.bytes_ * _counted(term, held)
            for moment in term.moments:
                found[moment] = found[moment] + amount
        return list(found.values())

    def times(self, term: Memory, d: int, moment: Moment) -> Real:
        """Return how many of *term* device *d* holds."""
        if moment not in term.moments:
            return 0.0
        held = self.plan.held[d]
        if not term.per_micro_batch:
            return _counted(term, held)
        if moment not in _LIVING:
            return 0.0
        alive = self.alive(d, moment)
        return total(n * count(term, x) for n, x in zip(alive, held, strict=True))

    def alive(self, d: int, moment: Moment) -> Sequence[Real]:
        """Return the micro-batches alive on each virtual stage when they hold the most."""
        if (moment, d) not in self._alive:
            self._alive[moment, d] = self._most_alive(d, moment)
        return self._alive[moment, d]

    def _most_alive(self, d: int, moment: Moment) -> Sequence[Real]:
        held = self.plan.held[d]

        def reached(order: Order) -> Sequence[Sequence[float]]:
            return (order.alive_forward if moment == "forward" else order.alive_backward)[d]

        if len(held) < 2:
            return [self.plan.by_order(lambda order: float(reached(order)[0][0])) for _ in held]
        found: list[Real] = [0.0] * len(held)
        for m, order in self.plan.orders:
            vectors = reached(order)
            _, which = largest(
                [
                    total(n * self._weight(x, moment) for n, x in zip(vector, held, strict=True))
                    for vector in vectors
                ]
            )
            here = self.plan.pipeline.micro_batches == m
            most = which.row(vectors.__getitem__)
            found = [where(here, a, b) for a, b in zip(most, found, strict=True)]
        return found

    def _weight(self, x: int, moment: Moment) -> Real:
        """Return the bytes of one micro-batch alive on virtual stage *x*."""
        key = (moment, self.kinds[x])
        if key not in self._weights:
            self._weights[key] = total(
                term.bytes_ * count(term, x) for term in self.living if moment in term.moments
            )
        return self._weights[key]


def _counted(term: Memory, held: Sequence[int]) -> float:
    counts = [count(term, x) for x in held]
    return max(counts) if term.once_per_device else sum(counts)


def _named(moment: Real) -> Moment | Sequence[Moment]:
    if isinstance(moment, (float, int)):
        return MOMENTS[int(moment)]
    return [MOMENTS[int(i)] for i in moment.reshape(-1)]
