"""Every pair of the library's cost model on a machine of round numbers, worked out by hand.

Four channels of 10 B/s inside of a node and 6 B/s between nodes; a step over the network waits
half a second for each card, of which Simple has two.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from attrs import evolve

from parcost import Group
from parcost_plugins.collectives.nccl.machine import Machine
from parcost_plugins.collectives.nccl.pairs import pairs
from parcost_plugins.topology.links import AlphaBeta
from parcost_plugins.vocabulary import (
    GenerationTuning,
    HostTuning,
    Level,
    ProtocolTuning,
    Tuning,
)

from ..rows import try_each

#: Seconds of the call, of a step inside of a node, and of one between nodes.
ROWS = {
    "ring_ll": (1.0, 0.1, 2.0),
    "ring_ll128": (2.0, 0.2, 3.0),
    "ring_simple": (3.0, 0.4, 5.0),
    "tree_ll": (1.5, 0.15, 2.5),
    "tree_ll128": (2.5, 0.25, 3.5),
    "tree_simple": (3.5, 0.45, 5.5),
    "nvls": (99.0, 6.0, 7.0),
    "nvls_tree": (8.0, 9.0, 10.0),
    "collnet_direct": (11.0, 0.6, 12.0),
    "collnet_chain": (13.0, 0.7, 14.0),
    "pat": (15.0, 99.0, 16.0),
}


def protocol(label: str, base: float, nvlink: float | None, network: float) -> ProtocolTuning:
    made = ProtocolTuning(base=base, nvlink=nvlink, network=network, pcie=None)
    object.__setattr__(made, "label", label)
    return made


GENERATION: Any = GenerationTuning(
    payload=1.0,
    ll_one_node=15.0,
    ring_ll128=8.0,
    tree_one_node=7.0,
    tree_two_nodes=6.5,
    tree_more_nodes=5.0,
    tree_ll128_one_node=5.5,
    tree_ll128_two_nodes=4.5,
    tree_ll128_more_nodes=3.5,
    nvls_tree_two_nodes=9.0,
    nvls_tree_more_nodes=4.0,
    nvls_efficiency=0.8,
    long_ring=1.5,
    collnet=0.85,
    nvls_tree_corrected=True,
)
HOST: Any = HostTuning(ll_two_nodes=12.0, ll_more_nodes=5.0, overhead=0.3, nvls_tree_corrected=True)
TABLE: Any = Tuning(
    protocols=tuple(protocol(name, *row) for name, row in ROWS.items()),
    generations=(),
    hosts=(),
    ring_ll=0.5,
    ring_ll128=0.9,
    tree=0.8,
    tree_ll=0.25,
    tree_ll128_one_node=0.7,
    tree_ll128_more_nodes=0.6,
    pat=0.75,
    pat_steps=2.0,
    pat_rank=0.1,
    collnet_direct_peer=0.05,
    collnet_network=0.4,
    simple_overhead=3.0,
    simple_ports=2.0,
    long_message=1000.0,
    correction_from=64.0,
    tree_ll_correction=(50, 80),
    tree_ll128_correction=(60,),
    tree_simple_correction=(90, 70),
)
MACHINE = Machine(
    table=TABLE,
    generation=GENERATION,
    host=HOST,
    channels=4.0,
    intra=10.0,
    inter=6.0,
    card_latency=0.5,
    collnet=True,
)


def seconds(
    operation: str,
    local: float,
    nodes: int,
    n: float,
    machine: Machine = MACHINE,
    *,
    in_network: bool = True,
) -> Mapping[str, Any]:
    level = Level(bandwidth=1.0, latency=0.0, kind="switch", in_network=in_network)
    near = AlphaBeta(name="node", latency=0.0, bandwidth=1.0, level=level)
    far = AlphaBeta(name="network", latency=0.0, bandwidth=1.0)
    group = Group(
        name="g",
        ranks=float(local * nodes),
        shape=(float(local), float(nodes)),
        links=(near, far),
    )
    found = pairs(machine, operation, n, group)
    return {name: value for name, value in found.items() if value != float("inf")}


#: Operation, ranks of a node, nodes, bytes, and what each pair takes: of the call, of steps
#: inside of a node, of steps between nodes, and of the bytes.
EXPECTED: list[tuple[str, float, int, float, dict[str, float]]] = [
    (
        # 14 steps, twice 7 / 8 of the bytes; a tree of 200 B is corrected by 80, 100 and 70 %
        "all_reduce", 8, 1, 200.0,
        {
            "ring_ll": 1 + 14 * 0.1 + 350 / 15,  # the cap of LL on one node
            "ring_ll128": 2 + 14 * 0.2 + 350 / (4 * 8),
            "ring_simple": 3 + 14 * 0.4 + 350 / 40,
            "tree_ll": 1.5 + 2 * 7 * 0.15 + 200 / (4 * 7 * 0.25 / 2 * 0.8),
            "tree_ll128": 2.5 + 2 * 7 * 0.25 + 200 / (4 * 7 * 0.7 / 2),
            "tree_simple": 3.5 + 2 * 7 * 0.45 + 200 / (4 * 7 / 2 * 0.7),
            # a channel is kept: 3 / 4 of 8 B/s, both ways
            "nvls": 6 + 200 / (4 * 12 * 8 / 14),
        },
    ),
    (
        # one long enough, but on one node
        "all_reduce", 8, 1, 32000.0,
        {"ring_simple": 3 + 14 * 0.4 + 56000 / 40},
    ),
    (
        # two of 14 steps cross the network; 100 B are corrected by 50, 60 and 90 %
        "all_reduce", 4, 2, 100.0,
        {
            "ring_ll": 1 + 12 * 0.3 + 2 * 2.5 + 175 / 12,  # the host's overhead is longer
            "ring_ll128": 2 + 12 * 0.3 + 2 * 3.5 + 175 / 32,
            "ring_simple": 3 + 12 * 0.9 + 2 * 6 + 175 / 40,
            "tree_ll": 1.5 + 2 * (3 * 0.15 + 3) + 100 / (26 * 0.25 / 2 * 0.5),
            "tree_ll128": 2.5 + 2 * (3 * 0.25 + 4) + 100 / (26 * 0.6 / 2 * 0.6),
            "tree_simple": 3.5 + 2 * (3 * 0.45 + 6.5) + 100 / (26 / 2 * 0.9),
            "nvls": 6 + 8 + 100 / (4 * 6 * 8 / 14),
            "nvls_tree": 8 + 9 + 2 * 11 + 100 / (4 * 9 * 8 / 14 * 0.9),
            "collnet_direct": 11 + 2 * (0.6 + 3 * 0.05) + 13 + 100 / (40 * 0.85 / 2),
            "collnet_chain": 13 + 2 * 3 * 0.7 + 15 + 100 / 20,
        },
    ),
    (
        # of 30 steps six cross; 1000 B per channel and rank are long; nothing is corrected
        "all_reduce", 4, 4, 64000.0,
        {
            "ring_ll": 1 + 24 * 0.3 + 6 * 2.5 + 120000 / 5,
            "ring_ll128": 2 + 24 * 0.3 + 6 * 3.5 + 120000 / (24 * 0.9),
            "ring_simple": 1.5 * (3 + 24 * 0.9 + 6 * 6) + 120000 / 24,
            "tree_ll": 1.5 + 2 * (0.45 + 2 * 3) + 64000 / (24 * 0.8 * 0.25 / 2),
            "tree_ll128": 2.5 + 2 * (0.75 + 2 * 4) + 64000 / (24 * 0.8 * 0.6 / 2),
            "tree_simple": 3.5 + 2 * (1.35 + 2 * 6.5) + 64000 / (24 * 0.8 / 2),
            "nvls": 6 + 8 + 64000 / (24 * 16 / 30),
            "nvls_tree": 8 + 9 + 4 * 11 + 64000 / (4 * 4 * 16 / 30),
            "collnet_direct": 11 + 2 * (0.6 + 0.15) + 13 + 64000 / 17,
            "collnet_chain": 13 + 4.2 + 15 + 64000 / 20,
        },
    ),
    ("all_reduce", 4, 4, 63999.0, {"ring_simple": 3 + 24 * 0.9 + 6 * 6 + 63999 * 30 / 16 / 24}),
    (
        # twice as many ranks as channels: 2 - (2 - 1) / 2
        "all_reduce", 8, 2, 100.0,
        {"collnet_direct": 11 + 2 * (0.6 + 7 * 0.05) + 13 + 100 / (40 / 1.5 * 0.85 / 2)},
    ),
    (
        # one of seven steps crosses
        "all_gather", 4, 2, 100.0,
        {
            "ring_ll": 1 + 6 * 0.3 + 2.5 + 87.5 / 12,
            "ring_ll128": 2 + 6 * 0.3 + 3.5 + 87.5 / 32,
            "ring_simple": 3 + 6 * 0.9 + 6 + 87.5 / 40,
            "nvls": 6 + 8 + 100 / (4 * 6 * 3 / 4),
            "collnet_direct": 11 + 2 * (0.6 + 0.15) + 13 + 100 / (4 * 0.4 * 6),
        },
    ),
    (
        # one rank in a node: the ring takes the tree's steps, and PAT runs
        "reduce_scatter", 1, 4, 100.0,
        {
            "ring_ll": 1 + 3 * 3 + 75 / 5,
            "ring_ll128": 2 + 3 * 4 + 75 / (24 * 0.9),
            "ring_simple": 3 + 3 * 6.5 + 75 / 24,
            "collnet_direct": 11 + 13 + 100 / 2.4,
            "pat": 15 + 2 * 17 / 2 + 4 * 0.1 + 100 / (24 * 0.75),
        },
    ),
    ("all_gather", 2, 1, 100.0, {"ring_ll": 1 + 0.1 + 50 / 15}),
    # two nodes may be long; three have the channels of the network
    ("all_reduce", 4, 2, 32000.0, {"ring_simple": 1.5 * (3 + 12 * 0.9 + 12) + 56000 / 40}),
    ("all_gather", 4, 3, 120.0, {"ring_simple": 3 + 9 * 0.9 + 2 * 6 + 110 / 24}),
    # two ranks in a node step as a ring does, and run no PAT; half as many as channels
    (
        "all_gather", 2, 2, 100.0,
        {
            "ring_ll": 1 + 2 * 0.3 + 2.5 + 75 / 12,
            "ring_ll128": 2 + 2 * 0.3 + 3.5 + 75 / 32,
            "ring_simple": 3 + 2 * 0.9 + 6 + 75 / 40,
            "collnet_direct": 11 + 2 * (0.6 + 0.05) + 13 + 100 / (2 * 2.4),
        },
    ),
    (
        "all_reduce", 2, 2, 100.0,
        {"collnet_direct": 11 + 2 * (0.6 + 0.05) + 13 + 100 / (40 / 0.75 * 0.85 / 2)},
    ),
    # NVLS takes three ranks in a node
    ("all_gather", 3, 2, 100.0, {"nvls": 6 + 8 + 100 / (4 * 6 * 2 / 3)}),
    ("all_gather", 1, 2, 100.0, {"pat": 15 + 17 / 2 + 2 * 0.1 + 100 / (40 * 0.75)}),
    (
        "broadcast", 4, 2, 100.0,
        {
            "ring_ll": 1 + 2.5 + 100 / 12,
            "ring_ll128": 2 + 3.5 + 100 / 32,
            "ring_simple": 3 + 6 + 100 / 40,
        },
    ),
    (
        "reduce", 8, 1, 100.0,
        {
            "ring_ll": 1 + 0.1 + 100 / 15,
            "ring_ll128": 2 + 0.2 + 100 / 32,
            "ring_simple": 3 + 0.4 + 100 / 40,
        },
    ),
]  # fmt: skip


@try_each("operation, local, nodes, n, expected", EXPECTED)
def test_every_pair(
    operation: str, local: float, nodes: int, n: float, expected: dict[str, float]
) -> None:
    found = seconds(operation, local, nodes, n)
    if len(expected) > 1:
        assert set(found) == set(expected)
    assert {name: found[name] for name in expected} == pytest.approx(expected, rel=1e-12)


def test_one_rank_takes_nothing() -> None:
    for operation in ("all_reduce", "all_gather", "broadcast"):
        assert set(seconds(operation, 1, 1, 100.0).values()) == {0.0}


@try_each(
    "cap, inter, nodes, bus",
    [
        (9.0, 6.0, 2, 9.0),
        (20.0, 7.0, 2, 12.0),  # of NVLS inside of a node, both ways
        (20.0, 4.0, 2, 8.0),  # twice a channel of the network
        (20.0, 4.0, 3, 4.0),
        (3.0, 4.0, 3, 3.0),
    ],
)
def test_an_nvls_tree_has_the_least_of_three(
    cap: float, inter: float, nodes: int, bus: float
) -> None:
    generation = evolve(GENERATION, nvls_tree_two_nodes=cap, nvls_tree_more_nodes=cap)
    machine = evolve(MACHINE, generation=generation, inter=inter)
    P = 4 * nodes
    found = seconds("all_reduce", 4, nodes, 1e6, machine)["nvls_tree"]
    assert found == pytest.approx(17 + 22 + 1e6 / (4 * bus * P / (2 * (P - 1))), rel=1e-12)


def test_an_nvls_tree_is_corrected_where_both_tables_say_so() -> None:
    plain = 39 + 10 / (4 * 9 * 8 / 14)
    for generation, host, expected in (
        (True, True, 39 + 10 / (4 * 9 * 8 / 14 * 0.9)),
        (True, False, plain),
        (False, True, plain),
        (False, False, plain),
    ):
        machine = evolve(
            MACHINE,
            generation=evolve(GENERATION, nvls_tree_corrected=generation),
            host=evolve(HOST, nvls_tree_corrected=host),
        )
        found = seconds("all_reduce", 4, 2, 10.0, machine)["nvls_tree"]
        assert found == pytest.approx(expected, rel=1e-12)


def test_corrections_change_at_powers_of_two() -> None:
    for n, factor in ((1, 0.9), (64, 0.9), (127, 0.9), (128, 0.7), (255, 0.7), (256, 1.0)):
        found = seconds("all_reduce", 4, 2, float(n))["tree_simple"]
        assert found == pytest.approx(3.5 + 15.7 + n / (13 * factor), rel=1e-12)


def test_what_a_machine_does_not_offer() -> None:
    none = {"collnet_direct", "collnet_chain"}
    alone = evolve(MACHINE, collnet=False)
    two = set(seconds("all_reduce", 4, 2, 100.0))
    assert two - set(seconds("all_reduce", 4, 2, 100.0, alone)) == {*none, "nvls"}
    assert "nvls" in seconds("all_reduce", 8, 1, 100.0, alone)
    assert two - set(seconds("all_reduce", 4, 2, 100.0, in_network=False)) == {"nvls", "nvls_tree"}
    without = evolve(MACHINE, generation=evolve(GENERATION, nvls_efficiency=0.0))
    assert two - set(seconds("all_reduce", 4, 2, 100.0, without)) == {"nvls", "nvls_tree"}


def test_few_channels_are_below_the_caps() -> None:
    two = seconds("all_reduce", 8, 1, 200.0, evolve(MACHINE, channels=2.0))
    assert two["ring_ll"] == pytest.approx(1 + 14 * 0.1 + 350 / (20 * 0.5))
    slow = seconds("all_reduce", 8, 1, 200.0, evolve(MACHINE, intra=0.2))
    assert slow["ring_simple"] == pytest.approx(3 + 14 * 0.4 + 350 / 0.8)
    whole = evolve(MACHINE, generation=evolve(GENERATION, nvls_efficiency=1.0))
    found = seconds("all_reduce", 8, 1, 200.0, whole)["nvls"]
    assert found == pytest.approx(6 + 200 / (4 * 15 * 8 / 14))


def test_no_step_inside_of_a_node_takes_no_time() -> None:
    """Where the table has no such step, and one rank in a node needs none."""
    rows = tuple(protocol(name, base, None, network) for name, (base, _, network) in ROWS.items())
    machine = evolve(MACHINE, table=evolve(TABLE, protocols=rows))
    one = seconds("reduce_scatter", 1, 4, 100.0)
    assert seconds("reduce_scatter", 1, 4, 100.0, machine) == one
    assert set(seconds("all_reduce", 4, 2, 100.0, machine)) == set()
