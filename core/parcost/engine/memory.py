"""Peak memory: the device, the moment and the terms.

Six moments are compared on every device: a forward pass, the loss, a backward pass of layers, its
end, the optimizer, and the gathering of parameters. In the first three moments, the number of
micro-batches in flight depends on the order of the schedule. With several virtual stages on a
device, every combination of counts that occurs is evaluated. Between the B and the W of a
micro-batch only a part of its memory is held. At the end of backward one layer of one micro-batch
remains.

In the backward pass of layers, only the other micro-batches hold memory of the loss. For example, 4
micro-batches of 2 GiB each are in flight, and the loss of each takes 3 GiB. The device holds 20 GiB
at the loss. In the backward pass of layers it holds 8 + 9 = 17 GiB, and recomputed activations.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
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
    held = PlanMemory([term for _, term in terms], plan)
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
    held = PlanMemory([term for _, term in terms], plan)
    every = (bytes_ for d in range(len(plan.held)) for bytes_ in held.moments(d))
    return reduce(maximum, every)


def reserved_bytes(
    terms: Sequence[tuple[Plugin, Memory]], plan: PipelinePlan, held: Sequence[Real]
) -> Sequence[Real]:
    """Return the peak of each device in bytes including freed blocks of its allocator; *held* is
    the peak without them.
    """
    if not any(term.cached for _, term in terms):
        return held
    every = [
        evolve(term, moments=(*term.moments, *term.cached)) if term.cached else term
        for _, term in terms
    ]
    reserved = PlanMemory(every, plan)
    return [reduce(maximum, reserved.moments(d)) for d in range(len(held))]


def device_lines(
    terms: Sequence[tuple[Plugin, Memory]], plan: PipelinePlan
) -> Sequence[Mapping[Moment, Sequence[MemoryLine]]]:
    """Return the memory lines of each device at each moment; *terms* are sorted by name."""
    held = PlanMemory([term for _, term in terms], plan)

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


class DeviceMemory(ABC):
    """The memory of each device at each moment, for the micro-batches in flight.

    *copies* has, for each device and kind of virtual stage, one stage of the kind and the number of
    copies.
    """

    def __init__(
        self, terms: Sequence[Memory], copies: Sequence[Sequence[tuple[int, Real]]]
    ) -> None:
        self.copies = copies
        self.steady = [term for term in terms if not term.per_micro_batch]
        self.living = [term for term in terms if term.per_micro_batch]
        self.left, self.added = _shares(terms)
        freed = any_of(total(term.freed_at_b for term in self.living) != 0)
        passes = any("backward" not in term.moments for term in self.living)
        self.before = 1 + freed  # number of fields at the start of an op
        self.fields = tuple(i + 2 * end for end in range(1 + passes) for i in range(self.before))
        self._steady_bytes: dict[int, Sequence[Real]] = {}  # by id of the copies
        self._sums: dict[tuple[int, int, bool], Real] = {}  # of occurrences
        self._bytes: dict[int, Sequence[tuple[Memory, Real]]] = {}  # by kind of a copy
        self._known: dict[tuple[Moment, int], Sequence[Real]] = {}  # weights
        self._alike: dict[Any, Sequence[Real]] = {}  # those that moments share

    @abstractmethod
    def alive(self, d: int, moment: Moment) -> Sequence[Real]:
        """Return the micro-batches in flight at the peak of device *d*, by kind of its copies.

        These counts are given for each field of :class:`AliveCounts` in use, one field after
        another.
        """

    def moments(self, d: int) -> Sequence[Real]:
        """Return the bytes that device *d* holds at each moment."""
        key = id(self.copies[d])
        if key not in self._steady_bytes:
            self._steady_bytes[key] = self._steady(d)
        found = list(self._steady_bytes[key])
        kept: dict[Any, Real] = {}
        for i, moment in enumerate(_LIVING):
            same = tuple(map(id, self._own_weights(d, moment)))  # often those of another moment
            if same not in kept:
                bytes_ = self.activations(d, moment)
                added = is_array(self.added) or self.added
                kept[same] = bytes_ * (1.0 + self.added) if added else bytes_
            found[i] = found[i] + kept[same]
        return found

    def activations(self, d: int, moment: Moment) -> Real:
        """Return the bytes of activations on device *d*, for the micro-batches in flight."""
        if moment == _END:
            return self._one_layer(d)
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
        """Return the share of *term* that is on the device."""
        return self.left if term.per_micro_batch and not term.resident else 1.0

    def _steady(self, d: int) -> Sequence[Real]:
        """Return the bytes at each moment that do not depend on the micro-batches in flight."""
        sums: dict[tuple[int, Sequence[Moment]], Real] = {}  # most terms have the same moments
        for term in self.steady:
            amount = term.bytes_ * self._count_memory(term, d)
            key = getattr(amount, "size", 1), tuple(term.moments)
            sums[key] = sums[key] + amount if key in sums else amount
        found = [
            total(sums[key] for key in sorted(sums, key=_size) if moment in key[1])
            for moment in MOMENTS
        ]
        last = MOMENTS.index(_END)
        found[last] = found[last] + self._one_layer(d) * (1.0 + self.added)
        return found

    def _one_layer(self, d: int) -> Real:
        """Return the bytes of activations in the last backward pass of a first layer."""
        return total(
            term.bytes_ * self._count_layer(term, d) * self.resident_share(term)
            for term in self.living
            if _END in term.moments
        )

    def _count_layer(self, term: Memory, d: int) -> Real:
        """Return 1 if *term* is activations of a layer on one of the copies of a device, else 0."""
        return minimum(1.0, self._count_on(term, d, largest=True))

    def _count_memory(self, term: Memory, d: int) -> Real:
        return self._count_on(term, d, largest=term.once_per_device)

    def _count_on(self, term: Memory, d: int, *, largest: bool) -> Real:
        """Return the occurrences of *term* on device *d*, or only those on one of its copies."""
        key = (id(term.count), d, largest)  # many terms share their counts
        if key not in self._sums:
            each = [(count(term, x), n) for x, n in self.copies[d]]
            if largest:
                self._sums[key] = reduce(maximum, (times * minimum(n, 1.0) for times, n in each))
            else:
                self._sums[key] = total(times * n for times, n in each)
        return self._sums[key]

    def times(self, term: Memory, d: int, moment: Moment) -> Real:
        """Return the number of occurrences of *term* on device *d* at a *moment*."""
        if not term.per_micro_batch:
            return self._count_memory(term, d) if moment in term.moments else 0.0
        if moment == _END:
            return self._count_layer(term, d) if moment in term.moments else 0.0
        if moment not in _LIVING:
            return 0.0
        stages = [count(term, x) for x, _ in self.copies[d]]
        weights = [share * n for share in self._shares(term, moment) for n in stages]
        return _sum_products(self.alive(d, moment), weights)

    def _weights(self, d: int, moment: Moment) -> Sequence[Real]:
        """Return the bytes of a micro-batch, by field of the counts and kind of the copies."""
        each = self._own_weights(d, moment)
        return [weight[i] for i in range(len(self.fields)) for weight in each]

    def _own_weights(self, d: int, moment: Moment) -> Sequence[Sequence[Real]]:
        """Return the bytes of a micro-batch, by kind of the copies and field of the counts."""
        return [self._weight(x, moment) for x, _ in self.copies[d]]

    def _weight(self, x: int, moment: Moment) -> Sequence[Real]:
        """Return the bytes of a micro-batch on a virtual stage, by field of the counts."""
        key = (moment, x)
        if key not in self._known:
            held = self._bytes_on(x)
            first = [_first_field(term, moment) for term, _ in held]
            alike = (x, *first)
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

    def _bytes_on(self, x: int) -> Sequence[tuple[Memory, Real]]:
        """Return the terms that a micro-batch holds on a virtual stage, each with its bytes."""
        if x not in self._bytes:
            counts = [(term, count(term, x)) for term in self.living]
            self._bytes[x] = [
                (term, term.bytes_ * times * self.resident_share(term))
                for term, times in counts
                if is_array(times) or times
            ]
        return self._bytes[x]

    def _shares(self, term: Memory, moment: Moment) -> Sequence[Real]:
        """Return the share of a *term* that is held, by field of the counts."""
        found: list[Real] = [0.0] * 4
        first = _first_field(term, moment)
        if first is not None:
            found[first : first + 2] = 1.0 - term.freed_at_b, term.freed_at_b
        return [found[i] for i in self.fields]


def _size(key: tuple[int, Sequence[Moment]]) -> int:
    """Return the number of elements of an operand, as a sort key: a sum that starts with small
    arrays is faster.
    """
    return key[0]


class PlanMemory(DeviceMemory):
    """The memory of each device of a plan, at the peaks of its orders."""

    def __init__(self, terms: Sequence[Memory], plan: PipelinePlan) -> None:
        self.plan = plan
        alike = kinds(terms, plan.pipeline.stages * plan.pipeline.chunks)
        self._places: list[tuple[tuple[int, ...], ...]] = []  # of the copies of a device, by kind
        known: dict[Any, Sequence[tuple[int, float]]] = {}  # devices with equal copies share them
        copies = []
        for held in plan.held:
            places: dict[int, list[int]] = {}
            for i, k in enumerate(held):
                places.setdefault(alike[plan.stage[k]], []).append(i)
            self._places.append(tuple(map(tuple, places.values())))
            own = tuple([(x, float(len(at))) for x, at in places.items()])
            copies.append(known.setdefault(own, own))
        super().__init__(terms, copies)
        orders = [order for _, order in plan.orders]
        self._one = [
            all(len(order.peaks[d]) == 1 for order in orders) for d in range(len(plan.held))
        ]
        self._alive: dict[Any, Sequence[Real]] = {}
        self._peaks: dict[int, Sequence[tuple[float, Sequence[tuple[float, ...]]]]] = {}

    def alive(self, d: int, moment: Moment) -> Sequence[Real]:
        key = d if self._one[d] else (d, *map(id, self._own_weights(d, moment)))  # for all moments
        if key not in self._alive:
            self._alive[key] = self._most_alive(d, moment)
        return self._alive[key]

    def bytes_on(self, d: int, moment: Moment, alive: AliveCounts) -> Real:
        """Return the bytes of device *d* at a *moment* with *alive* micro-batches in flight."""
        steady = self._steady(d)[MOMENTS.index(moment)]
        if moment not in _LIVING:
            return steady
        counts = alive.sums(self.fields, self._places[d])
        kept = _sum_products(counts, self._weights(d, moment))
        return steady + kept * (1.0 + self.added)

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
                (m, order.peak_sums(d, self.fields, self._places[d]))
                for m, order in self.plan.orders
            ]
        return self._peaks[d]


def _sum_products(counts: Sequence[Real], weights: Sequence[Real]) -> Real:
    """Return the sum of *counts* times *weights*, without weights of zero."""
    pairs = zip(counts, weights, strict=True)
    return total([n * weight for n, weight in pairs if weight.__class__ is not float or weight])


def _first_field(term: Memory, moment: Moment) -> int | None:
    """Return the first field of :class:`AliveCounts` that counts *term*, None if none does.

    In the backward pass, only the other micro-batches hold memory of another moment.
    """
    return 0 if moment in term.moments else 2 if moment == "backward" else None


def _shares(terms: Sequence[Memory]) -> tuple[Real, Real]:
    """Return the share of activations that stays on the device, and the share added to it.

    The shares of several offloading terms multiply: each applies to the remainder of the others.
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
