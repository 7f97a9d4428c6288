"""What a pipeline can never beat: how long devices are at work, and what that bounds."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

from parcost.evaluation.replay import Hop, Plan, hops_of
from parcost.evaluation.select import total
from parcost.numeric import Real, maximum, minimum
from parcost.terms import Times


def lower_bound(plan: Plan, times: Times, hop: Hop, micro_batches: Real | None = None) -> Real:
    """Return seconds that the makespan is never below.

    Without a better one of the schedule it is the longest of the way of one micro-batch
    through all stages, and of what each device does: a first micro-batch has to reach
    it, and a last gradient has to leave.
    """
    better = getattr(plan.schedule, "lower_bound", None)
    if better is not None:
        p, v = plan.pipeline.stages, plan.pipeline.chunks
        m = plan.pipeline.micro_batches if micro_batches is None else micro_batches
        return better(times, reduce(minimum, hops_of(hop)), p, m, v)  # type: ignore[no-any-return]
    orders = [order for _, order in plan.orders]
    fused = all(order.fused for order in orders)
    way = [b + w for b, w in zip(times.B, times.W, strict=True)] if fused else times.B
    longest = total(f + b for f, b in zip(times.F, way, strict=True))
    for d, end in enumerate(ends(plan, times, micro_batches)):
        longest = maximum(longest, end + total(way[: min(order.last[d] for order in orders)]))
    return longest


def ends(plan: Plan, times: Times, micro_batches: Real | None = None) -> Sequence[Real]:
    """Return seconds before which no device is done: a first micro-batch has to reach it."""
    firsts = [min(order.first[d] for _, order in plan.orders) for d in range(len(plan.held))]
    own = busy(plan, times, micro_batches)
    return [total(times.F[:first]) + seconds for first, seconds in zip(firsts, own, strict=True)]


def busy(plan: Plan, times: Times, micro_batches: Real | None = None) -> Sequence[Real]:
    """Return the seconds that each device is at work.

    With more *micro_batches* than the plan's it is at least that long: every forward pass
    that is added runs in a pair, if any does. With fewer, no pair is taken to be lost.
    """
    m, found = plan.pipeline.micro_batches, []
    more: Real = 0.0
    if micro_batches is not None:
        m, more = micro_batches, maximum(micro_batches - m, 0.0)
    for d, held in enumerate(plan.held):
        own: Real = 0.0
        forwards = sum(plan.shares[k] for k in held)
        for k in held:
            x = plan.stage[k]
            own = own + plan.shares[k] * (times.F[x] + times.B[x] + times.W[x])
        own = m * own
        most: Real = 0.0
        stages = {plan.stage[k] for k in held}
        for x, y in (pair for pair in plan.pairs if stages.issuperset(pair)):
            saved = times.F[x] + times.B[y] + times.W[y] - times.pair(x, y)
            own = own - plan.paired(d, x, y) * saved
            most = maximum(most, saved)
        own = own - more * forwards * most
        found.append(own)
    return found
