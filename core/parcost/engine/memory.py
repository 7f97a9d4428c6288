"""Peak memory: the device, the moment and the terms.

Six moments are compared on every device: a forward pass, the loss, a backward pass of layers, its
end, the optimizer, and the gathering of parameters. In the first three, micro-batches are in
flight, as many as the schedule's order implies. With several virtual stages on a device, every
combination of counts that occurs is tried. Between the B and the W of a micro-batch only a part of
it is held. At the end of backward one layer of one micro-batch is left.

In the backward pass of layers, only the other micro-batches hold memory of the loss. For example, 4
micro-batches of 2 GiB each are in flight, and the loss of each takes 3 GiB. The device holds 20 GiB
at the loss. In the backward pass of layers it holds 8 + 9 = 17 GiB, and what is recomputed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from functools import reduce
from typing import TYPE_CHECKING, Any

from attrs import evolve

from parcost.contract.outcome import MemoryLine
from parcost.contract.terms import MOMENTS, Memory, Moment
from parcost.engine.maxima import find_maximum, total
from parcost.engine.replay import PipelinePlan
from parcost.engine.stage_costs import count, kinds
from parcost.numeric import Real, any_of, is_array, maximum, minimum, where
from parcost.records import record

if TYPE_CHECKING:
    from parcost.contract.plugin import Plugin
    from parcost.engine.orders import AliveCounts

_LIVING: tuple[Moment, ...] = ("forward", "backward", "loss")  # the first of MOMENTS
_END: Moment = "end_of_backward"


@record(kw_only=True, eq=False)
class PeakMemory:
    """The device with the most memory, at its peak; *lines* are the memory terms there."""

    bytes_: Real
    lines: Sequence[MemoryLine]
    device: Real
    moment: Moment | Sequence[Moment]
    devices: Sequence[Real]  # the peak of each


def peak_memory(terms: Sequence[tuple[Plugin, Memory]], plan: PipelinePlan) -> PeakMemory:
    """Return the peak memory of *plan* over all devices; *terms* are sorted by name."""
    held = DeviceMemory([term for _, term in terms], plan)
    sums = [held.moments(d) for d in range(len(plan.held))]
    points = [(d, moment) for d in range(len(plan.held)) for moment in MOMENTS]
    _, at = find_maximum([bytes_ for moments in sums for bytes_ in moments])
    amounts = at.row(lambda i: [held.bytes_of(term, *points[i]) for _, term in terms])
    lines = [
        MemoryLine(
            name=term.name,
            bytes_=amount,
            formula=term.formula,
            plugin=plugin,
            term=term,
            left=held.resident_share(term),
        )
        for (plugin, term), amount in zip(terms, amounts, strict=True)
        if any_of(amount != 0)
    ]
    n = len(MOMENTS)
    return PeakMemory(
        bytes_=total(line.bytes_ for line in lines),
        lines=lines,
        device=at.index // n,
        moment=_moment_name(at.index % n),
        devices=[find_maximum(moments)[0] for moments in sums],
    )


def peak_bytes(terms: Sequence[tuple[Plugin, Memory]], plan: PipelinePlan) -> Real:
    """Return the peak memory over all devices, in bytes."""
    held = DeviceMemory([term for _, term in terms], plan)
    every = (bytes_ for d in range(len(plan.held)) for bytes_ in held.moments(d))
    return reduce(maximum, every)


def reserved_bytes(
    terms: Sequence[tuple[Plugin, Memory]], plan: PipelinePlan, held: Sequence[Real]
) -> Sequence[Real]:
    """Return the peak of each device with the freed blocks of its allocator; *held* is without."""
    if not any(term.cached for _, term in terms):
        return held
    every = [
        evolve(term, moments=(*term.moments, *term.cached)) if term.cached else term
        for _, term in terms
    ]
    reserved = DeviceMemory(every, plan)
    return [reduce(maximum, reserved.moments(d)) for d in range(len(held))]


def device_lines(
    terms: Sequence[tuple[Plugin, Memory]], plan: PipelinePlan
) -> Sequence[Mapping[Moment, Sequence[MemoryLine]]]:
    """Return the memory lines of each device at each moment; *terms* are sorted by name."""
    held = DeviceMemory([term for _, term in terms], plan)

    def lines(d: int, moment: Moment) -> list[MemoryLine]:
        amounts = [held.bytes_of(term, d, moment) for _, term in terms]
        return [
            MemoryLine(
                name=term.name, bytes_=amount, formula=term.formula, plugin=plugin, term=term
            )
            for (plugin, term), amount in zip(terms, amounts, strict=True)
            if any_of(amount != 0)
        ]

    return [{moment: lines(d, moment) for moment in MOMENTS} for d in range(len(plan.held))]


class DeviceMemory:
    """The memory of each device at each moment."""

    def __init__(
        self,
        terms: Sequence[Memory],
        plan: PipelinePlan,
        *,
        most: Real | None = None,
        growing: Collection[int] = (),
        steady: dict[Any, Sequence[Real]] | None = None,
    ) -> None:
        """Read the orders of *plan*; *most* is the number of micro-batches if the plan has fewer.

        On *growing* copies the number in flight grows in proportion, elsewhere it stays. *steady*
        is a cache for the bytes that do not depend on the order, shared by plans of the same terms.
        """
        self.plan = plan
        self.most, self.growing = most, growing
        self.steady = [term for term in terms if not term.per_micro_batch]
        self.living = [term for term in terms if term.per_micro_batch]
        self.left, self.added = _shares(terms)
        alike = kinds(terms, plan.pipeline.stages * plan.pipeline.chunks)
        self.kinds = [alike[x] for x in plan.stage]  # by copy
        freed = any_of(total(term.freed_at_b for term in self.living) != 0)
        passes = any("backward" not in term.moments for term in self.living)
        self.before = 1 + freed  # number of fields at the start of an op
        self.fields = [i + 2 * end for end in range(1 + passes) for i in range(self.before)]
        self._steady_bytes: dict[Any, Sequence[Real]] = {} if steady is None else steady
        self._terms = tuple(self.steady) if steady is not None else ()
        self._bytes: dict[int, Sequence[tuple[Memory, Real]]] = {}  # by kind of a copy
        self._known: dict[tuple[Moment, int], Sequence[Real]] = {}  # weights
        self._alike: dict[Any, Sequence[Real]] = {}  # those that moments share
        self._alive: dict[Any, Sequence[Real]] = {}
        self._peaks: dict[int, Sequence[tuple[float, Sequence[tuple[float, ...]]]]] = {}
        self._copies: dict[int, Sequence[Sequence[int]]] = {}
        self._at: dict[int, Sequence[Sequence[int]]] = {}

    def moments(self, d: int) -> Sequence[Real]:
        """Return the bytes that device *d* holds at each moment."""
        held = self.plan.held[d]
        alike = (self._terms, *(self.kinds[x] for x in held))
        if alike not in self._steady_bytes:
            self._steady_bytes[alike] = self._steady(held)
        found = list(self._steady_bytes[alike])
        kept: dict[Any, Real] = {}
        for i, moment in enumerate(_LIVING):
            same = tuple(map(id, self._own_weights(d, moment)))  # often those of another moment
            if same not in kept:
                bytes_ = self.activations(d, moment)
                added = is_array(self.added) or self.added
                kept[same] = bytes_ * (1.0 + self.added) if added else bytes_
            found[i] = found[i] + kept[same]
        return found

    def bytes_on(self, d: int, moment: Moment, alive: AliveCounts) -> Real:
        """Return the bytes of device *d* at a *moment* with *alive* micro-batches in flight."""
        steady = self._steady(self.plan.held[d])[MOMENTS.index(moment)]
        if moment not in _LIVING:
            return steady
        kept = _sum_products(self._counts(d, alive), self._weights(d, moment))
        return steady + kept * (1.0 + self.added)

    def activations(self, d: int, moment: Moment) -> Real:
        """Return the bytes of activations on device *d*, for the micro-batches in flight."""
        if moment == _END:
            return self._one_layer(self.plan.held[d])
        if moment not in _LIVING:
            return 0.0
        return _sum_products(self.alive(d, moment), self._weights(d, moment))

    def bytes_of(self, term: Memory, d: int, moment: Moment) -> Real:
        """Return the bytes of *term* that device *d* holds."""
        own = term.bytes_ * self.times(term, d, moment) * self.resident_share(term)
        share = term.of_activations
        if not is_array(share) and share <= 0:
            return own
        return own + maximum(share, 0.0) * self.activations(d, moment)

    def resident_share(self, term: Memory) -> Real:
        """Return the share of *term* that is not stored elsewhere."""
        return self.left if term.per_micro_batch and not term.resident else 1.0

    def _steady(self, held: Sequence[int]) -> Sequence[Real]:
        """Return the bytes at each moment that do not depend on the micro-batches in flight."""
        sums: dict[Sequence[Moment], Real] = {}  # most terms have the same moments
        for term in self.steady:
            moments = tuple(term.moments)
            amount = term.bytes_ * self._count_memory(term, held)
            sums[moments] = sums[moments] + amount if moments in sums else amount
        found = [
            total(amount for moments, amount in sums.items() if moment in moments)
            for moment in MOMENTS
        ]
        last = MOMENTS.index(_END)
        found[last] = found[last] + self._one_layer(held) * (1.0 + self.added)
        return found

    def _one_layer(self, held: Sequence[int]) -> Real:
        """Return the bytes of activations in the last backward pass of a first layer."""
        return total(
            term.bytes_ * self._count_layer(term, held) * self.resident_share(term)
            for term in self.living
            if _END in term.moments
        )

    def _count_layer(self, term: Memory, held: Sequence[int]) -> float:
        """Return 1 for activations of a layer on one of the copies *held*, and 0 for others."""
        return min(1.0, max(count(term, self.plan.stage[k]) for k in held))

    def times(self, term: Memory, d: int, moment: Moment) -> Real:
        """Return the number of occurrences of *term* on device *d* at a *moment*."""
        held = self.plan.held[d]
        if not term.per_micro_batch:
            return self._count_memory(term, held) if moment in term.moments else 0.0
        if moment == _END:
            return self._count_layer(term, held) if moment in term.moments else 0.0
        if moment not in _LIVING:
            return 0.0
        stages = [count(term, self.plan.stage[alike[0]]) for alike in self._alike_copies(d)]
        weights = [share * n for share in self._shares(term, moment) for n in stages]
        return _sum_products(self.alive(d, moment), weights)

    def alive(self, d: int, moment: Moment) -> Sequence[Real]:
        """Return the micro-batches in flight at the peak of device *d*, by kind of its copies.

        The counts of the next field of :class:`AliveCounts` follow, for each field in use.
        """
        one = all(len(order.peaks[d]) == 1 for _, order in self.plan.orders)  # for all moments
        key = d if one else (d, *map(id, self._own_weights(d, moment)))
        if key not in self._alive:
            found = self._most_alive(d, moment) if self.most is None else self._all_alive(d)
            self._alive[key] = found
        return self._alive[key]

    def _alike_copies(self, d: int) -> Sequence[Sequence[int]]:
        """Return the copies on device *d*, grouped by kind."""
        if d not in self._copies:
            found: dict[int, list[int]] = {}
            for k in self.plan.held[d]:
                found.setdefault(self.kinds[k], []).append(k)
            self._copies[d] = list(found.values())
        return self._copies[d]

    def _places(self, d: int) -> Sequence[Sequence[int]]:
        """Return the positions of the copies of each kind among the copies of device *d*."""
        if d not in self._at:
            at = {k: i for i, k in enumerate(self.plan.held[d])}
            self._at[d] = [[at[k] for k in alike] for alike in self._alike_copies(d)]
        return self._at[d]

    def _all_alive(self, d: int) -> Sequence[Real]:
        """Return the result of :meth:`alive` for a plan with fewer than *most* micro-batches."""
        (((_, order),), held) = self.plan.orders, self.plan.held[d]
        (peak,) = order.peaks[d]
        at = {k: i for i, k in enumerate(held)}
        found: list[Real] = []
        for counts in peak[: self.before]:
            for alike in self._alike_copies(d):
                same = Counter((counts[at[k]], k in self.growing) for k in alike)
                found.append(total(n * self._more(*each) for each, n in same.items()))
        before = self._counts(d, peak)
        ended = zip(found, before, before[len(found) :], strict=False)
        return [*found, *(most - (n - after) for most, n, after in ended)]

    def _more(self, alive: Real, growing: bool) -> Real:
        """Return *alive* on a copy, scaled from the plan's number of micro-batches to *most*."""
        assert self.most is not None
        m = self.plan.pipeline.micro_batches
        return minimum(alive * (self.most / m if growing else 1.0), self.most)

    def _most_alive(self, d: int, moment: Moment) -> Sequence[Real]:
        found: Sequence[Real] = ()
        for m, vectors in self._vectors(d):
            most: Sequence[Real] = vectors[0]
            if len(vectors) > 1:
                weights = self._weights(d, moment)
                _, which = find_maximum([_sum_products(vector, weights) for vector in vectors])
                most = which.row(vectors.__getitem__)
            here = self.plan.pipeline.micro_batches == m
            found = [where(here, a, b) for a, b in zip(most, found, strict=True)] if found else most
        return found

    def _vectors(self, d: int) -> Sequence[tuple[float, Sequence[tuple[float, ...]]]]:
        """Return the distinct counts at the peaks of device *d*, by number of micro-batches."""
        if d not in self._peaks:
            self._peaks[d] = [
                (m, list(dict.fromkeys(self._counts(d, peak) for peak in order.peaks[d])))
                for m, order in self.plan.orders
            ]
        return self._peaks[d]

    def _counts(self, d: int, alive: AliveCounts) -> tuple[float, ...]:
        """Return the counts in use of *alive* on device *d*, by field and by kind of its copies."""
        places = self._places(d)
        if len(places) == 1:
            return tuple([float(sum(alive[i])) for i in self.fields])
        every = [(alive[i].__getitem__, alike) for i in self.fields for alike in places]
        return tuple([float(sum(map(at, alike))) for at, alike in every])

    def _weights(self, d: int, moment: Moment) -> Sequence[Real]:
        """Return the bytes of a micro-batch, by field of the counts and kind of the copies."""
        each = self._own_weights(d, moment)
        return [weight[i] for i in range(len(self.fields)) for weight in each]

    def _own_weights(self, d: int, moment: Moment) -> Sequence[Sequence[Real]]:
        """Return the bytes of a micro-batch, by kind of the copies and field of the counts."""
        return [self._weight(alike[0], moment) for alike in self._alike_copies(d)]

    def _weight(self, k: int, moment: Moment) -> Sequence[Real]:
        """Return the bytes of a micro-batch on a copy, by field of the counts."""
        key = (moment, self.kinds[k])
        if key not in self._known:
            held = self._bytes_on(k)
            first = [_first_field(term, moment) for term, _ in held]
            alike = (self.kinds[k], *first)
            if alike not in self._alike:
                sums: list[Real] = [0.0] * 4
                for (term, bytes_), i in zip(held, first, strict=True):
                    if i is None:
                        continue
                    freed = term.freed_at_b
                    for field, share in ((i, 1.0 - freed), (i + 1, freed)):
                        if is_array(share) or share:
                            sums[field] = sums[field] + bytes_ * share
                self._alike[alike] = [sums[i] for i in self.fields]
            self._known[key] = self._alike[alike]
        return self._known[key]

    def _bytes_on(self, k: int) -> Sequence[tuple[Memory, Real]]:
        """Return the terms that a micro-batch holds on a copy, each with its bytes there."""
        kind, stage = self.kinds[k], self.plan.stage[k]
        if kind not in self._bytes:
            counts = [(term, count(term, stage)) for term in self.living]
            self._bytes[kind] = [
                (term, term.bytes_ * times * self.resident_share(term))
                for term, times in counts
                if times
            ]
        return self._bytes[kind]

    def _shares(self, term: Memory, moment: Moment) -> Sequence[Real]:
        """Return the share of a *term* that is held, by field of the counts."""
        found: list[Real] = [0.0] * 4
        first = _first_field(term, moment)
        if first is not None:
            found[first : first + 2] = 1.0 - term.freed_at_b, term.freed_at_b
        return [found[i] for i in self.fields]

    def _count_memory(self, term: Memory, held: Sequence[int]) -> float:
        counts = [count(term, self.plan.stage[k]) for k in held]
        return max(counts) if term.once_per_device else sum(counts)


def _sum_products(counts: Sequence[Real], weights: Sequence[Real]) -> Real:
    """Return the sum of *counts* times *weights*, without weights of zero."""
    pairs = zip(counts, weights, strict=True)
    return total(n * weight for n, weight in pairs if is_array(weight) or weight)


def _first_field(term: Memory, moment: Moment) -> int | None:
    """Return the first field of :class:`AliveCounts` that counts *term*, None if none does.

    In the backward pass, memory of another moment is held by the other micro-batches only.
    """
    return 0 if moment in term.moments else 2 if moment == "backward" else None


def _shares(terms: Sequence[Memory]) -> tuple[Real, Real]:
    """Return the share of activations that stays on the device, and the share added to it.

    Several offloading terms multiply: each takes its share of what the others leave.
    """
    left: Real = 1.0
    added: Real = 0.0
    for term in terms:
        share = term.of_activations
        if is_array(share) or share:
            left = left * (1.0 + minimum(share, 0.0))
            added = added + maximum(share, 0.0)
    return left, added


def _moment_name(moment: Real) -> Moment | Sequence[Moment]:
    if isinstance(moment, (float, int)):
        return MOMENTS[int(moment)]
    return [MOMENTS[int(i)] for i in moment.reshape(-1)]
