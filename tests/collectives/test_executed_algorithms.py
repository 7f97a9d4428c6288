"""Every algorithm is run on small arrays: its rounds, its bytes and its result.

Ranks are rows of an array. A network passes messages in rounds, lets every rank send and
receive one message at a time, and counts rounds and the bytes of the busiest port. Every
rank must end with the right data, and the counts must be those that the plugin charges.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pytest
from attrs import define, frozen

from parcost import Group, Link
from parcost_plugins.collectives.bruck import Bruck
from parcost_plugins.collectives.direct import Direct
from parcost_plugins.collectives.double_tree import DoubleTree
from parcost_plugins.collectives.halving_doubling import HalvingDoubling
from parcost_plugins.collectives.hierarchical import Hierarchical
from parcost_plugins.collectives.leader import LeaderAllReduce, LeaderReduce
from parcost_plugins.collectives.naive import Linear, Naive
from parcost_plugins.collectives.pairwise import Pairwise
from parcost_plugins.collectives.pipelined import HierarchicalPipelined
from parcost_plugins.collectives.recursive_doubling import RecursiveDoubling
from parcost_plugins.collectives.ring import Ring
from parcost_plugins.collectives.tree import Tree
from parcost_plugins.collectives.van_de_geijn import VanDeGeijn

from ..rows import try_each

RANKS = [2, 3, 4, 5, 6, 7, 8, 9, 12, 16]
POWERS = [2, 4, 8, 16]
SHAPES = [(2, 2), (2, 3), (3, 2), (4, 2), (2, 4), (3, 3), (4, 3), (3, 4), (4, 4), (1, 5), (5, 1)]


# --- what the plugins charge ----------------------------------------------------------


@frozen(kw_only=True)
class Meter(Link):
    """A link that counts rounds or bytes in place of seconds."""

    name: str = "meter"
    latency: float
    bandwidth: float = 1.0
    of_rounds: int
    of_bytes: int

    def seconds(self, rounds: Any, bytes_: Any) -> Any:
        return self.of_rounds * rounds + self.of_bytes * bytes_


def sum_messages(algorithm: Any, operation: str, n: int, *shape: int, latency: float = 1.0) -> Any:
    """Return the bytes that *algorithm* charges for adding."""
    links = tuple(Meter(latency=latency, of_rounds=0, of_bytes=0) for _ in shape)
    ranks = float(np.prod(shape))
    sizes = tuple(map(float, shape))
    group = Group(name="g", ranks=ranks, shape=sizes, links=links, reduction=1.0)
    return algorithm.seconds(operation, float(n), group)


def price(algorithm: Any, operation: str, n: int, *shape: int, latency: float = 1.0) -> Any:
    """Return (rounds, bytes), per level where *shape* has several."""

    def count(level: int, *, of_rounds: int, of_bytes: int) -> Any:
        links = tuple(
            Meter(latency=latency, of_rounds=of_rounds * here, of_bytes=of_bytes * here)
            for here in (i == level for i in range(len(shape)))
        )
        ranks = float(np.prod(shape))
        group = Group(name="g", ranks=ranks, shape=tuple(map(float, shape)), links=links)
        return algorithm.seconds(operation, float(n), group)

    counts = [
        (count(level, of_rounds=1, of_bytes=0), count(level, of_rounds=0, of_bytes=1))
        for level in range(len(shape))
    ]
    return counts if len(shape) > 1 else counts[0]


# --- the machine ------------------------------------------------------------------------


@define
class Network:
    """Passes messages; a rank has one port out and one port in."""

    rounds: int = 0
    bytes_: int = 0
    added: int = 0

    def exchange(self, messages: Mapping[Any, Any], *, adds: bool = False) -> Any:
        """Deliver {(from, to): array} in one round, and return it; to be added, if it *adds*."""
        sources, targets = zip(*messages, strict=True)
        assert len(set(sources)) == len(sources), "a rank sends two messages at once"
        assert len(set(targets)) == len(targets), "a rank receives two messages at once"
        self.rounds += 1
        longest = max(np.size(payload) for payload in messages.values())
        self.bytes_ += longest
        self.added += longest * adds
        return {pair: np.array(payload) for pair, payload in messages.items()}.items()

    @property
    def counts(self) -> tuple[int, int]:
        return self.rounds, self.bytes_


def inputs(ranks: int, blocks: int, size: int = 2) -> Any:
    """Return [rank, block, element], all different."""
    shape = (ranks, blocks, size)
    return np.random.default_rng(ranks).integers(0, 10**6, shape).astype(float)


def ring_reduce_scatter(net: Network, groups: list[list[int]], data: Any) -> None:
    """Leave block i summed at member i of each of *groups*, which run in lockstep."""
    P = len(groups[0])
    for step in range(P - 1):
        sent = {}
        for group in groups:
            for i, rank in enumerate(group):
                sent[rank, group[(i + 1) % P]] = data[rank, (i - step - 1) % P]
        for (source, target), block in net.exchange(sent, adds=True):
            at = next(group.index(source) for group in groups if source in group)
            data[target, (at - step - 1) % P] += block


def ring_all_gather(net: Network, groups: list[list[int]], data: Any) -> None:
    """Copy block i of member i to every member of each of *groups*."""
    P = len(groups[0])
    for step in range(P - 1):
        sent = {}
        for group in groups:
            for i, rank in enumerate(group):
                sent[rank, group[(i + 1) % P]] = data[rank, (i - step) % P]
        for (source, target), block in net.exchange(sent):
            at = next(group.index(source) for group in groups if source in group)
            data[target, (at - step) % P] = block


def chain(net: Network, chains: list[list[int]], data: Any) -> None:
    """Pass the pieces of the first of each of *chains* on to the last."""
    P, pieces = len(chains[0]), data.shape[1]
    for step in range(P - 2 + pieces):
        sent = {}
        for members in chains:
            for i in range(P - 1):
                if 0 <= step - i < pieces:
                    sent[members[i], members[i + 1]] = data[members[i], step - i]
        for (source, target), piece in net.exchange(sent):
            at = next(members.index(source) for members in chains if source in members)
            data[target, step - at] = piece


def halve(nets: list[Network], P: int, data: Any) -> None:
    """Leave block r summed at rank r: partners at distance 1, 2, 4, ... take halves."""
    blocks = np.arange(P)
    for bit, net in enumerate(nets):
        sent, theirs = {}, {}
        for rank in range(P):
            partner = rank ^ (1 << bit)
            low = (1 << bit) - 1
            theirs[rank] = blocks[
                ((blocks & low) == (rank & low)) & ((blocks >> bit & 1) != (rank >> bit & 1))
            ]
            sent[rank, partner] = data[rank, theirs[rank]]
        for (source, target), half in net.exchange(sent, adds=True):
            data[target, theirs[source]] += half


def double(nets: list[Network], P: int, data: Any) -> None:
    """Copy block r of rank r to all: partners at distance ..., 4, 2, 1 join what they have."""
    blocks = np.arange(P)
    for bit, net in reversed(list(enumerate(nets))):
        sent, mine = {}, {}
        for rank in range(P):
            low = (1 << (bit + 1)) - 1
            mine[rank] = blocks[(blocks & low) == (rank & low)]
            sent[rank, rank ^ (1 << bit)] = data[rank, mine[rank]]
        for (source, target), part in net.exchange(sent):
            data[target, mine[source]] = part


def merge(net: Network, P: int, q: int, data: Any) -> None:
    """Let the ranks above *q* hand their data to ranks below."""
    handed = {(q + i, i): data[q + i] for i in range(P - q)}
    for (_, target), whole in net.exchange(handed, adds=True):
        data[target] += whole


def return_result(net: Network, P: int, q: int, data: Any) -> None:
    """Let the ranks above *q* have the result."""
    for (_, target), whole in net.exchange({(i, q + i): data[i] for i in range(P - q)}):
        data[target] = whole


def largest_power(P: int) -> int:
    return 1 << (P.bit_length() - 1)


# --- the ring ------------------------------------------------------------------------------


@try_each("P", RANKS)
def test_a_ring_reduce_scatter_moves_what_it_charges(P: int) -> None:
    net, data = Network(), inputs(P, P)
    total = data.sum(axis=0)
    ring_reduce_scatter(net, [list(range(P))], data)
    assert all((data[r, r] == total[r]).all() for r in range(P))
    assert price(Ring(), "reduce_scatter", total.size, P) == pytest.approx(net.counts)
    assert sum_messages(Ring(), "reduce_scatter", total.size, P) == pytest.approx(net.added)


@try_each("P", RANKS)
def test_a_ring_all_gather_moves_what_it_charges(P: int) -> None:
    net, data = Network(), inputs(P, P)
    wanted = np.stack([data[r, r] for r in range(P)])
    ring_all_gather(net, [list(range(P))], data)
    assert (data == wanted).all()
    assert price(Ring(), "all_gather", wanted.size, P) == pytest.approx(net.counts)


@try_each("P", RANKS)
def test_a_ring_all_reduce_moves_what_it_charges(P: int) -> None:
    net, data = Network(), inputs(P, P)
    total = data.sum(axis=0)
    ring_reduce_scatter(net, [list(range(P))], data)
    ring_all_gather(net, [list(range(P))], data)
    assert (data == total).all()
    assert price(Ring(), "all_reduce", total.size, P) == pytest.approx(net.counts)
    assert sum_messages(Ring(), "all_reduce", total.size, P) == pytest.approx(net.added)


@try_each("P", RANKS)
@try_each("pieces", [1, 2, 5])
def test_a_pipelined_broadcast_moves_what_it_charges(P: int, pieces: int) -> None:
    if P == 2:
        pieces = 1  # a chain of two has nothing to overlap
    net, data = Network(), inputs(P, pieces)
    root = data[0].copy()
    chain(net, [list(range(P))], data)
    assert (data == root).all()
    latency = max(P - 2, 1) * root.size / pieces**2  # for which so many pieces are best
    assert price(Ring(), "broadcast", root.size, P, latency=latency) == pytest.approx(net.counts)


# --- trees and recursion ---------------------------------------------------------------------


def binomial(P: int) -> Iterator[list[tuple[int, int]]]:
    """Yield the rounds of a binomial broadcast: who sends to whom."""
    for exponent in range((P - 1).bit_length()):
        reach = 1 << exponent
        yield [(r, r + reach) for r in range(reach) if r + reach < P]


@try_each("P", RANKS)
def test_a_tree_broadcast_moves_what_it_charges(P: int) -> None:
    net, data = Network(), inputs(P, 1)
    root = data[0].copy()
    for pairs in binomial(P):
        for (_, target), whole in net.exchange({(a, b): data[a] for a, b in pairs}):
            data[target] = whole
    assert (data == root).all()
    assert price(Tree(), "broadcast", root.size, P) == net.counts


@try_each("P", RANKS)
def test_a_tree_all_reduce_moves_what_it_charges(P: int) -> None:
    net, data = Network(), inputs(P, 1)
    total = data.sum(axis=0)
    for pairs in reversed(list(binomial(P))):
        for (_, target), whole in net.exchange({(b, a): data[b] for a, b in pairs}, adds=True):
            data[target] += whole
    for pairs in binomial(P):
        for (_, target), whole in net.exchange({(a, b): data[a] for a, b in pairs}):
            data[target] = whole
    assert (data == total).all()
    assert price(Tree(), "all_reduce", total.size, P) == net.counts
    assert sum_messages(Tree(), "all_reduce", total.size, P) == net.added


@try_each("P", RANKS)
def test_halving_and_doubling_all_reduces_what_it_charges(P: int) -> None:
    q = largest_power(P)
    net, data = Network(), inputs(P, q)
    total = data.sum(axis=0)
    if q < P:
        merge(net, P, q, data)
    nets = [net] * (q.bit_length() - 1)
    halve(nets, q, data)
    double(nets, q, data)
    if q < P:
        return_result(net, P, q, data)
    assert (data == total).all()
    assert price(HalvingDoubling(), "all_reduce", total.size, P) == pytest.approx(net.counts)
    assert sum_messages(HalvingDoubling(), "all_reduce", total.size, P) == pytest.approx(net.added)


@try_each("P", POWERS)
def test_halving_and_doubling_are_a_reduce_scatter_and_an_all_gather(P: int) -> None:
    halves, doubles, data = Network(), Network(), inputs(P, P)
    total = data.sum(axis=0)
    halve([halves] * (P.bit_length() - 1), P, data)
    assert all((data[r, r] == total[r]).all() for r in range(P))
    double([doubles] * (P.bit_length() - 1), P, data)
    assert (data == total).all()
    algorithm, n = HalvingDoubling(), total.size
    assert price(algorithm, "reduce_scatter", n, P) == pytest.approx(halves.counts)
    assert sum_messages(algorithm, "reduce_scatter", n, P) == pytest.approx(halves.added)
    assert price(algorithm, "all_gather", n, P) == pytest.approx(doubles.counts)


@try_each("P", POWERS)
def test_a_broadcast_scatters_by_halving_and_gathers_by_doubling(P: int) -> None:
    net, data = Network(), inputs(P, P)
    root = data[0].copy()
    blocks = np.arange(P)
    for bit in range(P.bit_length() - 1):
        low = (1 << bit) - 1
        theirs = {
            rank: blocks[((blocks & low) == rank) & (blocks >> bit & 1 == 1)]
            for rank in range(1 << bit)
        }
        sent = {(r, r + (1 << bit)): data[r, theirs[r]] for r in theirs}
        for (source, target), half in net.exchange(sent):
            data[target, theirs[source]] = half
    double([net] * (P.bit_length() - 1), P, data)
    assert (data == root).all()
    assert price(HalvingDoubling(), "broadcast", root.size, P) == pytest.approx(net.counts)


@try_each("g, k", [(2, 2), (4, 2), (2, 4), (4, 4), (8, 2), (2, 8)])
def test_halving_crosses_an_outer_level_with_what_near_partners_left(g: int, k: int) -> None:
    near, far, data = Network(), Network(), inputs(g * k, g * k)
    total = data.sum(axis=0)
    nets = [near] * (g.bit_length() - 1) + [far] * (k.bit_length() - 1)
    halve(nets, g * k, data)
    double(nets, g * k, data)
    assert (data == total).all()
    expected = price(HalvingDoubling(), "all_reduce", total.size, g, k)
    assert np.array(expected) == pytest.approx(np.array([near.counts, far.counts]))


@try_each("P", RANKS)
def test_recursive_doubling_moves_what_it_charges(P: int) -> None:
    q = largest_power(P)
    net, data = Network(), inputs(P, 1)
    total = data.sum(axis=0)
    if q < P:
        merge(net, P, q, data)
    for bit in range(q.bit_length() - 1):
        swapped = {(r, r ^ (1 << bit)): data[r] for r in range(q)}
        for (_, target), whole in net.exchange(swapped, adds=True):
            data[target] += whole
    if q < P:
        return_result(net, P, q, data)
    assert (data == total).all()
    assert price(RecursiveDoubling(), "all_reduce", total.size, P) == net.counts
    assert sum_messages(RecursiveDoubling(), "all_reduce", total.size, P) == net.added


# --- Bruck, pairwise, point to point ----------------------------------------------------------


@try_each("P", RANKS)
def test_a_bruck_all_gather_moves_what_it_charges(P: int) -> None:
    net, data = Network(), inputs(P, 1)
    held = [[data[r, 0]] for r in range(P)]
    reach = 1
    while reach < P:
        count = min(reach, P - reach)
        sent = {(r, (r - reach) % P): np.array(held[r][:count]) for r in range(P)}
        for (_, target), blocks in net.exchange(sent):
            held[target] += list(blocks)
        reach *= 2
    for r in range(P):
        assert (np.roll(np.array(held[r]), r, axis=0) == data[:, 0]).all()
    assert price(Bruck(), "all_gather", data.size, P) == pytest.approx(net.counts)


@try_each("P", RANKS)
def test_a_bruck_all_to_all_moves_what_it_charges(P: int) -> None:
    net, data = Network(), inputs(P, P)
    held = np.stack([np.roll(data[r], -r, axis=0) for r in range(P)])
    reach = 1
    while reach < P:
        moved = [i for i in range(P) if i & reach]
        sent = {(r, (r + reach) % P): held[r, moved] for r in range(P)}
        for (_, target), blocks in net.exchange(sent):
            held[target, moved] = blocks
        reach *= 2
    for r in range(P):
        got = np.stack([held[r, (r - source) % P] for source in range(P)])
        assert (got == data[:, r]).all()
    assert price(Bruck(), "all_to_all", data[0].size, P) == pytest.approx(net.counts)


def pairwise(net: Network, groups: list[list[int]], data: Any, got: Any) -> None:
    """Send block j of member i to member j, who keeps it as block i."""
    P = len(groups[0])
    for group in groups:
        for i, rank in enumerate(group):
            got[rank, i] = data[rank, i]
    for step in range(1, P):
        sent = {
            (group[i], group[(i + step) % P]): data[group[i], (i + step) % P]
            for group in groups
            for i in range(P)
        }
        for (source, target), block in net.exchange(sent):
            at = next(group.index(source) for group in groups if source in group)
            got[target, at] = block


@try_each("P", RANKS)
def test_a_pairwise_all_to_all_moves_what_it_charges(P: int) -> None:
    net, data = Network(), inputs(P, P)
    got = np.zeros_like(data)
    pairwise(net, [list(range(P))], data, got)
    assert (got == data.swapaxes(0, 1)).all()
    assert price(Pairwise(), "all_to_all", data[0].size, P) == pytest.approx(net.counts)


def test_a_message_is_one_round_of_all_its_bytes() -> None:
    net, data = Network(), inputs(2, 1)
    net.exchange({(0, 1): data[0]})
    assert price(Direct(), "point_to_point", data[0].size, 2) == net.counts


# --- the hierarchy ------------------------------------------------------------------------------


@frozen
class Nodes:
    """*k* nodes of *g* ranks: the groups within nodes, and across them by local rank."""

    g: int
    k: int

    @property
    def within(self) -> list[list[int]]:
        return [[node * self.g + i for i in range(self.g)] for node in range(self.k)]

    @property
    def across(self) -> list[list[int]]:
        return [[node * self.g + i for node in range(self.k)] for i in range(self.g)]


def shards(data: Any, nodes: Nodes) -> tuple[Any, list[int]]:
    """Return each rank's shard of its node's blocks, as a view [rank, node, element]."""
    local = [rank % nodes.g for rank in range(len(data))]
    return np.stack([data[rank, at] for rank, at in enumerate(local)]), local


@try_each("g, k", SHAPES)
def test_a_hierarchical_all_reduce_moves_what_it_charges(g: int, k: int) -> None:
    nodes, near, far = Nodes(g, k), Network(), Network()
    data = np.random.default_rng(g * k).integers(0, 10**6, (g * k, g, k, 2)).astype(float)
    total = data.sum(axis=0)
    ring_reduce_scatter(near, nodes.within, data)
    parts, local = shards(data, nodes)
    ring_reduce_scatter(far, nodes.across, parts)
    ring_all_gather(far, nodes.across, parts)
    for rank, at in enumerate(local):
        data[rank, at] = parts[rank]
    ring_all_gather(near, nodes.within, data)
    assert (data == total).all()
    expected = price(Hierarchical(), "all_reduce", total.size, g, k)
    assert np.array(expected) == pytest.approx(np.array([near.counts, far.counts]))


@try_each("g, k", SHAPES)
def test_a_hierarchical_all_gather_goes_far_with_little_and_near_with_all(g: int, k: int) -> None:
    nodes, near, far = Nodes(g, k), Network(), Network()
    data = np.random.default_rng(g * k).integers(0, 10**6, (g * k, g, k, 2)).astype(float)
    wanted = np.stack([[data[j * g + i, i, j] for j in range(k)] for i in range(g)])
    parts, local = shards(data, nodes)
    ring_all_gather(far, nodes.across, parts)
    for rank, at in enumerate(local):
        data[rank, at] = parts[rank]
    ring_all_gather(near, nodes.within, data)
    assert (data == wanted).all()
    expected = price(Hierarchical(), "all_gather", wanted.size, g, k)
    assert np.array(expected) == pytest.approx(np.array([near.counts, far.counts]))


@try_each("g, k", SHAPES)
def test_a_hierarchical_reduce_scatter_is_the_gather_mirrored(g: int, k: int) -> None:
    nodes, near, far = Nodes(g, k), Network(), Network()
    data = np.random.default_rng(g * k).integers(0, 10**6, (g * k, g, k, 2)).astype(float)
    total = data.sum(axis=0)
    ring_reduce_scatter(near, nodes.within, data)
    parts, _ = shards(data, nodes)
    ring_reduce_scatter(far, nodes.across, parts)
    for node, i in itertools.product(range(k), range(g)):
        assert (parts[node * g + i, node] == total[i, node]).all()
    expected = price(Hierarchical(), "reduce_scatter", total.size, g, k)
    assert np.array(expected) == pytest.approx(np.array([near.counts, far.counts]))


@try_each("g, k", [shape for shape in SHAPES if shape[1] > 1])
@try_each("pieces", [1, 3])
def test_a_hierarchical_broadcast_scatters_chains_and_gathers(g: int, k: int, pieces: int) -> None:
    if k == 2:
        pieces = 1
    nodes, near, far = Nodes(g, k), Network(), Network()
    data = np.random.default_rng(g * k).integers(0, 10**6, (g * k, g, pieces, 4)).astype(float)
    root = data[0].copy()
    for i in range(1, g):
        for (_, target), part in near.exchange({(0, i): data[0, i]}):
            data[target, i] = part
    parts, local = shards(data, nodes)
    chain(far, nodes.across, parts)
    for rank, at in enumerate(local):
        data[rank, at] = parts[rank]
    ring_all_gather(near, nodes.within, data)
    assert (data == root).all()
    best = max(k - 2, 1) * root.size / g / pieces**2
    expected = price(Hierarchical(), "broadcast", root.size, g, k, latency=best)
    assert np.array(expected) == pytest.approx(np.array([near.counts, far.counts]))


@try_each("g, k", SHAPES)
def test_a_hierarchical_all_to_all_sends_fewer_and_larger_messages(g: int, k: int) -> None:
    nodes, near, far = Nodes(g, k), Network(), Network()
    P = g * k
    data = np.random.default_rng(P).integers(0, 10**6, (P, P, 2)).astype(float)
    by_local = data.reshape(P, k, g, 2).swapaxes(1, 2).copy()  # [rank, local, node]
    gathered = np.zeros((P, g, k, 2))
    pairwise(near, nodes.within, by_local, gathered)  # [rank, from local, to node]
    outgoing = gathered.swapaxes(1, 2).copy()
    got = np.zeros((P, k, g, 2))
    pairwise(far, nodes.across, outgoing, got)
    assert (got.reshape(P, P, 2) == data.swapaxes(0, 1)).all()
    expected = price(Hierarchical(), "all_to_all", data[0].size, g, k)
    assert np.array(expected) == pytest.approx(np.array([near.counts, far.counts]))


@try_each("g, k", SHAPES)
def test_a_hierarchical_reduction_is_the_broadcast_mirrored(g: int, k: int) -> None:
    nodes, near, far = Nodes(g, k), Network(), Network()
    data = np.random.default_rng(g * k).integers(0, 10**6, (g * k, g, k, 2)).astype(float)
    total = data.sum(axis=0)
    n = total.size
    if k == 1:  # one level is a chain
        whole = data.reshape(g, 1, -1)
        reduce_chain(near, nodes.within, whole)
        assert (whole[0, 0] == total.reshape(-1)).all()
        assert price(Hierarchical(), "reduce", n, g, latency=1e18) == pytest.approx(near.counts)
        return
    ring_reduce_scatter(near, nodes.within, data)
    parts = shards(data, nodes)[0].reshape(g * k, 1, -1)
    reduce_chain(far, nodes.across, parts)
    for i in range(1, g):
        near.exchange({(i, 0): parts[i]})
    assert (parts[:g, 0] == total.reshape(g, -1)).all()
    expected = price(Hierarchical(), "reduce", n, g, k, latency=1e18)
    assert np.array(expected) == pytest.approx(np.array([near.counts, far.counts]))
    added = sum_messages(Hierarchical(), "reduce", n, g, k, latency=1e18)
    assert added == pytest.approx(near.added + far.added)


# --- one root -----------------------------------------------------------------------------------


def reduce_chain(net: Network, chains: list[list[int]], data: Any) -> None:
    """Sum the pieces of each of *chains* towards its first member."""
    P, pieces = len(chains[0]), data.shape[1]
    for step in range(P - 2 + pieces):
        sent = {}
        for members in chains:
            for i in range(1, P):
                piece = step - (P - 1 - i)
                if 0 <= piece < pieces:
                    sent[members[i], members[i - 1]] = data[members[i], piece]
        if not sent:
            continue
        for (source, target), block in net.exchange(sent, adds=True):
            at = next(members.index(source) for members in chains if source in members)
            data[target, step - (P - 1 - at)] += block


@try_each("P", RANKS)
@try_each("pieces", [1, 2, 5])
def test_a_pipelined_reduction_moves_what_it_charges(P: int, pieces: int) -> None:
    net, data = Network(), inputs(P, pieces)
    total = data.sum(axis=0)
    reduce_chain(net, [list(range(P))], data)
    assert (data[0] == total).all()
    algorithm = Ring().cut(float(pieces))
    assert price(algorithm, "reduce", total.size, P) == pytest.approx(net.counts)
    assert sum_messages(algorithm, "reduce", total.size, P) == pytest.approx(net.added)


@try_each("P", RANKS)
def test_a_tree_reduction_moves_what_it_charges(P: int) -> None:
    net, data = Network(), inputs(P, 1)
    total = data.sum(axis=0)
    for pairs in reversed(list(binomial(P))):
        for (_, target), whole in net.exchange({(b, a): data[b] for a, b in pairs}, adds=True):
            data[target] += whole
    assert (data[0] == total).all()
    assert price(Tree(), "reduce", total.size, P) == net.counts
    assert sum_messages(Tree(), "reduce", total.size, P) == net.added


def tree_scatter(net: Network, P: int, data: Any) -> None:
    """Give block r of rank 0 to rank r: whoever has a range of blocks sends its upper half."""
    held = {0: (0, P)}
    while any(last - first > 1 for first, last in held.values()):
        sent, halves = {}, {}
        for rank, (first, last) in held.items():
            if last - first > 1:
                middle = first + (last - first + 1) // 2
                sent[rank, middle] = data[rank, middle:last]
                halves[rank] = (first, middle)
                halves[middle] = (middle, last)
        for (_, target), blocks in net.exchange(sent):
            data[target, target : target + len(blocks)] = blocks
        held |= halves


@try_each("P", RANKS)
def test_a_tree_scatter_moves_what_it_charges(P: int) -> None:
    net, data = Network(), inputs(P, P)
    root = data[0].copy()
    tree_scatter(net, P, data)
    assert all((data[r, r] == root[r]).all() for r in range(P))
    rounds, bytes_ = price(Tree(), "scatter", root.size, P)
    assert rounds == net.rounds
    # the root's port is the busiest of all: it sends everything but its own block
    assert bytes_ == pytest.approx(root.size * (P - 1) / P)
    assert price(Tree(), "gather", root.size, P) == (rounds, bytes_)  # its mirror image


@try_each("P", RANKS)
def test_a_linear_scatter_moves_what_it_charges(P: int) -> None:
    net, data = Network(), inputs(P, P)
    root = data[0].copy()
    for rank in range(1, P):
        for (_, target), block in net.exchange({(0, rank): data[0, rank]}):
            data[target, target] = block
    assert all((data[r, r] == root[r]).all() for r in range(P))
    assert price(Linear(), "scatter", root.size, P) == pytest.approx(net.counts)
    assert price(Linear(), "gather", root.size, P) == pytest.approx(net.counts)


@try_each("P", RANKS)
def test_a_naive_all_reduce_goes_through_one_root(P: int) -> None:
    up, down, data = Network(), Network(), inputs(P, 1)
    total = data.sum(axis=0)
    for rank in range(1, P):
        for (_, target), whole in up.exchange({(rank, 0): data[rank]}, adds=True):
            data[target] += whole
    for rank in range(1, P):
        for (_, target), whole in down.exchange({(0, rank): data[0]}):
            data[target] = whole
    assert (data == total).all()
    n = total.size
    assert price(Naive(), "reduce", n, P) == up.counts
    assert price(Naive(), "broadcast", n, P) == down.counts
    both = up.rounds + down.rounds, up.bytes_ + down.bytes_
    assert price(Naive(), "all_reduce", n, P) == both
    assert sum_messages(Naive(), "all_reduce", n, P) == up.added


@try_each("P", POWERS)
def test_a_long_reduction_halves_and_its_root_gathers(P: int) -> None:
    net, data = Network(), inputs(P, P)
    total = data.sum(axis=0)
    halve([net] * (P.bit_length() - 1), P, data)
    held = {r: [r] for r in range(P)}
    bit = P // 2
    while bit:  # the upper half hands what it has to the lower
        sent = {(r, r - bit): data[r, held[r]] for r in range(bit, 2 * bit)}
        for (source, target), blocks in net.exchange(sent):
            data[target, held[source]] = blocks
        for r in range(bit, 2 * bit):
            held[r - bit] += held[r]
        bit //= 2
    assert (data[0] == total).all()
    assert price(HalvingDoubling(), "reduce", total.size, P) == pytest.approx(net.counts)
    assert sum_messages(HalvingDoubling(), "reduce", total.size, P) == pytest.approx(net.added)


@try_each("P", RANKS)
def test_a_long_broadcast_scatters_down_a_tree_and_gathers_around_a_ring(P: int) -> None:
    net, data = Network(), inputs(P, P)
    root = data[0].copy()
    tree_scatter(Network(), P, data)
    ring_all_gather(net, [list(range(P))], data)
    assert (data == root).all()
    depth = (P - 1).bit_length()
    expected = depth + net.rounds, root.size * (P - 1) / P + net.bytes_
    assert price(VanDeGeijn(), "broadcast", root.size, P) == pytest.approx(expected)


@try_each("P", POWERS)
def test_an_all_gather_by_doubling_moves_what_it_charges(P: int) -> None:
    net, data = Network(), inputs(P, P)
    wanted = np.stack([data[r, r] for r in range(P)])
    held = {r: [r] for r in range(P)}
    for bit in range(P.bit_length() - 1):
        sent = {(r, r ^ (1 << bit)): data[r, held[r]] for r in range(P)}
        for (source, target), blocks in net.exchange(sent):
            data[target, held[source]] = blocks
        held = {r: held[r] + held[r ^ (1 << bit)] for r in range(P)}
    assert (data == wanted).all()
    algorithm = RecursiveDoubling()
    assert price(algorithm, "all_gather", wanted.size, P) == pytest.approx(net.counts)


@try_each("P", POWERS)
def test_a_reduce_scatter_by_doubling_moves_what_it_charges(P: int) -> None:
    net, data = Network(), inputs(P, P)
    total = data.sum(axis=0)
    blocks = np.arange(P)
    for bit in range(P.bit_length() - 1):
        # all but the blocks of those that a rank has heard of: they need no more of it
        left = {r: blocks[(blocks >> bit) != (r >> bit)] for r in range(P)}
        sent = {(r, r ^ (1 << bit)): data[r, left[r]] for r in range(P)}
        for (source, target), part in net.exchange(sent, adds=True):
            data[target, left[source]] += part
    assert all((data[r, r] == total[r]).all() for r in range(P))
    algorithm = RecursiveDoubling()
    assert price(algorithm, "reduce_scatter", total.size, P) == pytest.approx(net.counts)
    assert sum_messages(algorithm, "reduce_scatter", total.size, P) == pytest.approx(net.added)


@try_each("P", RANKS)
def test_a_pairwise_reduce_scatter_moves_what_it_charges(P: int) -> None:
    net, data = Network(), inputs(P, P)
    total = data.sum(axis=0)
    own = np.stack([data[r, r] for r in range(P)])
    for step in range(1, P):
        sent = {(r, (r + step) % P): data[r, (r + step) % P] for r in range(P)}
        for (_, target), block in net.exchange(sent, adds=True):
            own[target] += block
    assert (own == total).all()
    assert price(Pairwise(), "reduce_scatter", total.size, P) == pytest.approx(net.counts)
    assert sum_messages(Pairwise(), "reduce_scatter", total.size, P) == pytest.approx(net.added)


# --- two trees ----------------------------------------------------------------------------------


def complementary(P: int) -> list[dict[int, int]]:
    """Return the parents of two binary trees, in which inner ranks of one are leaves of the other.

    Ranks 1 to P - 1 stand in order below rank 0: in the first tree those with more zero bits
    at their end stand higher, and the second is the first, shifted by one rank.
    """

    def tree(members: list[int]) -> dict[int, int]:
        parents: dict[int, int] = {}

        def grow(low: int, high: int, parent: int) -> None:
            if low >= high:
                return
            top = max(range(low, high), key=lambda i: ((i + 1) & -(i + 1), -i))
            parents[members[top]] = parent
            grow(low, top, members[top])
            grow(top + 1, high, members[top])

        grow(0, len(members), 0)
        return parents

    others = list(range(1, P))
    return [tree(others), tree(others[1:] + others[:1])]


def turns(trees: list[dict[int, int]]) -> dict[tuple[int, int], int]:
    """Return for each (tree, child) the parity of the rounds in which it receives.

    A rank receives from its two parents in different rounds, and sends to its two children
    in different rounds. Each edge meets one other at either end, so that two turns do.
    """
    edges = [(half, child) for half, parents in enumerate(trees) for child in parents]
    ends: dict[tuple[str, int], list[tuple[int, int]]] = {}
    for half, child in edges:
        ends.setdefault(("in", child), []).append((half, child))
        ends.setdefault(("out", trees[half][child]), []).append((half, child))
    assert all(len(meeting) <= 2 for meeting in ends.values()), "a rank is inner in both trees"
    found: dict[tuple[int, int], int] = {}
    for start in edges:
        waiting = [(start, 0)] if start not in found else []
        while waiting:
            edge, turn = waiting.pop()
            if edge in found:
                continue
            found[edge] = turn
            half, child = edge
            for end in (("in", child), ("out", trees[half][child])):
                waiting += [(other, 1 - turn) for other in ends[end] if other != edge]
    return found


@try_each("P", RANKS)
@try_each("pieces", [1, 3, 8])
def test_two_trees_take_no_longer_than_they_charge(P: int, pieces: int) -> None:
    net, data = Network(), inputs(P, 2 * pieces)
    root = data[0].copy()
    trees = complementary(P)
    turn = turns(trees)
    has = {(half, rank): pieces if rank == 0 else 0 for half in (0, 1) for rank in range(P)}
    elapsed = 0
    while min(has.values()) < pieces:
        sent = {
            (trees[half][child], child): 2 * has[half, child] + half
            for (half, child), parity in turn.items()
            if parity == elapsed % 2 and has[half, trees[half][child]] > has[half, child]
        }
        elapsed += 1
        if not sent:
            continue
        for (source, target), piece in net.exchange({k: data[k[0], p] for k, p in sent.items()}):
            data[target, sent[source, target]] = piece
            has[sent[source, target] % 2, target] += 1
    assert (data == root).all()
    rounds, bytes_ = price(DoubleTree().cut(float(pieces)), "broadcast", root.size, P)
    assert elapsed <= rounds
    assert net.bytes_ <= bytes_


# --- leaders, and chunks ------------------------------------------------------------------------


@try_each("g, k", SHAPES)
def test_leaders_carry_the_whole_buffer_between_nodes(g: int, k: int) -> None:
    nodes, near, far = Nodes(g, k), Network(), Network()
    data = np.random.default_rng(g * k).integers(0, 10**6, (g * k, g, k, 2)).astype(float)
    total = data.sum(axis=0)
    ring_reduce_scatter(near, nodes.within, data)
    ring_all_gather(near, nodes.within, data)
    leaders = data[::g].swapaxes(1, 2).copy()  # blocks by node
    ring_reduce_scatter(far, [list(range(k))], leaders)
    ring_all_gather(far, [list(range(k))], leaders)
    assert (leaders.swapaxes(1, 2) == total).all()
    expected = price(LeaderAllReduce(), "all_reduce", total.size, g, k)
    spread = ((g - 1).bit_length(), total.size) if k > 1 and g > 1 else (0, 0)
    inside = near.rounds + spread[0], near.bytes_ + spread[1]
    assert np.array(expected) == pytest.approx(np.array([inside, far.counts]))
    whole = (g - 1).bit_length(), total.size * (g > 1)
    both = price(LeaderReduce(), "all_reduce", total.size, g, k)
    assert np.array(both) == pytest.approx(np.array([np.multiply(2, whole), far.counts]))


@try_each("chunks", [1, 2, 3, 8])
@try_each("near, far", [(4.0, 1.0), (1.0, 4.0), (2.0, 2.0)])
def test_chunks_of_a_hierarchy_take_no_longer_than_they_charge(
    chunks: int, near: float, far: float
) -> None:
    # 2 nodes of 2; a chunk is reduced inside, crosses, and is gathered inside
    link = {"name": "x", "latency": 0.0, "of_rounds": 0}
    links = (Meter(**link, of_bytes=near), Meter(**link, of_bytes=far))  # type: ignore[arg-type]
    group = Group(name="g", ranks=4.0, shape=(2.0, 2.0), links=links)
    n = 96.0
    inside, across = near * n / 2 / chunks, far * n / 2 / chunks  # one pass inside; both across
    free = {"inside": 0.0, "across": 0.0}
    jobs = [("inside", inside, 0.0, chunk, 0) for chunk in range(chunks)]
    ended = 0.0
    while jobs:  # the earliest first; of these, the chunk that came first
        where, seconds, ready, chunk, step = min(jobs, key=lambda j: (max(j[2], free[j[0]]), j[3]))
        jobs.remove((where, seconds, ready, chunk, step))
        ended = free[where] = max(ready, free[where]) + seconds
        if step == 0:
            jobs.append(("across", across, ended, chunk, 1))
        elif step == 1:
            jobs.append(("inside", inside, ended, chunk, 2))
    ended = max(free.values())
    charge = HierarchicalPipelined().cut(float(chunks)).seconds("all_reduce", n, group)
    busiest = max(2 * inside, across) * chunks
    assert busiest <= ended <= charge * (1 + 1e-12)
    assert charge == pytest.approx(busiest + min(2 * inside, across))
