"""Lower bounds of a pipeline's makespan, from the busy time of each device."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import reduce
from itertools import accumulate
from typing import Any, TypeAlias

from parcost.contract.pipelines import Times
from parcost.contract.queries import key_of
from parcost.engine.maxima import total
from parcost.engine.replay import Hop, PipelinePlan, hops_of
from parcost.engine.schedule_calls import case_of
from parcost.engine.schedule_calls import lower_bound as better
from parcost.numeric import Real, maximum, minimum

_Doings: TypeAlias = Sequence[tuple[Real, tuple[Real, ...]]]  # how often, and seconds


def lower_bound(
    plan: PipelinePlan,
    times: Times,
    hop: Hop,
    micro_batches: Real | None = None,
    alike: Sequence[int] = (),
) -> Real:
    """Return a lower bound of the makespan in seconds; see :func:`case_of` for *alike*.

    Without a bound of the schedule, it is the maximum of two times. One is the time of a
    micro-batch through all stages. The other is the work of each device, plus the time before its
    first micro-batch and after its last gradient.
    """
    case = case_of(plan.pipeline, times, reduce(minimum, hops_of(hop)), micro_batches, alike)
    if (found := better(plan.schedule, case)) is not None:
        return found
    orders = [order for _, order in plan.orders]
    fused = all(order.fused for order in orders)
    way = [b + w for b, w in zip(times.B, times.W, strict=True)] if fused else times.B
    alike_ways = _count_alike((1.0, pair) for pair in zip(times.F, way, strict=True))
    longest = total(n * (f + b) for n, (f, b) in alike_ways)
    last = [min(order.last[d] for order in orders) for d in range(len(plan.held))]
    after = _so_far(way[: max(last)])
    for end, x in zip(ends(plan, times, micro_batches), last, strict=True):
        longest = maximum(longest, end + after[x])
    return longest


def ends(plan: PipelinePlan, times: Times, micro_batches: Real | None = None) -> Sequence[Real]:
    """Return the earliest end of each device in seconds: the first arrival plus all of its work."""
    firsts = [min(order.first[d] for _, order in plan.orders) for d in range(len(plan.held))]
    own, before = device_seconds(plan, times, micro_batches), _so_far(times.F[: max(firsts)])
    return [before[first] + seconds for first, seconds in zip(firsts, own, strict=True)]


def _so_far(seconds: Sequence[Real]) -> Sequence[Real]:
    """Return the cumulative sums of *seconds*, from 0 on."""
    start: Real = 0.0
    return list(accumulate(seconds, initial=start))


def _count_alike(doings: Iterable[tuple[Real, tuple[Real, ...]]]) -> _Doings:
    """Merge passes with equal seconds into one, with the sum of their counts."""
    found: dict[tuple[int, ...], tuple[Real, tuple[Real, ...]]] = {}
    for often, seconds in doings:
        key = tuple(map(id, seconds))
        found[key] = (found[key][0] + often if key in found else often), seconds
    return list(found.values())


def device_seconds(
    plan: PipelinePlan, times: Times, micro_batches: Real | None = None
) -> Sequence[Real]:
    """Return the busy time of each device in seconds.

    With more *micro_batches* than in the plan it is a lower bound: all added forward passes are
    assumed to run in pairs, if the plan has pairs. With fewer micro-batches, all pairs are assumed
    to remain.
    """
    m = plan.pipeline.micro_batches
    more: Real = 0.0
    if micro_batches is not None:
        m, more = micro_batches, maximum(micro_batches - m, 0.0)
    known: dict[Any, tuple[_Doings, _Doings, Real]] = {}  # many devices are alike
    found = []
    for d, held in enumerate(plan.held):
        passes: _Doings = [
            (plan.shares[k], (times.F[x], times.B[x], times.W[x]))
            for k, x in ((k, plan.stage[k]) for k in held)
        ]
        if micro_batches is not None:
            passes = _count_alike(passes)
        stages = {plan.stage[k] for k in held}
        pairs: _Doings = [
            (plan.pair_count(d, x, y), (times.F[x], times.B[y], times.W[y], times.pair(x, y)))
            for x, y in plan.pairs
            if stages.issuperset((x, y))
        ]
        alike = tuple(
            tuple((key_of(often), *map(id, seconds)) for often, seconds in row)
            for row in (passes, pairs)
        )
        if alike not in known:
            known[alike] = passes, pairs, _seconds(m, more, passes, pairs)
        found.append(known[alike][-1])
    return found


def _seconds(m: Real, more: Real, passes: _Doings, pairs: _Doings) -> Real:
    """Return the seconds that *m* micro-batches spend in *passes*, minus the savings of *pairs*."""
    own: Real = 0.0
    for share, (f, b, w) in passes:
        own = own + share * (f + b + w)
    own = m * own
    most: Real = 0.0
    for often, (f, b, w, together) in pairs:
        saved = f + b + w - together
        own = own - often * saved
        most = maximum(most, saved)
    return own - more * total(share for share, _ in passes) * most
