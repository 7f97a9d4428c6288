"""NCCL's pairs by a table of primes, so that no two terms of a time are alike."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from attrs import evolve

from parcost import Group
from parcost.numeric import INFINITY
from parcost_plugins.collectives.nccl.machine import Machine, machine
from parcost_plugins.collectives.nccl.pairs import pairs
from parcost_plugins.topology.links import AlphaBeta
from parcost_plugins.vocabulary import (
    CollectiveChoice,
    GenerationTuning,
    HostTuning,
    Level,
    ProtocolTuning,
    Tuning,
)

from ..rows import try_each

# seconds: base, and a step over NVLink, over PCIe, between nodes
ROWS = {
    "ring_ll": (2, 3, 5, 7),
    "ring_ll128": (11, 13, 17, 19),
    "ring_simple": (23, 29, 31, 37),
    "tree_ll": (41, 43, 47, 53),
    "tree_ll128": (59, 61, 67, 71),
    "tree_simple": (73, 79, 83, 89),
    "collnet_direct": (97, 101, 103, 107),
    "collnet_chain": (109, 113, 127, 131),
    "nvls": (137, 139, 149, 151),
    "nvls_tree": (157, 163, 167, 173),
    "pat": (179, 181, 191, 193),
}


def generation(**given: float) -> GenerationTuning:
    """Return a generation with caps that differ, but for what is *given*."""
    caps: dict[str, Any] = {
        "label": "hopper",
        "payload": 7.0,
        "ll_one_node": 90.0,
        "ring_ll128": 15.0,
        "tree_ll128_one_node": 13.0,
        "tree_ll128_two_nodes": 9.0,
        "tree_ll128_more_nodes": 7.0,
        "tree_one_node": 17.0,
        "tree_two_nodes": 19.0,
        "tree_more_nodes": 10.0,
        "nvls_tree_two_nodes": 26.0,
        "nvls_tree_more_nodes": 11.0,
        "nvls_efficiency": 0.8,
        "long_ring": 1.5,
        "collnet": 0.5,
    }
    return GenerationTuning(**{**caps, **given})


def host(**given: float) -> HostTuning:
    """Return a host, but for what is *given*."""
    caps: dict[str, Any] = {"ll_two_nodes": 110.0, "ll_more_nodes": 50.0, "overhead": 4.0}
    return HostTuning(**{"label": "intel", **caps, **given})


def row(name: str, **given: Any) -> ProtocolTuning:
    """Return the row called *name*, but for what is *given*."""
    times = dict(zip(("base", "nvlink", "pcie", "network"), map(float, ROWS[name]), strict=True))
    return ProtocolTuning(**{"label": name, **times, **given})


def table(*rows: ProtocolTuning) -> Tuning:
    """Return a table with *rows*."""
    return Tuning(
        label="primes",  # type: ignore[call-arg]
        protocols=rows,
        generations=(generation(),),
        hosts=(host(),),
        ring_ll=0.5,
        ring_ll128=0.8,
        tree=0.9,
        tree_ll=0.6,
        tree_ll128_one_node=0.7,
        tree_ll128_more_nodes=0.6,
        pat=0.75,
        pat_steps=4.0,
        pat_rank=3.0,
        collnet_direct_peer=5.0,
        collnet_network=0.4,
        simple_overhead=3.0,
        simple_ports=2.0,
        long_message=64.0,
        correction_from=64.0,
        tree_ll_correction=(100, 50, 20),
        tree_ll128_correction=(100, 40, 10),
        tree_simple_correction=(100, 80, 25),
    )


TABLE = table(*map(row, ROWS))
#: Ten channels of 20 B/s in a node and over two, 12 B/s over more; a card adds a second.
MACHINE = Machine(
    table=TABLE,
    generation=generation(),
    host=host(),
    channels=10.0,
    intra=20.0,
    inter=12.0,
    card_latency=1.0,
    collnet=True,
)


def nodes(g: float, k: float = 1.0, *, kind: str = "switch", in_network: bool = True) -> Group:
    level = Level(bandwidth=1.0, latency=0.0, kind=kind, in_network=in_network)
    link = AlphaBeta(name="node", latency=0.0, bandwidth=1.0, level=level)
    return Group(name="g", ranks=g * k, shape=(g, k), links=(link, link))


def start_ups(operation: str, group: Group, machine: Machine = MACHINE) -> dict[str, Any]:
    return pairs(machine, operation, 0.0, group)


def rates(operation: str, n: float, group: Group, machine: Machine = MACHINE) -> dict[str, Any]:
    """Return the bandwidths by which *n* bytes pass according to the table, beyond the start-up."""
    starts = start_ups(operation, group, machine)
    times = pairs(machine, operation, n, group)
    return {name: n / (t - starts[name]) for name, t in times.items() if t < INFINITY}


def test_an_all_reduce_on_one_node_takes_fourteen_steps_of_a_ring_or_of_a_tree() -> None:
    assert start_ups("all_reduce", nodes(8.0)) == {
        "ring_ll": 2 + 14 * 3,
        "ring_ll128": 11 + 14 * 13,
        "ring_simple": 23 + 14 * 29,
        "tree_ll": 41 + 14 * 43,
        "tree_ll128": 59 + 14 * 61,
        "tree_simple": 73 + 14 * 79,
        "nvls": 139,  # which has no base
    }
    over_pcie = start_ups("all_reduce", nodes(8.0, kind="pcie"))
    assert over_pcie["ring_ll"] == 2 + 14 * 5
    assert over_pcie["tree_simple"] == 73 + 14 * 83
    assert "nvls" not in over_pcie


def test_an_all_reduce_on_one_node_has_the_bandwidth_of_its_narrowest_cap() -> None:
    """200 B/s of channels; a ring passes 14/8 of the buffer, a tree has half of its bandwidth."""
    assert rates("all_reduce", 64.0, nodes(8.0)) == pytest.approx(
        {
            "ring_ll": 90 * 8 / 14,  # capped at 90, below half of 200
            "ring_ll128": 150 * 8 / 14,  # ten channels of 15, below 80 % of 200
            "ring_simple": 200 * 8 / 14,
            "tree_ll": 90 / 2,  # below 60 % of 170
            "tree_ll128": 0.7 * 170 / 2,  # below 130
            "tree_simple": 170 / 2,  # ten channels of 17, below 90 % of 200
            "nvls": 10 * 20 * 0.8 * 9 / 10 * 2 * 8 / 14,  # a channel is kept for the reduction
        }
    )


def test_an_all_reduce_over_two_nodes_crosses_the_network_twice() -> None:
    """Twelve of fourteen steps stay in a node, of at least 4 s by the host, of 12 with Simple."""
    assert start_ups("all_reduce", nodes(4.0, 2.0)) == {
        "ring_ll": 2 + 12 * 4 + 2 * (7 + 1),
        "ring_ll128": 11 + 12 * 13 + 2 * (19 + 1),
        "ring_simple": 23 + 12 * 29 + 2 * (37 + 2),
        "tree_ll": 41 + 2 * (3 * 43 + 53 + 1),
        "tree_ll128": 59 + 2 * (3 * 61 + 71 + 1),
        "tree_simple": 73 + 2 * (3 * 79 + 89 + 2),
        "nvls": 139 + 151 + 2,
        "nvls_tree": 157 + 163 + 2 * (173 + 2),
        "collnet_direct": 97 + 2 * (101 + 3 * 5) + 107 + 2,
        "collnet_chain": 109 + 2 * 3 * 113 + 131 + 2,
    }
    slow = evolve(MACHINE, host=host(overhead=10.0))  # 30 s with Simple
    assert start_ups("all_reduce", nodes(4.0, 2.0), slow)["ring_simple"] == 23 + 12 * 30 + 2 * 39


def test_two_nodes_have_the_channels_of_one_and_caps_of_their_own() -> None:
    assert rates("all_reduce", 64.0, nodes(4.0, 2.0)) == pytest.approx(
        {
            "ring_ll": 100 * 8 / 14,  # half of 200, below 110
            "ring_ll128": 150 * 8 / 14,
            "ring_simple": 200 * 8 / 14,
            "tree_ll": 0.6 * 180 / 2,  # of 90 % of 200, below ten channels of 19
            "tree_ll128": 90 / 2,  # ten channels of 9, below 60 % of 180
            "tree_simple": 180 / 2,
            "nvls": 120 * 8 / 14,  # a channel of the network
            "nvls_tree": 240 * 8 / 14,  # two of them, below 260
            "collnet_direct": 200 / 0.7 * 0.5 / 2,  # four ranks on ten channels: 0.4 + 0.6 / 2
            "collnet_chain": 200 / 2,
        }
    )
    capped = evolve(MACHINE, generation=generation(nvls_tree_two_nodes=23.0))
    found = rates("all_reduce", 64.0, nodes(4.0, 2.0), capped)
    assert found["nvls_tree"] == pytest.approx(230 * 8 / 14)
    slow = rates("all_reduce", 64.0, nodes(4.0, 2.0), evolve(MACHINE, intra=5.0))
    assert slow["nvls_tree"] == pytest.approx(10 * 5 * 0.8 * 0.9 * 2 * 8 / 14)
    for alone in (1.0, 2.0):  # whose library has no NVLS, as it asks for three in a node
        assert not {"nvls", "nvls_tree"} & rates("all_reduce", 64.0, nodes(alone, 2.0)).keys()
    crowded = rates("all_reduce", 64.0, nodes(20.0, 2.0))
    assert crowded["collnet_direct"] == pytest.approx(200 / 1.5 * 0.5 / 2)  # 2 - 1 / 2


def test_four_nodes_have_the_channels_of_the_network() -> None:
    """120 B/s; six crossings of a ring, and two levels of a tree over the nodes."""
    group = nodes(4.0, 4.0)
    starts = start_ups("all_reduce", group)
    assert starts["ring_ll"] == 2 + 24 * 4 + 6 * 8
    assert starts["tree_simple"] == 73 + 2 * (3 * 79 + 2 * 91)
    assert starts["nvls_tree"] == 157 + 163 + 4 * 175
    assert rates("all_reduce", 64.0, group) == pytest.approx(
        {
            "ring_ll": 50 * 16 / 30,  # below half of 120
            "ring_ll128": 0.8 * 120 * 16 / 30,
            "ring_simple": 120 * 16 / 30,
            "tree_ll": 50 / 2,  # below 60 % of 100
            "tree_ll128": 0.6 * 100 / 2,  # below 70
            "tree_simple": 100 / 2,  # ten channels of 10, below 90 % of 120
            "nvls": 120 * 16 / 30,
            "nvls_tree": 110 * 16 / 30,  # ten channels of 11, below 12
            "collnet_direct": 200 / 0.7 * 0.5 / 2,
            "collnet_chain": 200 / 2,
        }
    )
    wide = evolve(MACHINE, generation=generation(nvls_tree_more_nodes=50.0))
    assert rates("all_reduce", 64.0, group, wide)["nvls_tree"] == pytest.approx(120 * 16 / 30)


def test_three_nodes_are_more_than_two_and_one_level_of_a_tree() -> None:
    group = nodes(4.0, 3.0)
    assert start_ups("all_reduce", group)["tree_ll"] == 41 + 2 * (3 * 43 + 54)
    found = rates("all_reduce", 64.0, group)
    expected = {"ring_ll": 50 * 12 / 22, "tree_simple": 50, "nvls_tree": 110 * 12 / 22}
    assert {name: found[name] for name in expected} == pytest.approx(expected)
    wide = evolve(MACHINE, generation=generation(nvls_tree_more_nodes=50.0))
    found = rates("all_reduce", 64.0, group, wide)
    assert found["nvls_tree"] == pytest.approx(120 * 12 / 22)
    assert found["ring_simple"] == pytest.approx(120 * 12 / 22)


@pytest.mark.parametrize("operation", ["all_gather", "reduce_scatter"])
def test_a_gather_takes_half_the_steps_of_an_all_reduce(operation: str) -> None:
    """Seven steps, one of them between two nodes; NVLS passes what is not a rank's own."""
    group = nodes(4.0, 2.0)
    assert start_ups(operation, group) == {
        "ring_ll": 2 + 6 * 4 + 8,
        "ring_ll128": 11 + 6 * 13 + 20,
        "ring_simple": 23 + 6 * 29 + 39,
        "nvls": 139 + 153,
        "collnet_direct": 97 + 2 * (101 + 3 * 5) + 109,
    }
    assert rates(operation, 64.0, group) == pytest.approx(
        {
            "ring_ll": 100 * 8 / 7,
            "ring_ll128": 150 * 8 / 7,
            "ring_simple": 200 * 8 / 7,
            "nvls": 10 * 20 * 0.8 * 0.9 * 3 / 4,  # below 12 a channel
            "collnet_direct": 4 * 0.4 * 12,  # below 20
        }
    )
    fast = evolve(MACHINE, inter=60.0)
    assert rates(operation, 64.0, group, fast)["collnet_direct"] == pytest.approx(4 * 20)
    # five ranks on two nodes count as two and a half on each
    uneven = evolve(nodes(2.5, 2.0), shape=(3.0, 2.0))
    assert rates(operation, 64.0, uneven)["nvls"] == pytest.approx(144 * 1.5 / 2.5)


@pytest.mark.parametrize("operation", ["broadcast", "reduce"])
def test_a_broadcast_pays_one_step_and_its_bytes_once(operation: str) -> None:
    assert start_ups(operation, nodes(8.0)) == {
        "ring_ll": 2 + 3,
        "ring_ll128": 11 + 13,
        "ring_simple": 23 + 29,
    }
    assert start_ups(operation, nodes(4.0, 2.0)) == {
        "ring_ll": 2 + 8,
        "ring_ll128": 11 + 20,
        "ring_simple": 23 + 39,
    }
    assert rates(operation, 64.0, nodes(8.0)) == pytest.approx(
        {"ring_ll": 90, "ring_ll128": 150, "ring_simple": 200}
    )


def test_one_rank_on_each_node_steps_by_the_rows_of_the_tree_and_by_pat() -> None:
    starts = start_ups("all_gather", nodes(1.0, 4.0))
    assert starts["ring_ll"] == 2 + 3 * 54
    assert starts["ring_simple"] == 23 + 3 * 91
    assert starts["pat"] == 179 + 2 * (193 + 2) / 4 + 3 * 4
    assert starts["collnet_direct"] == 97 + 109
    assert rates("all_gather", 64.0, nodes(1.0, 4.0))["pat"] == pytest.approx(0.75 * 120)
    assert rates("all_gather", 64.0, nodes(1.0, 2.0))["pat"] == pytest.approx(0.75 * 200)
    assert start_ups("all_gather", nodes(1.0, 2.0))["pat"] == 179 + 195 / 4 + 3 * 2


def test_two_ranks_on_each_node_step_by_the_rows_of_the_ring() -> None:
    starts = start_ups("all_gather", nodes(2.0, 2.0))
    assert starts["ring_ll"] == 2 + 2 * 4 + 8
    assert starts["collnet_direct"] == 97 + 2 * (101 + 5) + 109
    assert "pat" not in starts


def test_a_step_that_is_not_taken_takes_nothing_where_the_table_has_no_time_for_it() -> None:
    alone = evolve(MACHINE, table=table(*(row(name, network=None) for name in ROWS)))
    assert start_ups("all_reduce", nodes(8.0), alone) == start_ups("all_reduce", nodes(8.0))
    assert start_ups("all_reduce", nodes(4.0, 2.0), alone) == {}


def test_a_ring_of_long_messages_waits_longer_from_64_bytes_per_channel_and_rank_on() -> None:
    group, n = nodes(4.0, 2.0), 64.0 * 10 * 8
    start = start_ups("all_reduce", group)["ring_simple"]
    seconds = [
        pairs(MACHINE, "all_reduce", m, group)["ring_simple"] - m * 14 / 8 / 200 for m in (n - 1, n)
    ]
    assert seconds == pytest.approx([start, 1.5 * start])
    short = pairs(MACHINE, "all_reduce", n, group)["ring_ll"]
    assert short == pytest.approx(2 + 12 * 4 + 2 * 8 + n * 14 / 8 / 100)
    gathered = pairs(MACHINE, "all_gather", n, group)["ring_simple"]
    assert gathered == pytest.approx(23 + 6 * 29 + 39 + n * 7 / 8 / 200)
    on_one = pairs(MACHINE, "all_reduce", n, nodes(8.0))["ring_simple"]
    assert on_one == pytest.approx(23 + 14 * 29 + n * 14 / 8 / 200)


def test_trees_are_corrected_by_powers_of_two_and_not_beyond_the_last() -> None:
    sizes = (1.0, 127.0, 128.0, 255.0, 256.0, 512.0)
    found = [rates("all_reduce", n, nodes(8.0)) for n in sizes]
    shares = {
        "tree_ll": (45, [1, 1, 0.5, 0.5, 0.2, 1]),
        "tree_ll128": (59.5, [1, 1, 0.4, 0.4, 0.1, 1]),
        "tree_simple": (85, [1, 1, 0.8, 0.8, 0.25, 1]),
    }
    for name, (rate, expected) in shares.items():
        assert [each[name] / rate for each in found] == pytest.approx(expected), name
    both = evolve(
        MACHINE,
        generation=generation(nvls_tree_corrected=True),
        host=host(nvls_tree_corrected=True),
    )
    group = nodes(4.0, 2.0)
    for known, share in (
        (both, 0.8),
        (evolve(both, host=host()), 1.0),
        (evolve(both, generation=generation()), 1.0),
    ):
        assert rates("all_reduce", 128.0, group, known)["nvls_tree"] == pytest.approx(
            share * 240 * 8 / 14
        )


def test_values_beyond_the_machine_are_not_offered() -> None:
    group = nodes(4.0, 2.0)
    everything = set(start_ups("all_reduce", group))
    nvls = {"nvls", "nvls_tree"}
    collnet = {"collnet_direct", "collnet_chain"}
    without = [
        (nodes(4.0, 2.0, in_network=False), MACHINE, nvls),
        (group, evolve(MACHINE, generation=generation(nvls_efficiency=0.0)), nvls),
        (group, evolve(MACHINE, collnet=False), {*collnet, "nvls"}),  # which needs it over nodes
    ]
    for placed, known, left_out in without:
        assert everything - set(start_ups("all_reduce", placed, known)) == left_out
    bare = AlphaBeta(name="node", latency=0.0, bandwidth=1.0)  # of no level
    plain = Group(name="g", ranks=8.0, shape=(8.0,), links=(bare,))
    assert not nvls & set(start_ups("all_reduce", plain))
    on_one = start_ups("all_reduce", nodes(8.0), evolve(MACHINE, collnet=False))
    assert on_one["nvls"] == 139


def test_a_pair_that_the_table_gives_no_bandwidth_is_not_offered() -> None:
    none = evolve(MACHINE, generation=generation(ring_ll128=0.0))
    assert set(start_ups("all_gather", nodes(8.0), none)) == {"ring_ll", "ring_simple", "nvls"}
    little = evolve(MACHINE, generation=generation(ring_ll128=0.05, nvls_efficiency=1.0))
    found = rates("all_gather", 64.0, nodes(8.0), little)
    assert found["ring_ll128"] == pytest.approx(0.5 * 8 / 7)
    assert found["nvls"] == pytest.approx(10 * 20 * 9 / 10 * 7 / 8)


@pytest.mark.parametrize("operation", ["all_reduce", "all_gather", "broadcast"])
def test_one_rank_takes_no_time_and_two_take_theirs(operation: str) -> None:
    alone = start_ups(operation, nodes(1.0))
    assert set(alone.values()) == {0.0}
    assert "pat" not in alone
    swept = start_ups(operation, nodes(np.array([1.0, 2.0]), 1.0))  # type: ignore[arg-type]
    two = start_ups(operation, nodes(2.0))
    for name, seconds in swept.items():
        assert list(np.broadcast_to(seconds, 2)) == [0.0, two.get(name, INFINITY)], name


# --- what a study says --------------------------------------------------------------------------


def choice(**given: Any) -> CollectiveChoice:
    whole = {"tuning": TABLE, "generation": "hopper", "channels": 10.0, "links": 30.0, **given}
    return CollectiveChoice(**whole)


def test_a_machine_has_the_channels_that_the_study_says_or_that_its_links_make() -> None:
    by_links = machine(choice())
    assert by_links is not None
    assert (by_links.intra, by_links.inter) == (30 * 7 / 10, 30 * 7 / 10)
    own = machine(choice(channel_bandwidth=5.0, network_channel_bandwidth=3.0, collnet=True))
    assert own is not None
    assert (own.intra, own.inter, own.channels, own.collnet) == (5.0, 3.0, 10.0, True)


@try_each(
    "left_out",
    [
        {"tuning": None},
        {"channels": None},
        {"generation": "volta"},
        {"host": "amd"},
        {"links": None},
        {"tuning": table(*map(row, list(ROWS)[1:]))},
    ],
)
def test_a_study_that_leaves_something_out_has_no_machine(left_out: dict[str, Any]) -> None:
    assert machine(choice(**left_out)) is None
