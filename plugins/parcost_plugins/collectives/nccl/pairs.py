"""The time of every pair of algorithm and protocol, as the library predicts it.

The time is the sum of one call, steps within a node and between nodes, and the bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from parcost import Group, Mask, Real, record
from parcost.numeric import INFINITY, floor_log2, maximum, minimum, where
from parcost_plugins.collectives.nccl.machine import Machine, RankSpread

_GATHERS = ("all_gather", "reduce_scatter")
_COPIES = ("broadcast", "reduce")
_FEWEST_OF_NVLS = 2  # NCCL, src/transport/nvls.cc, ncclNvlsInit: `gpuCount <= 2` has none
#: The operations of each algorithm, and so of its pairs.
OPERATIONS: Mapping[str, frozenset[str]] = {
    "ring_ll": frozenset({"all_reduce", *_GATHERS, *_COPIES}),
    "ring_ll128": frozenset({"all_reduce", *_GATHERS, *_COPIES}),
    "ring_simple": frozenset({"all_reduce", *_GATHERS, *_COPIES}),
    "tree_ll": frozenset({"all_reduce"}),
    "tree_ll128": frozenset({"all_reduce"}),
    "tree_simple": frozenset({"all_reduce"}),
    "nvls": frozenset({"all_reduce", *_GATHERS}),
    "nvls_tree": frozenset({"all_reduce"}),
    "collnet_direct": frozenset({"all_reduce", *_GATHERS}),
    "collnet_chain": frozenset({"all_reduce"}),
    "pat": frozenset(_GATHERS),
}


@record(kw_only=True, eq=False)
class PairCost:
    """The cost of one call with a pair (algorithm, protocol) of NCCL, if the pair is *supported*.

    The call starts after *call* seconds. It has *steps* steps of *step* seconds in a node, and
    *crossings* steps of *crossing* seconds between nodes. Its *bytes_* are sent at *bandwidth*. A
    rank adds *reduced* bytes, which the library counts as part of the copy.
    """

    call: Real
    bytes_: Real
    bandwidth: Real
    steps: Real = 0.0
    step: Real = 0.0
    crossings: Real = 0.0
    crossing: Real = 0.0
    supported: Mask = True
    reduced: Real = 0.0

    @property
    def runs(self) -> Mask:
        """Whether NCCL supports the pair, and all its steps have finite latency."""
        known = ((self.steps <= 0) | (self.step < INFINITY)) & (
            (self.crossings <= 0) | (self.crossing < INFINITY)
        )
        return self.supported & known & (self.bandwidth > 0)

    def phase_seconds(self, group: Group) -> Real:
        """Return the seconds of the call on *group*, as the sum over its phases.

        It is equal to the time of the phases, without building a link for each.
        """
        one = where(group.ranks > 1, 1.0, 0.0)
        step = where(self.steps > 0, self.step, 0.0)
        crossing = where(self.crossings > 0, self.crossing, 0.0)
        bandwidth = where(self.bandwidth > 0, self.bandwidth, 1.0)
        start = self.call * one + self.steps * one * step
        sent = self.crossings * one * crossing + self.bytes_ * one / bandwidth
        return start + sent + group.reduction * (self.reduced * one)

    @property
    def seconds(self) -> Real:
        """The seconds of the call; infinity if it cannot run."""
        start = self.call + _total_time(self.steps, self.step)
        start = start + _total_time(self.crossings, self.crossing)
        bandwidth = where(self.bandwidth > 0, self.bandwidth, 1.0)
        return where(self.runs, start + self.bytes_ / bandwidth, INFINITY)


#: The cost of a pair that is supported at no point; a single rank then takes no time.
_NOTHING = PairCost(call=0.0, bytes_=0.0, bandwidth=1.0, supported=False)


def pairs(machine: Machine, operation: str, n: Real, group: Group) -> dict[str, Real]:
    """Return the seconds of each pair; infinity if the library does not offer it."""
    spread = RankSpread.from_group(group)
    found: dict[str, Real] = {}
    for name, operations in OPERATIONS.items():
        if operation in operations:
            seconds = pair_cost(name, machine, spread, operation, n).seconds
            if not (isinstance(seconds, float) and seconds == INFINITY):
                found[name] = where(spread.ranks > 1, seconds, 0.0)
    return found


def pair_cost(name: str, machine: Machine, spread: RankSpread, operation: str, n: Real) -> PairCost:
    """Return the cost of the pair *name* for *n* bytes."""
    algorithm, _, protocol = name.partition("_")
    if algorithm == "ring":
        return _ring(machine, spread, operation, n, protocol)
    if algorithm == "tree":
        return _tree(machine, spread, n, protocol)
    return _OTHERS[name](machine, spread, operation, n)


def _ring(machine: Machine, spread: RankSpread, operation: str, n: Real, protocol: str) -> PairCost:
    P, nodes, table = spread.ranks, spread.nodes, machine.table
    supported = _crosses(machine, spread, protocol)
    if supported is False:
        return _NOTHING
    row = machine.protocol(f"ring_{protocol}")
    steps = P if operation in _COPIES else P - 1
    if operation == "all_reduce":
        steps = 2 * (P - 1)
    bus = machine.channels * machine.ring_channel(spread, operation)
    if protocol == "ll":
        bus = minimum(bus * table.ring_ll, _ll_cap(machine, spread))
    elif protocol == "ll128":
        bus = minimum(bus * table.ring_ll128, machine.channels * machine.generation.ring_ll128)
    inside, outside = machine.inside(row, spread), machine.outside(row, protocol)
    if table.lone_as_tree:  # a card per rank serves rings and trees alike
        lone = machine.outside(machine.protocol(f"tree_{protocol}"), protocol)
        outside = where(spread.local <= 1, lone, outside)
    if operation in _COPIES:
        return PairCost(
            call=row.base + machine.start,
            steps=where(nodes > 1, 0.0, 1.0),
            step=inside,
            crossings=where(nodes > 1, 1.0, 0.0),
            crossing=outside,
            bytes_=n * steps / P,
            bandwidth=bus,
            supported=supported,
            reduced=n if operation == "reduce" else 0.0,
        )
    crossings = (2.0 if operation == "all_reduce" else 1.0) * (nodes - 1)
    if operation == "all_reduce":
        crossings = crossings + spread.beyond_one_node(table.extra_crossings)
    crossings = minimum(crossings, steps)
    reduced = 0.0 if operation == "all_gather" else n * (P - 1) / P
    overhead = machine.host.overhead * (table.simple_overhead if protocol == "simple" else 1.0)
    slowed: Real = 1.0  # all of the start-up of a long message
    if protocol == "simple" and operation == "all_reduce":
        long = (nodes > 1) & (n / (machine.channels * P) >= table.long_message)
        slowed = where(long, machine.generation.long_ring, 1.0)
    return PairCost(
        call=row.base * slowed + machine.start,
        steps=steps - crossings,
        step=maximum(inside, spread.beyond_one_node(overhead)) * slowed,
        crossings=crossings,
        crossing=outside * slowed,
        bytes_=n * steps / P,
        bandwidth=bus,
        supported=supported,
        reduced=reduced,
    )


def _tree(machine: Machine, spread: RankSpread, n: Real, protocol: str) -> PairCost:
    table, generation, channels = machine.table, machine.generation, machine.channels
    supported = _crosses(machine, spread, protocol)
    if supported is False:
        return _NOTHING
    row = machine.protocol(f"tree_{protocol}")
    cap = spread.by_nodes(
        generation.tree_one_node, generation.tree_two_nodes, generation.tree_more_nodes
    )
    bus = minimum(channels * machine.tree_channel(spread) * table.tree, channels * cap)
    if protocol == "ll":
        bus = minimum(bus * table.tree_ll, _ll_cap(machine, spread))
    elif protocol == "ll128":
        share = spread.by_nodes(
            table.tree_ll128_one_node, table.tree_ll128_more_nodes, table.tree_ll128_more_nodes
        )
        cap = spread.by_nodes(
            generation.tree_ll128_one_node,
            generation.tree_ll128_two_nodes,
            generation.tree_ll128_more_nodes,
        )
        bus = minimum(bus * share, channels * cap)
    return PairCost(
        call=row.base + machine.start,
        steps=2 * (spread.local - 1),
        step=machine.inside(row, spread),
        crossings=2 * floor_log2(maximum(spread.nodes, 1.0)),
        crossing=machine.outside(row, protocol),
        bytes_=n,
        bandwidth=bus / 2 * machine.correction(protocol, n),
        supported=supported,
        reduced=n,
    )


def _nvls(machine: Machine, spread: RankSpread, operation: str, n: Real) -> PairCost:
    supported = _multicasts(machine, spread) & ((spread.nodes <= 1) | machine.collnet)
    if supported is False:
        return _NOTHING
    row = machine.protocol("nvls")
    outside = where(spread.nodes > 1, machine.inter, INFINITY)
    return PairCost(
        call=machine.start,
        steps=1.0,
        step=machine.inside(row, spread),
        crossings=spread.beyond_one_node(1.0),
        crossing=machine.outside(row, "simple"),
        bytes_=n,
        bandwidth=machine.nvls_rate(spread, operation, outside, INFINITY),
        supported=supported,
    )


def _nvls_tree(machine: Machine, spread: RankSpread, operation: str, n: Real) -> PairCost:
    supported = _multicasts(machine, spread) & (spread.nodes > 1)
    if supported is False:
        return _NOTHING
    generation, row = machine.generation, machine.protocol("nvls_tree")
    outside = machine.inter * where(spread.nodes <= 2, 2.0, 1.0)
    cap = spread.by_nodes(0.0, generation.nvls_tree_two_nodes, generation.nvls_tree_more_nodes)
    bandwidth = machine.nvls_rate(spread, operation, outside, cap)
    if generation.nvls_tree_corrected and machine.host.nvls_tree_corrected:
        bandwidth = bandwidth * machine.correction("simple", n)
    return PairCost(
        call=row.base + machine.start,
        steps=1.0,
        step=machine.inside(row, spread),
        crossings=2 * floor_log2(maximum(spread.nodes, 1.0)),
        crossing=machine.outside(row, "simple"),
        bytes_=n,
        bandwidth=bandwidth,
        supported=supported,
    )


def _collnet_direct(machine: Machine, spread: RankSpread, operation: str, n: Real) -> PairCost:
    supported = (spread.nodes > 1) & machine.collnet
    if supported is False:
        return _NOTHING
    table, local, row = machine.table, spread.local, machine.protocol("collnet_direct")
    if operation == "all_reduce":
        crowd = local / machine.channels
        crowd = crowd - (crowd - 1) / 2
        bandwidth = machine.channels * machine.intra / crowd * machine.generation.collnet / 2
    else:
        bandwidth = local * minimum(machine.intra, table.collnet_network * machine.inter)
    return PairCost(
        call=machine.start + row.base + 2 * table.collnet_direct_peer * (local - 1),
        steps=2 * minimum(local - 1, 1.0),
        step=machine.inside(row, spread),
        crossings=1.0,
        crossing=machine.outside(row, "simple"),
        bytes_=n,
        bandwidth=machine.collnet_rate(bandwidth),
        supported=supported,
    )


def _collnet_chain(machine: Machine, spread: RankSpread, operation: str, n: Real) -> PairCost:  # noqa: ARG001
    supported = (spread.nodes > 1) & machine.collnet
    if supported is False:
        return _NOTHING
    row = machine.protocol("collnet_chain")
    return PairCost(
        call=row.base + machine.start,
        steps=2 * (spread.local - 1),
        step=machine.inside(row, spread),
        crossings=1.0,
        crossing=machine.outside(row, "simple"),
        bytes_=n,
        bandwidth=machine.collnet_rate(machine.channels * machine.intra / 2),
        supported=supported,
    )


def _pat(machine: Machine, spread: RankSpread, operation: str, n: Real) -> PairCost:  # noqa: ARG001
    supported = (spread.local <= 1) & (spread.nodes > 1)
    if supported is False:
        return _NOTHING
    table, row = machine.table, machine.protocol("pat")
    return PairCost(
        call=machine.start + row.base + table.pat_rank * spread.ranks,
        crossings=floor_log2(maximum(spread.nodes, 1.0)),
        crossing=machine.outside(row, "simple") / table.pat_steps,
        bytes_=n,
        bandwidth=machine.channels * machine.ring_channel(spread) * table.pat,
        supported=supported,
    )


_OTHERS: Mapping[str, Callable[[Machine, RankSpread, str, Real], PairCost]] = {
    "nvls": _nvls,
    "nvls_tree": _nvls_tree,
    "collnet_direct": _collnet_direct,
    "collnet_chain": _collnet_chain,
    "pat": _pat,
}


def _total_time(times: Real, step: Real) -> Real:
    """Return the seconds of *times* steps; 0 for no steps, even if a step is infinite."""
    return times * where(times > 0, step, 0.0)


def _crosses(machine: Machine, spread: RankSpread, protocol: str) -> Mask:
    """Return whether a protocol supports the links of the group; LL128 does not support PCIe."""
    supported = (spread.nodes <= 1) | machine.crosses(protocol)
    return supported & (spread.pcie ^ True) if protocol == "ll128" else supported


def _multicasts(machine: Machine, spread: RankSpread) -> Mask:
    """Return whether NVLS is available: switches that reduce, and at least three ranks per node."""
    row = machine.protocol("nvls")
    able = spread.reduces and row.nvlink is not None and machine.generation.nvls_efficiency != 0
    return (spread.pcie ^ True) & (spread.local > _FEWEST_OF_NVLS) & able


def _ll_cap(machine: Machine, spread: RankSpread) -> Real:
    host = machine.host
    return spread.by_nodes(machine.generation.ll_one_node, host.ll_two_nodes, host.ll_more_nodes)


def fastest_seconds(costs: Mapping[str, Real]) -> Real:
    """Return the smallest of the times of pairs."""
    best: Real = INFINITY
    for seconds in costs.values():
        best = minimum(best, seconds)
    return best


__all__ = ["OPERATIONS", "PairCost", "fastest_seconds", "pair_cost", "pairs"]
