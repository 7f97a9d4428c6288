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

from parcost import Group
from parcost_plugins.collectives.bruck import Bruck
from parcost_plugins.collectives.direct import Direct
from parcost_plugins.collectives.halving_doubling import HalvingDoubling
from parcost_plugins.collectives.hierarchical import Hierarchical
from parcost_plugins.collectives.pairwise import Pairwise
from parcost_plugins.collectives.recursive_doubling import RecursiveDoubling
from parcost_plugins.collectives.ring import Ring
from parcost_plugins.collectives.tree import Tree

RANKS = [2, 3, 4, 5, 6, 7, 8, 9, 12, 16]
POWERS = [2, 4, 8, 16]
SHAPES = [(2, 2), (2, 3), (3, 2), (4, 2), (2, 4), (3, 3), (4, 3), (3, 4), (4, 4), (1, 5), (5, 1)]


# --- what the plugins charge ----------------------------------------------------------


@frozen(kw_only=True)
class Meter:
    """A link that counts rounds or bytes in place of seconds."""

    name: str = "meter"
    latency: float
    bandwidth: float = 1.0
    of_rounds: int
    of_bytes: int

    def seconds(self, rounds: Any, bytes_: Any) -> Any:
        return self.of_rounds * rounds + self.of_bytes * bytes_


def charged(algorithm: Any, operation: str, n: int, *shape: int, latency: float = 1.0) -> Any:
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

    def exchange(self, messages: Mapping[Any, Any]) -> Any:
        """Deliver {(from, to): array} in one round, and return it."""
        sources, targets = zip(*messages, strict=True)
        assert len(set(sources)) == len(sources), "a rank sends two messages at once"
        assert len(set(targets)) == len(targets), "a rank receives two messages at once"
        self.rounds += 1
        self.bytes_ += max(np.size(payload) for payload in messages.values())
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
        for (source, target), block in net.exchange(sent):
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
        for (source, target), half in net.exchange(sent):
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
    for (_, target), whole in net.exchange({(q + i, i): data[q + i] for i in range(P - q)}):
        data[target] += whole


def return_result(net: Network, P: int, q: int, data: Any) -> None:
    """Let the ranks above *q* have the result."""
    for (_, target), whole in net.exchange({(i, q + i): data[i] for i in range(P - q)}):
        data[target] = whole


def largest_power(P: int) -> int:
    return 1 << (P.bit_length() - 1)


# --- the ring ------------------------------------------------------------------------------


@pytest.mark.parametrize("P", RANKS)
def test_a_ring_reduce_scatter_moves_what_it_charges(P: int) -> None:
    net, data = Network(), inputs(P, P)
    total = data.sum(axis=0)
    ring_reduce_scatter(net, [list(range(P))], data)
    assert all((data[r, r] == total[r]).all() for r in range(P))
    assert charged(Ring(), "reduce_scatter", total.size, P) == pytest.approx(net.counts)


@pytest.mark.parametrize("P", RANKS)
def test_a_ring_all_gather_moves_what_it_charges(P: int) -> None:
    net, data = Network(), inputs(P, P)
    wanted = np.stack([data[r, r] for r in range(P)])
    ring_all_gather(net, [list(range(P))], data)
    assert (data == wanted).all()
    assert charged(Ring(), "all_gather", wanted.size, P) == pytest.approx(net.counts)


@pytest.mark.parametrize("P", RANKS)
def test_a_ring_all_reduce_moves_what_it_charges(P: int) -> None:
    net, data = Network(), inputs(P, P)
    total = data.sum(axis=0)
    ring_reduce_scatter(net, [list(range(P))], data)
    ring_all_gather(net, [list(range(P))], data)
    assert (data == total).all()
    assert charged(Ring(), "all_reduce", total.size, P) == pytest.approx(net.counts)


@pytest.mark.parametrize("P", RANKS)
@pytest.mark.parametrize("pieces", [1, 2, 5])
def test_a_pipelined_broadcast_moves_what_it_charges(P: int, pieces: int) -> None:
    if P == 2:
        pieces = 1  # a chain of two has nothing to overlap
    net, data = Network(), inputs(P, pieces)
    root = data[0].copy()
    chain(net, [list(range(P))], data)
    assert (data == root).all()
    latency = max(P - 2, 1) * root.size / pieces**2  # for which so many pieces are best
    assert charged(Ring(), "broadcast", root.size, P, latency=latency) == pytest.approx(net.counts)


# --- trees and recursion ---------------------------------------------------------------------


def binomial(P: int) -> Iterator[list[tuple[int, int]]]:
    """Yield the rounds of a binomial broadcast: who sends to whom."""
    for exponent in range((P - 1).bit_length()):
        reach = 1 << exponent
        yield [(r, r + reach) for r in range(reach) if r + reach < P]


@pytest.mark.parametrize("P", RANKS)
def test_a_tree_broadcast_moves_what_it_charges(P: int) -> None:
    net, data = Network(), inputs(P, 1)
    root = data[0].copy()
    for pairs in binomial(P):
        for (_, target), whole in net.exchange({(a, b): data[a] for a, b in pairs}):
            data[target] = whole
    assert (data == root).all()
    assert charged(Tree(), "broadcast", root.size, P) == net.counts


@pytest.mark.parametrize("P", RANKS)
def test_a_tree_all_reduce_moves_what_it_charges(P: int) -> None:
    net, data = Network(), inputs(P, 1)
    total = data.sum(axis=0)
    for pairs in reversed(list(binomial(P))):
        for (_, target), whole in net.exchange({(b, a): data[b] for a, b in pairs}):
            data[target] += whole
    for pairs in binomial(P):
        for (_, target), whole in net.exchange({(a, b): data[a] for a, b in pairs}):
            data[target] = whole
    assert (data == total).all()
    assert charged(Tree(), "all_reduce", total.size, P) == net.counts


@pytest.mark.parametrize("P", RANKS)
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
    assert charged(HalvingDoubling(), "all_reduce", total.size, P) == pytest.approx(net.counts)


@pytest.mark.parametrize("P", POWERS)
def test_halving_and_doubling_are_a_reduce_scatter_and_an_all_gather(P: int) -> None:
    halves, doubles, data = Network(), Network(), inputs(P, P)
    total = data.sum(axis=0)
    halve([halves] * (P.bit_length() - 1), P, data)
    assert all((data[r, r] == total[r]).all() for r in range(P))
    double([doubles] * (P.bit_length() - 1), P, data)
    assert (data == total).all()
    algorithm, n = HalvingDoubling(), total.size
    assert charged(algorithm, "reduce_scatter", n, P) == pytest.approx(halves.counts)
    assert charged(algorithm, "all_gather", n, P) == pytest.approx(doubles.counts)


@pytest.mark.parametrize("P", POWERS)
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
    assert charged(HalvingDoubling(), "broadcast", root.size, P) == pytest.approx(net.counts)


@pytest.mark.parametrize("g, k", [(2, 2), (4, 2), (2, 4), (4, 4), (8, 2), (2, 8)])
def test_halving_crosses_an_outer_level_with_what_near_partners_left(g: int, k: int) -> None:
    near, far, data = Network(), Network(), inputs(g * k, g * k)
    total = data.sum(axis=0)
    nets = [near] * (g.bit_length() - 1) + [far] * (k.bit_length() - 1)
    halve(nets, g * k, data)
    double(nets, g * k, data)
    assert (data == total).all()
    expected = charged(HalvingDoubling(), "all_reduce", total.size, g, k)
    assert np.array(expected) == pytest.approx(np.array([near.counts, far.counts]))


@pytest.mark.parametrize("P", RANKS)
def test_recursive_doubling_moves_what_it_charges(P: int) -> None:
    q = largest_power(P)
    net, data = Network(), inputs(P, 1)
    total = data.sum(axis=0)
    if q < P:
        merge(net, P, q, data)
    for bit in range(q.bit_length() - 1):
        for (_, target), whole in net.exchange({(r, r ^ (1 << bit)): data[r] for r in range(q)}):
            data[target] += whole
    if q < P:
        return_result(net, P, q, data)
    assert (data == total).all()
    assert charged(RecursiveDoubling(), "all_reduce", total.size, P) == net.counts


# --- Bruck, pairwise, point to point ----------------------------------------------------------


@pytest.mark.parametrize("P", RANKS)
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
    assert charged(Bruck(), "all_gather", data.size, P) == pytest.approx(net.counts)


@pytest.mark.parametrize("P", RANKS)
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
    assert charged(Bruck(), "all_to_all", data[0].size, P) == pytest.approx(net.counts)


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


@pytest.mark.parametrize("P", RANKS)
def test_a_pairwise_all_to_all_moves_what_it_charges(P: int) -> None:
    net, data = Network(), inputs(P, P)
    got = np.zeros_like(data)
    pairwise(net, [list(range(P))], data, got)
    assert (got == data.swapaxes(0, 1)).all()
    assert charged(Pairwise(), "all_to_all", data[0].size, P) == pytest.approx(net.counts)


def test_a_message_is_one_round_of_all_its_bytes() -> None:
    net, data = Network(), inputs(2, 1)
    net.exchange({(0, 1): data[0]})
    assert charged(Direct(), "point_to_point", data[0].size, 2) == net.counts


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


@pytest.mark.parametrize("g, k", SHAPES)
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
    expected = charged(Hierarchical(), "all_reduce", total.size, g, k)
    assert np.array(expected) == pytest.approx(np.array([near.counts, far.counts]))


@pytest.mark.parametrize("g, k", SHAPES)
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
    expected = charged(Hierarchical(), "all_gather", wanted.size, g, k)
    assert np.array(expected) == pytest.approx(np.array([near.counts, far.counts]))


@pytest.mark.parametrize("g, k", SHAPES)
def test_a_hierarchical_reduce_scatter_is_the_gather_mirrored(g: int, k: int) -> None:
    nodes, near, far = Nodes(g, k), Network(), Network()
    data = np.random.default_rng(g * k).integers(0, 10**6, (g * k, g, k, 2)).astype(float)
    total = data.sum(axis=0)
    ring_reduce_scatter(near, nodes.within, data)
    parts, _ = shards(data, nodes)
    ring_reduce_scatter(far, nodes.across, parts)
    for node, i in itertools.product(range(k), range(g)):
        assert (parts[node * g + i, node] == total[i, node]).all()
    expected = charged(Hierarchical(), "reduce_scatter", total.size, g, k)
    assert np.array(expected) == pytest.approx(np.array([near.counts, far.counts]))


@pytest.mark.parametrize("g, k", [shape for shape in SHAPES if shape[1] > 1])
@pytest.mark.parametrize("pieces", [1, 3])
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
    expected = charged(Hierarchical(), "broadcast", root.size, g, k, latency=best)
    assert np.array(expected) == pytest.approx(np.array([near.counts, far.counts]))


@pytest.mark.parametrize("g, k", SHAPES)
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
    expected = charged(Hierarchical(), "all_to_all", data[0].size, g, k)
    assert np.array(expected) == pytest.approx(np.array([near.counts, far.counts]))
