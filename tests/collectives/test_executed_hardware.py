"""Algorithms of tori and of switches that reduce, run on small arrays."""

from __future__ import annotations

import itertools
from collections import Counter
from typing import Any

import numpy as np
import pytest
from attrs import frozen

from parcost import Group
from parcost_plugins.collectives.in_network import CollnetChain, CollnetDirect, Nvls
from parcost_plugins.collectives.torus import Bucket, Torus
from parcost_plugins.vocabulary import Level

from ..rows import try_each


@frozen(kw_only=True)
class Meter:
    """A link of a level that counts rounds or bytes in place of seconds."""

    level: Any = None
    name: str = "meter"
    latency: float = 1.0
    bandwidth: float = 1.0
    of_rounds: int
    of_bytes: int

    def seconds(self, rounds: Any, bytes_: Any) -> Any:
        return self.of_rounds * rounds + self.of_bytes * bytes_


def price(algorithm: Any, operation: str, n: float, shape: tuple[int, ...], *levels: Any) -> Any:
    """Return (rounds, bytes) on each level of *shape*."""

    def count(at: int, of_rounds: int, of_bytes: int) -> Any:
        links = tuple(
            Meter(level=level, of_rounds=of_rounds * (i == at), of_bytes=of_bytes * (i == at))
            for i, level in enumerate(levels)
        )
        sizes = tuple(map(float, shape))
        group = Group(name="g", ranks=float(np.prod(shape)), shape=sizes, links=links)
        return algorithm.seconds(operation, n, group)

    return [(count(i, 1, 0), count(i, 0, 1)) for i in range(len(shape))]


def torus(*dimensions: int, wrap: bool = True) -> Any:
    return Level(bandwidth=1.0, latency=1.0, kind="torus", dimensions=tuple(dimensions), wrap=wrap)


SWITCH = Level(bandwidth=1.0, latency=1.0, in_network=True)
PLAIN = Level(bandwidth=1.0, latency=1.0)


# --- tori -----------------------------------------------------------------------------------


def gather_around(P: int, *, wrap: bool) -> tuple[int, Counter[tuple[int, int]]]:
    """Gather around a ring or along a line in both directions; count rounds and link loads.

    Loads are in blocks, by (from, to); every rank starts with its own block and passes on
    what it heard of, one block a round in each direction.
    """
    heard: list[dict[int, int]] = [{r: 0} for r in range(P)]  # block: direction it goes on in
    going = {(r, step): [r] for r in range(P) for step in (1, -1)}
    loads: Counter[tuple[int, int]] = Counter()
    rounds = 0
    while any(len(known) < P for known in heard):
        arriving = []
        for (rank, step), queue in going.items():
            to = rank + step
            if queue and (wrap or 0 <= to < P):
                block = queue.pop(0)
                if block not in heard[to % P]:
                    arriving.append((rank, to % P, step, block))
        for rank, to, step, block in arriving:
            if block in heard[to]:
                continue  # from the other side in the same round
            heard[to][block] = step
            loads[rank, to] += 1
            going[to, step].append(block)
        rounds += 1
    return rounds, loads


@try_each("K", [2, 3, 4, 5, 6, 7, 8, 9, 12, 16])
def test_a_ring_in_both_directions_gathers_in_half_of_the_rounds(K: int) -> None:
    rounds, loads = gather_around(K, wrap=True)
    [(charged_rounds, bytes_)] = price(Torus(), "all_gather", float(K), (K,), torus(K))
    assert rounds == charged_rounds == K // 2
    # each rank receives K - 1 blocks by two links; evenly where the last one may be halved
    assert sum(loads.values()) == K * (K - 1)
    assert bytes_ == pytest.approx((K - 1) / 2)


@try_each("K", [2, 3, 4, 8, 9])
def test_a_line_gathers_as_its_end_receives(K: int) -> None:
    rounds, loads = gather_around(K, wrap=False)
    level = torus(K, wrap=False)
    [(charged_rounds, bytes_)] = price(Torus(), "all_gather", float(K), (K,), level)
    assert rounds == charged_rounds == K - 1
    assert bytes_ == max(loads.values()) == K - 1


@try_each("K, D", [(2, 2), (3, 2), (4, 2), (2, 3), (4, 3)])
def test_all_dimensions_at_once_reduce_and_scatter_what_they_charge(K: int, D: int) -> None:
    """Part d of the buffer is scattered along dimensions d, d + 1, ... in turn."""
    P = K**D
    n = D * P * 2
    data = np.random.default_rng(P).integers(0, 10**6, (*(K,) * D, D, P, 2)).astype(float)
    total = data.sum(axis=tuple(range(D)))
    coordinates = list(itertools.product(range(K), repeat=D))
    index = {at: i for i, at in enumerate(coordinates)}
    port = 0.0  # elements through one direction of one link, with both in use
    for turn in range(D):
        most = 0
        for part in range(D):
            axis = (part + turn) % D
            done = [(part + past) % D for past in range(turn)]
            new = data.copy()
            sent: Counter[Any] = Counter()
            for at in coordinates:
                line = [(*at[:axis], j, *at[axis + 1 :]) for j in range(K)]
                mine = [
                    b
                    for b in coordinates
                    if all(b[d] == at[d] for d in done) and b[axis] == at[axis]
                ]
                for block in mine:
                    new[at][part, index[block]] = sum(data[o][part, index[block]] for o in line)
                others = sum(
                    all(b[d] == at[d] for d in done) and b[axis] != at[axis] for b in coordinates
                )
                sent[at] = others * 2
            data = new
            most = max(most, *sent.values())
        port += most / 2
    for at in coordinates:
        for part in range(D):
            assert (data[at][part, index[at]] == total[part, index[at]]).all()
    [(rounds, bytes_)] = price(Torus(), "reduce_scatter", float(n), (P,), torus(*(K,) * D))
    assert rounds == D * (K // 2)
    assert bytes_ == pytest.approx(port)


@try_each("dimensions", [(4,), (2, 3), (3, 2), (4, 4), (2, 3, 4)])
def test_one_dimension_after_another_moves_what_it_charges(dimensions: tuple[int, ...]) -> None:
    P = int(np.prod(dimensions))
    n = 3 * P
    coordinates = list(itertools.product(*map(range, dimensions)))
    index = {at: i for i, at in enumerate(coordinates)}
    data = np.random.default_rng(P).integers(0, 10**6, (P, P, 3)).astype(float)
    total = data.sum(axis=0)
    rounds, bytes_ = 0, 0
    for axis, K in enumerate(dimensions):
        for step in range(K - 1):  # a ring reduce-scatter along every line at once
            moved = []
            for at in coordinates:
                to = (*at[:axis], (at[axis] + 1) % K, *at[axis + 1 :])
                blocks = [
                    index[b]
                    for b in coordinates
                    if b[:axis] == at[:axis] and b[axis] == (at[axis] - step - 1) % K
                ]
                moved.append((index[to], blocks, data[index[at], blocks].copy()))
            for target, blocks, payload in moved:
                data[target, blocks] += payload
            rounds += 1
            bytes_ += max(payload.size for _, _, payload in moved)
    assert all((data[r, r] == total[r]).all() for r in range(P))
    level = torus(*dimensions)
    [counts] = price(Bucket(), "reduce_scatter", float(n), (P,), level)
    assert counts == pytest.approx((rounds, bytes_))
    [gathered] = price(Bucket(), "all_gather", float(n), (P,), level)
    assert gathered == counts
    [both] = price(Bucket(), "all_reduce", float(n), (P,), level)
    assert both == pytest.approx((2 * rounds, 2 * bytes_))


@pytest.mark.parametrize("K", [4, 8, 16])
def test_the_busiest_link_of_an_exchange_on_a_ring_carries_an_eighth_of_k_buffers(K: int) -> None:
    loads: Counter[tuple[int, int]] = Counter()
    for source, target in itertools.permutations(range(K), 2):
        ahead = (target - source) % K
        ways = [1] if ahead < K / 2 else [-1] if ahead > K / 2 else [1, -1]
        for step in ways:
            at = source
            while at != target:
                loads[at, (at + step) % K] += 2 // len(ways)  # half blocks
                at = (at + step) % K
    n = float(2 * K)  # a block to each, of two halves
    [(rounds, bytes_)] = price(Torus(), "all_to_all", n, (K,), torus(K))
    assert bytes_ == max(loads.values()) == n * K / 8
    assert rounds == K / 2


@pytest.mark.parametrize("K", [4, 5, 8])
def test_the_middle_of_a_line_carries_twice_as_much(K: int) -> None:
    middle = sum(1 for s, t in itertools.permutations(range(K), 2) if s < K // 2 <= t)
    level = torus(K, wrap=False)
    [(_, bytes_)] = price(Torus(), "all_to_all", float(K), (K,), level)
    assert bytes_ == middle


def test_a_slice_of_a_torus_has_no_way_around() -> None:
    # half of a ring of eight is a line of four; the whole of it closes
    [(rounds, bytes_)] = price(Torus(), "all_gather", 8.0, (4,), torus(8))
    assert (rounds, bytes_) == (3, 6.0)
    [(rounds, bytes_)] = price(Torus(), "all_gather", 8.0, (8,), torus(8))
    assert (rounds, bytes_) == (4, 3.5)


def test_a_torus_is_not_run_on_what_is_none_or_does_not_fill_it() -> None:
    assert price(Torus(), "all_reduce", 8.0, (8,), PLAIN)[0][0] == float("inf")
    assert price(Bucket(), "all_reduce", 8.0, (6,), torus(4, 4))[0][0] == float("inf")
    assert price(Torus(), "all_reduce", 8.0, (4, 2), torus(4), PLAIN)[0][0] == float("inf")


# --- switches that reduce ----------------------------------------------------------------------


@try_each("P", [2, 3, 4, 5, 6, 7, 8, 9, 12, 16])
def test_a_switch_reads_each_shard_and_multicasts_the_sums(P: int) -> None:
    data = np.random.default_rng(P).integers(0, 10**6, (P, P, 2)).astype(float)
    total = data.sum(axis=0)
    out, into = np.zeros(P), np.zeros(P)
    shards = np.zeros((P, 2))
    for owner in range(P):  # the owner asks the switch for the sum of its shard
        out += data[:, owner].size / P
        shards[owner] = data[:, owner].sum(axis=0)
        into[owner] += shards[owner].size
    result = np.zeros((P, P, 2))
    for owner in range(P):  # and writes it to everybody at once
        out[owner] += shards[owner].size
        result[:, owner] = shards[owner]
        into += shards[owner].size
    assert (result == total).all()
    [(rounds, bytes_)] = price(Nvls(), "all_reduce", float(total.size), (P,), SWITCH)
    assert rounds == 2
    assert bytes_ == pytest.approx(max(out.max(), into.max()))
    [(rounds, scattered)] = price(Nvls(), "reduce_scatter", float(total.size), (P,), SWITCH)
    assert (rounds, scattered) == (1, pytest.approx(total.size * (P - 1) / P))


@try_each("g, k", [(1, 2), (2, 2), (2, 3), (4, 2), (4, 4), (3, 3)])
def test_collnet_sends_a_part_by_each_card_once(g: int, k: int) -> None:
    data = np.random.default_rng(g * k).integers(0, 10**6, (k, g, g, 2)).astype(float)
    total = data.sum(axis=(0, 1))
    near = 2 * (g - 1) * 2  # each rank sends g - 1 parts to their owners, and one back to each
    parts = data.sum(axis=1)  # [node, owner]
    card = parts[0, 0].size  # up the switches and down again
    assert (parts.sum(axis=0) == total).all()
    n = float(total.size)
    inside, outside = price(CollnetDirect(), "all_reduce", n, (g, k), PLAIN, SWITCH)
    assert inside == (2 * min(g - 1, 1), pytest.approx(near))
    assert outside == (2, pytest.approx(card))
    inside, outside = price(CollnetChain(), "all_reduce", n, (g, k), PLAIN, SWITCH)
    assert outside == (2, pytest.approx(card))
    assert inside[1] >= 2 * n * min(g - 1, 1)


@try_each(
    "algorithm, shape, levels",
    [
        (Nvls(), (8,), (PLAIN,)),
        (Nvls(), (8, 2), (SWITCH, SWITCH)),
        (CollnetDirect(), (8, 2), (SWITCH, PLAIN)),
        (CollnetDirect(), (8, 1), (SWITCH, SWITCH)),
        (CollnetChain(), (8, 2, 2), (PLAIN, SWITCH, PLAIN)),
    ],
)
def test_switches_that_do_not_reduce_do_not_run_it(
    algorithm: Any, shape: tuple[int, ...], levels: tuple[Any, ...]
) -> None:
    assert price(algorithm, "all_reduce", 8.0, shape, *levels)[0][0] == float("inf")


def test_nvls_is_at_most_half_again_as_fast_as_a_ring_of_eight() -> None:
    # 2 (P - 1) / (P + 1) at P = 8
    [(_, bytes_)] = price(Nvls(), "all_reduce", 8.0, (8,), SWITCH)
    assert 2 * 7 / bytes_ == pytest.approx(1.556, rel=1e-3)
