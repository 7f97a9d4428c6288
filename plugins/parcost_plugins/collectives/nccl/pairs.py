"""The time of every pair of algorithm and protocol, as the library predicts it."""

from __future__ import annotations

from parcost import Group, Mask, Real
from parcost.numeric import INFINITY, floor_log2, maximum, minimum, ratio, where
from parcost_plugins.collectives.nccl.machine import Machine, RankSpread
from parcost_plugins.vocabulary import ProtocolTuning

_GATHERS = ("all_gather", "reduce_scatter")
_PROTOCOLS = ("ll", "ll128", "simple")


def pairs(machine: Machine, operation: str, n: Real, group: Group) -> dict[str, Real]:
    """Return seconds by pair; infinity where the library does not offer it."""
    placed = RankSpread.of(group)
    found: dict[str, Real] = {}
    for protocol in _PROTOCOLS:
        if protocol == "ll128" and placed.path != "nvlink":
            continue
        found[f"ring_{protocol}"] = _ring(machine, placed, operation, n, protocol)
        if operation == "all_reduce":
            found[f"tree_{protocol}"] = _tree(machine, placed, n, protocol)
    if operation == "all_reduce" or operation in _GATHERS:
        found["nvls"] = _nvls(machine, placed, operation, n)
        found["collnet_direct"] = _collnet_direct(machine, placed, operation, n)
    if operation == "all_reduce":
        found["nvls_tree"] = _nvls_tree(machine, placed, n)
        found["collnet_chain"] = _collnet_chain(machine, placed, n)
    if operation in _GATHERS:
        found["pat"] = _pat(machine, placed, n)
    return {  # one rank sends nothing
        name: where(placed.ranks > 1, seconds, 0.0)
        for name, seconds in found.items()
        if not (isinstance(seconds, float) and seconds == INFINITY)
    }


def _ring(machine: Machine, placed: RankSpread, operation: str, n: Real, protocol: str) -> Real:
    P, nodes, table = placed.ranks, placed.nodes, machine.table
    row = machine.protocol(f"ring_{protocol}")
    steps = {"all_reduce": 2 * (P - 1), "broadcast": P, "reduce": P}.get(operation, P - 1)
    bus = machine.channels * _channel(machine, placed)
    if protocol == "ll":
        bus = minimum(bus * table.ring_ll, _ll_cap(machine, placed))
    elif protocol == "ll128":
        bus = minimum(bus * table.ring_ll128, machine.channels * machine.generation.ring_ll128)
    inside = _inside(row, placed)
    # a card per rank serves rings and trees alike, and the library takes the tree's row
    lone = machine.protocol(f"tree_{protocol}")
    outside = where(
        placed.local <= 1,
        _network_seconds(machine, lone, protocol),
        _network_seconds(machine, row, protocol),
    )
    if operation in ("broadcast", "reduce"):
        latency = row.base + where(nodes > 1, outside, inside)
        return _copy_time(latency, n * steps / P, bus)
    crossings = (2.0 if operation == "all_reduce" else 1.0) * (nodes - 1)
    factor = table.simple_overhead if protocol == "simple" else 1.0
    overhead = placed.beyond_one_node(machine.host.overhead * factor)
    latency = row.base + _total_time(steps - crossings, maximum(inside, overhead))
    latency = latency + _total_time(crossings, outside)
    if protocol == "simple" and operation == "all_reduce":
        long = (nodes > 1) & (n / (machine.channels * P) >= table.long_message)
        latency = latency * where(long, machine.generation.long_ring, 1.0)
    return _copy_time(latency, n * steps / P, bus)


def _tree(machine: Machine, placed: RankSpread, n: Real, protocol: str) -> Real:
    table, generation = machine.table, machine.generation
    row = machine.protocol(f"tree_{protocol}")
    channels = machine.channels
    cap = placed.by_nodes(
        generation.tree_one_node, generation.tree_two_nodes, generation.tree_more_nodes
    )
    bus = minimum(channels * _channel(machine, placed) * table.tree, channels * cap)
    if protocol == "ll":
        bus = minimum(bus * table.tree_ll, _ll_cap(machine, placed))
    elif protocol == "ll128":
        share = placed.by_nodes(
            table.tree_ll128_one_node, table.tree_ll128_more_nodes, table.tree_ll128_more_nodes
        )
        cap = placed.by_nodes(
            generation.tree_ll128_one_node,
            generation.tree_ll128_two_nodes,
            generation.tree_ll128_more_nodes,
        )
        bus = minimum(bus * share, channels * cap)
    corrected = bus / 2 * _correction(machine, n, protocol)
    steps = _total_time(placed.local - 1, _inside(row, placed))
    steps = steps + _total_time(floor_log2(placed.nodes), _network_seconds(machine, row, protocol))
    return _copy_time(row.base + 2 * steps, n, corrected)


def _nvls(machine: Machine, placed: RankSpread, operation: str, n: Real) -> Real:
    if not _multicasts(machine, placed):
        return INFINITY
    P, row = placed.ranks, machine.protocol("nvls")
    spread = 2.0 if operation == "all_reduce" else (placed.local - 1) / placed.local
    inside = _nvls_channel(machine) * spread
    channel = where(placed.nodes > 1, minimum(inside, machine.inter), inside)
    bus = machine.channels * channel
    bandwidth = bus * P / (2 * maximum(P - 1, 1.0)) if operation == "all_reduce" else bus
    latency = _inside(row, placed) + placed.beyond_one_node(
        _network_seconds(machine, row, "simple")
    )
    offered = (placed.nodes <= 1) | machine.collnet
    return _offered_seconds(offered, _copy_time(latency, n, bandwidth))


def _nvls_tree(machine: Machine, placed: RankSpread, n: Real) -> Real:
    if not _multicasts(machine, placed):
        return INFINITY
    P, generation, row = placed.ranks, machine.generation, machine.protocol("nvls_tree")
    inside = _nvls_channel(machine) * 2
    outside = machine.inter * where(placed.nodes <= 2, 2.0, 1.0)
    cap = placed.by_nodes(0.0, generation.nvls_tree_two_nodes, generation.nvls_tree_more_nodes)
    bus = machine.channels * minimum(minimum(inside, outside), cap)
    bandwidth = bus * P / (2 * maximum(P - 1, 1.0))
    if generation.nvls_tree_corrected and machine.host.nvls_tree_corrected:
        bandwidth = bandwidth * _correction(machine, n, "simple")
    latency = row.base + _inside(row, placed)
    latency = latency + _total_time(
        2 * floor_log2(placed.nodes), _network_seconds(machine, row, "simple")
    )
    return _copy_time(latency, n, bandwidth)


def _collnet_direct(machine: Machine, placed: RankSpread, operation: str, n: Real) -> Real:
    if not machine.collnet:
        return INFINITY
    table, local, row = machine.table, placed.local, machine.protocol("collnet_direct")
    if operation == "all_reduce":
        crowd = local / machine.channels
        crowd = crowd - (crowd - 1) / 2
        bus = machine.channels * machine.intra / crowd * machine.generation.collnet
        bandwidth = bus / 2
    else:
        bandwidth = local * minimum(machine.intra, table.collnet_network * machine.inter)
    peers = _total_time(minimum(local - 1, 1.0), _inside(row, placed))
    latency = row.base + 2 * (peers + table.collnet_direct_peer * (local - 1))
    latency = latency + _network_seconds(machine, row, "simple")
    return _offered_seconds(placed.nodes > 1, _copy_time(latency, n, bandwidth))


def _collnet_chain(machine: Machine, placed: RankSpread, n: Real) -> Real:
    if not machine.collnet:
        return INFINITY
    row = machine.protocol("collnet_chain")
    latency = row.base + _total_time(2 * (placed.local - 1), _inside(row, placed))
    latency = latency + _network_seconds(machine, row, "simple")
    return _offered_seconds(
        placed.nodes > 1, _copy_time(latency, n, machine.channels * machine.intra / 2)
    )


def _pat(machine: Machine, placed: RankSpread, n: Real) -> Real:
    table, row = machine.table, machine.protocol("pat")
    steps = (
        _total_time(floor_log2(placed.nodes), _network_seconds(machine, row, "simple"))
        / table.pat_steps
    )
    latency = row.base + steps + table.pat_rank * placed.ranks
    bandwidth = machine.channels * _channel(machine, placed) * table.pat
    return _offered_seconds(
        (placed.local <= 1) & (placed.nodes > 1), _copy_time(latency, n, bandwidth)
    )


def _copy_time(latency: Real, n: Real, bandwidth: Real) -> Real:
    """Return the time of *n* bytes; a table that gives a pair no bandwidth does not offer it."""
    return where(bandwidth > 0, latency + ratio(n, bandwidth), INFINITY)


def _total_time(times: Real, step: Real) -> Real:
    """Return the time of so many steps: none takes nothing, also where one takes for ever."""
    return where(times > 0, times * step, 0.0)


def _offered_seconds(offered: Mask, seconds: Real) -> Real:
    return where(offered, seconds, INFINITY)


def _channel(machine: Machine, placed: RankSpread) -> Real:
    """Return the bandwidth of one channel of rings and trees."""
    return where(placed.nodes <= 2, machine.intra, machine.inter)


def _nvls_channel(machine: Machine) -> Real:
    """Return what NVLS makes of a channel, of which one is kept for the reduction."""
    channels = machine.channels
    return machine.intra * machine.generation.nvls_efficiency * (channels - 1) / channels


def _multicasts(machine: Machine, placed: RankSpread) -> bool:
    row = machine.protocol("nvls")
    generation = machine.generation.nvls_efficiency
    return placed.reduces and placed.path == "nvlink" and row.nvlink is not None and generation != 0


def _ll_cap(machine: Machine, placed: RankSpread) -> Real:
    host = machine.host
    return placed.by_nodes(machine.generation.ll_one_node, host.ll_two_nodes, host.ll_more_nodes)


def _inside(row: ProtocolTuning, placed: RankSpread) -> Real:
    step = row.pcie if placed.path == "pcie" else row.nvlink
    return INFINITY if step is None else step


def _network_seconds(machine: Machine, row: ProtocolTuning, protocol: str) -> Real:
    step = INFINITY if row.network is None else row.network
    cards = machine.table.simple_ports if protocol == "simple" else 1.0
    return step + machine.card_latency * cards


def _correction(machine: Machine, n: Real, protocol: str) -> Real:
    """Return the factor on a tree's bandwidth, which changes at powers of two of *n*."""
    table = machine.table
    percent = {
        "ll": table.tree_ll_correction,
        "ll128": table.tree_ll128_correction,
        "simple": table.tree_simple_correction,
    }[protocol]
    place = floor_log2(maximum(n / table.correction_from, 1.0))
    factor: Real = 1.0
    for i, value in enumerate(percent):
        factor = where(place == i, value / 100, factor)
    return factor
