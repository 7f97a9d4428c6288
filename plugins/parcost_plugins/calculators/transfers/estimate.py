"""The estimate of one transfer: its time, and the bytes that the algorithm moves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from attrs import define, field

from parcost import Call, Collective, Group, Real, Study, record
from parcost.numeric import INFINITY, maximum, minimum, where
from parcost_plugins.vocabulary import CollectiveChoice, Transfer

#: Operations that divide the buffer, so that its size may be the whole or a part.
DIVIDED = frozenset({"all_gather", "reduce_scatter", "scatter", "gather", "all_to_all"})


@define(kw_only=True, eq=False)
class Movement:
    """The totals over the phases of an algorithm: rounds, bytes, and their seconds.

    *by_link* has the rounds and the bytes of each level, by name; *bytes_* is the maximum over
    levels.
    """

    rounds: Real = 0.0
    bytes_: Real = 0.0
    reduced: Real = 0.0
    waiting: Real = 0.0  # seconds of start-up
    moving: Real = 0.0  # seconds of bytes under way
    by_link: dict[str, tuple[Real, Real]] = field(factory=dict)


@record(kw_only=True, eq=False)
class TransferEstimate:
    """A transfer on its *group*: a buffer of *n* bytes, sent in ``transfer.chunks`` calls.

    *each* is the time of one call without overhead; *seconds* is the time of all calls, with
    overhead. *moved* describes the phases of one call that sends the whole buffer; it is None if
    the algorithm declares no phases.
    """

    transfer: Transfer
    group: Group
    algorithms: Sequence[Collective]
    n: Real
    sent: Real
    call: Call
    each: Real
    whole: Real
    extra: Real
    packing: Real
    moved: Movement | None

    @property
    def seconds(self) -> Real:
        """The seconds of all calls in sequence, with overhead per call, packing, and rank skew."""
        calls = self.transfer.chunks * (self.each + self.extra)
        return calls + self.packing + self.transfer.skew


def estimate_transfer(study: Study, transfer: Transfer, group: Group, n: Real) -> TransferEstimate:
    """Return the estimate of *transfer* with *n* bytes on *group*."""
    operation = transfer.operation
    sent = n / transfer.compression
    algorithms = candidates(study, transfer)
    each, _ = fastest_algorithm(algorithms, operation, sent / transfer.chunks, group)
    whole, moved = fastest_algorithm(algorithms, operation, sent, group)
    choice = study.get(CollectiveChoice)
    launch = choice.launch if choice is not None and choice.launch is not None else 0.0
    packing = 0.0 if transfer.codec is None else 2 * n / transfer.codec
    return TransferEstimate(
        transfer=transfer,
        group=group,
        algorithms=algorithms,
        n=n,
        sent=sent,
        call=study.collective(operation, sent, group, transfer.algorithm),
        each=each,
        whole=whole,
        extra=transfer.overhead + (launch if transfer.launched else 0.0),
        packing=packing,
        moved=moved,
    )


def candidates(study: Study, transfer: Transfer) -> Sequence[Collective]:
    """Return the algorithms that *transfer* chooses from: one, unless it is ``auto``."""
    found = study.candidates(transfer.operation, transfer.algorithm)
    if transfer.pieces is None:
        return found
    cut = (known.cut(transfer.pieces) for known in found)
    return [known for known in cut if known is not None]


def fastest_algorithm(
    algorithms: Sequence[Collective], operation: str, n: Real, group: Group
) -> tuple[Real, Movement | None]:
    """Return the seconds of the fastest of *algorithms*, and its movement."""
    best = algorithms[0].seconds(operation, n, group)
    if len(algorithms) == 1:
        return best, movement(algorithms[0], operation, n, group)
    moved = movement(algorithms[0], operation, n, group)
    for known in algorithms[1:]:
        seconds = known.seconds(operation, n, group)
        if seconds is INFINITY:
            continue
        moved = _select(seconds < best, movement(known, operation, n, group), moved)
        best = minimum(best, seconds)
    return best, moved


def movement(algorithm: Collective, operation: str, n: Real, group: Group) -> Movement | None:
    """Return the movement of *algorithm*, None if it states no phases."""
    phases = algorithm.phases(operation, n, group)
    if phases is None:
        return None
    moved = Movement()
    for link, rounds, bytes_, reduced in phases:
        moved.rounds = moved.rounds + rounds
        moved.reduced = moved.reduced + reduced
        moved.waiting = moved.waiting + rounds * link.latency
        moved.moving = moved.moving + bytes_ / link.bandwidth
        r, b = moved.by_link.get(link.name, (0.0, 0.0))
        moved.by_link[link.name] = (r + rounds, b + bytes_)
    for _, bytes_ in moved.by_link.values():
        moved.bytes_ = maximum(moved.bytes_, bytes_)
    return moved


def _select(first: Any, one: Movement | None, other: Movement | None) -> Movement | None:
    """Return *one* where *first* is true, and *other* elsewhere; None if either is unknown."""
    if one is None or other is None:
        return None
    if isinstance(first, bool):
        return one if first else other
    mixed = {
        name: tuple(
            where(first, a, b)
            for a, b in zip(
                one.by_link.get(name, (0.0, 0.0)), other.by_link.get(name, (0.0, 0.0)), strict=True
            )
        )
        for name in {**one.by_link, **other.by_link}
    }
    return Movement(
        rounds=where(first, one.rounds, other.rounds),
        bytes_=where(first, one.bytes_, other.bytes_),
        reduced=where(first, one.reduced, other.reduced),
        waiting=where(first, one.waiting, other.waiting),
        moving=where(first, one.moving, other.moving),
        by_link=mixed,  # type: ignore[arg-type]
    )


def bus_factor(operation: str, P: Real) -> Real:
    """Return the bytes through each rank's port over the buffer size, as in nccl-tests."""
    if operation == "all_reduce":
        return 2 * (P - 1) / P
    return (P - 1) / P if operation in DIVIDED else minimum(P - 1, 1.0)


def bisection(operation: str, n: Real, P: Real, rate: Real) -> Real:
    """Return the seconds of the traffic across the bisection, in each direction.

    Each half of the ranks needs data of the other half. In a broadcast or a reduction this is the
    whole buffer, and in an all-gather a part of it. In an all-to-all it is half of every block.
    """
    crossing = {
        "all_to_all": n * P / 4,
        "all_gather": n / 2,
        "reduce_scatter": n / 2,
        "scatter": n / 2,
        "gather": n / 2,
    }.get(operation, n)
    return crossing * minimum(P - 1, 1.0) / rate


def limit(study: Study, estimate: TransferEstimate) -> Real:
    """Return the lower bound in seconds for any algorithm on these links and this network."""
    operation, P = estimate.transfer.operation, estimate.group.ranks
    bound: Real = 0.0
    for known in study.algorithms(operation):
        if known.name == "lower_bound":
            bound = known.seconds(operation, estimate.sent, estimate.group)
    if estimate.transfer.bisection is not None:
        cut = bisection(operation, estimate.sent, P, estimate.transfer.bisection)
        bound = maximum(bound, cut)
    return bound
